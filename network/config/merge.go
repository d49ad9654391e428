package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/cni"
)

// merge returns the snapshot that follows old when the directory holds c.
//
// A network stays as it was if its file is broken or the policy forbids its new version. A network,
// drop-in or policy that has disappeared stays for [Options.Linger], because a writer may remove a
// file before it replaces it, or create a directory anew. If too few networks would be left, the
// missing ones stay until there are enough.
func merge(old *Snapshot, c *Catalog, now time.Time, keep Options) *Snapshot {
	m := &merger{
		old: old, catalog: c, keep: keep,
		next: &Snapshot{Dir: c.Dir, Generation: old.Generation + 1, Read: now},
		used: map[string]*Network{},
	}
	for _, f := range c.candidates() {
		if f.Use == Chosen {
			m.used[f.Name] = f.Network
		}
	}
	m.brokenFiles()
	there := len(m.used)
	enough := there >= max(keep.Min, 1)
	m.policy(enough)
	m.changed()
	m.gone(enough)
	if !enough {
		m.tooFew(there)
	}
	m.next.Networks = slices.SortedFunc(maps.Values(m.used), func(a, b *Network) int {
		return cmp.Or(strings.Compare(a.Source, b.Source), strings.Compare(a.Name, b.Name))
	})
	slices.SortStableFunc(m.next.Problems, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Network, b.Network))
	})
	return m.next
}

type merger struct {
	old     *Snapshot
	catalog *Catalog
	keep    Options // only Min and Linger
	next    *Snapshot
	used    map[string]*Network // by name
}

// report adds a problem.
func (m *merger) report(p Problem) {
	if !errors.As(p.Err, new(*FileError)) {
		p.Err = &FileError{Path: p.Path, Err: p.Err}
	}
	p.Since = m.old.since(p, m.next.Read)
	m.next.Problems = append(m.next.Problems, p)
}

// lingers reports whether a missing file is still in use, and adds a problem if so.
func (m *merger) lingers(p Problem) bool {
	p.kind, p.Kept = lingering, true
	until := m.old.since(p, m.next.Read).Add(m.keep.Linger)
	if !m.next.Read.Before(until) {
		return false
	}
	if m.next.due.IsZero() || until.Before(m.next.due) {
		m.next.due = until
	}
	m.report(p)
	return true
}

// brokenFiles keeps the networks of broken files: the network that a file names, and the network
// that it held before.
func (m *merger) brokenFiles() {
	for _, f := range m.catalog.candidates() {
		if f.Err == nil {
			continue
		}
		p := Problem{Path: f.Path, Network: f.Name, Err: f.Err, kind: unusable}
		for _, n := range m.old.Networks {
			its := n.Source == f.Path || n.Name == f.Name && f.ShadowedBy == ""
			if there := m.used[n.Name]; its && (there == nil || there == n) {
				m.used[n.Name] = n
				p.Network, p.Kept = n.Name, true
			}
		}
		m.report(p)
	}
}

// policy decides which policy is used.
func (m *merger) policy(enough bool) {
	before, found := m.old.Policy, m.catalog.Policy
	p := Problem{Path: filepath.Join(m.catalog.Dir, PolicyName), Kept: true}
	switch {
	case found == nil && before == nil:
	case found == nil && before.err != nil && m.old.unread():
		// While the directory was unreadable, before stood in for a policy that may have existed.
	case found == nil && !enough:
		p.kind, p.Err = last, cni.Errorf(cni.CodeInvalidConfig,
			"the policy has disappeared along with the networks; it stays in use as long as they do")
		m.report(p)
		found = before
	case found == nil:
		p.Err = cni.Errorf(cni.CodeInvalidConfig,
			"the policy has disappeared; it stays in use for %v", m.keep.Linger)
		if m.lingers(p) {
			found = before
		}
	case found.err != nil:
		p.kind, p.Err, p.Kept = unusable, found.err, before != nil && before.err == nil
		m.report(p)
		if p.Kept {
			found = before
		}
	case found.equal(before):
		found = before // keeps the cached digests
	}
	m.next.Policy = found
}

// changed keeps a network that lost a drop-in for a while, and a network that the policy would
// forbid now.
func (m *merger) changed() {
	for _, before := range m.old.Networks {
		n := m.used[before.Name]
		if n == nil || n == before {
			continue
		}
		if missing := missingDropIn(before, n); missing != "" {
			p := Problem{Path: filepath.Dir(missing), Network: n.Name}
			p.Err = cni.Errorf(cni.CodeInvalidConfig,
				"network %s: drop-in %s has disappeared; the network stays in use with it for %v",
				n.Name, missing, m.keep.Linger)
			if m.lingers(p) {
				m.used[n.Name] = before
				continue
			}
		}
		if err := m.next.Policy.Check(n); err != nil && m.next.Policy.Check(before) == nil {
			m.report(Problem{Path: n.Source, Network: n.Name, Err: err, Kept: true,
				kind: forbidden})
			m.used[n.Name] = before
		}
	}
}

// missingDropIn returns a drop-in that a network had before and now lacks; "" if there is none or
// the network takes no drop-ins.
func missingDropIn(before, n *Network) string {
	if !n.OnlyInlined {
		for _, path := range before.DropIns {
			if !slices.Contains(n.DropIns, path) {
				return path
			}
		}
	}
	return ""
}

// gone keeps networks that no file states any more: for a while, or until there are enough
// networks.
func (m *merger) gone(enough bool) {
	for _, n := range m.old.Networks {
		if m.used[n.Name] != nil {
			continue
		}
		p := Problem{Path: n.Source, Network: n.Name, Kept: true}
		switch {
		case !enough:
			p.kind, p.Err = last, cni.Errorf(cni.CodeInvalidConfig,
				"network %s has disappeared; it stays in use because too few networks would be left", n.Name)
			m.report(p)
		case m.replaced(n):
			continue
		default:
			p.Err = cni.Errorf(cni.CodeInvalidConfig,
				"network %s has disappeared; it stays in use for %v", n.Name, m.keep.Linger)
			if !m.lingers(p) {
				continue
			}
		}
		m.used[n.Name] = n
	}
}

// replaced reports whether the file of a network holds another network now, because the network was
// renamed.
func (m *merger) replaced(n *Network) bool {
	return slices.ContainsFunc(m.catalog.Files,
		func(f File) bool { return f.Path == n.Source && f.Network != nil })
}

func (m *merger) tooFew(there int) {
	p := Problem{Path: m.catalog.Dir, kind: tooFew, Kept: len(m.used) > there}
	switch {
	case len(m.catalog.candidates()) == 0:
		p.Err = ErrNoConfig
	case there < m.keep.Min:
		p.Err = cni.Errorf(cni.CodeInvalidConfig,
			"usable networks: %d; at least %d are required", there, m.keep.Min)
	default:
		return // the broken files are reported already
	}
	m.report(p)
}

// cannotRead returns the snapshot that follows old when the directory cannot be read: it keeps the
// configuration in use.
func cannotRead(old *Snapshot, err error, now time.Time) *Snapshot {
	next := *old
	next.Generation, next.Read, next.Problems, next.due = old.Generation+1, now, nil, time.Time{}
	if old.Generation == 0 {
		err := fmt.Errorf("configuration directory: %w", err)
		next.Policy = &Policy{Source: filepath.Join(old.Dir, PolicyName), err: err}
	}
	p := Problem{Path: old.Dir, Err: &FileError{Path: old.Dir, Err: err}, Kept: old.Generation > 0,
		kind: unread}
	p.Since = old.since(p, now)
	next.Problems = append(next.Problems, p)
	for _, p := range old.Problems {
		if p.kind != unread {
			next.Problems = append(next.Problems, p)
		}
	}
	return &next
}
