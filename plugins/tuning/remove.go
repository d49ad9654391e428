package tuning

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

// Remove puts back what there was before, and forgets it.
func (c *Config) Remove(_ context.Context, s *chained.Session, gone chained.Gone) error {
	m, err := c.open()
	if err != nil {
		return err
	}
	if gone.All() {
		return collect(s, m, gone)
	}
	if s.Sandbox != nil {
		return m.remove(s.Tx, s.Sandbox, s.Attachment(), s.Log)
	}
	var x attachment // the namespace can be there all the same
	if _, err := m.attachments.Read(string(s.Attachment().Owner()), &x); err != nil {
		s.Log.Warn("what there was before is not known", "err", err)
	}
	return m.removeFrom(s, x.namespace(), s.Attachment())
}

// collect is Remove for all attachments that are gone. Where the namespace of one is still there, it is found by what ADD has
// remembered. The folder is everybody's: what the reference plugin remembers stays, as nobody can tell of which network it
// is, unless it is of an earlier boot.
func collect(s *chained.Session, m memory, gone chained.Gone) error {
	owners, err := m.attachments.Names()
	_, err2 := m.interfaces.Names() // forgets what is of an earlier boot
	// A killed ADD has written its owner first: it leaves no drafts of attributes without one.
	drafts := m.attachments.RemoveDrafts(func(name string) bool {
		owner := cni.Owner(name)
		return owner.Valid() && gone.Owner(owner)
	})
	errs := []error{err, err2, drafts}
	for _, owner := range owners {
		if gone.Owner(cni.Owner(owner)) {
			errs = append(errs, collectOne(s, m, owner))
		}
	}
	return errors.Join(errs...)
}

func collectOne(s *chained.Session, m memory, owner string) error {
	var x attachment
	if _, err := m.attachments.Read(owner, &x); err != nil || x.Container == "" { // broken
		return forget(s.Tx, m.attachments, owner)
	}
	return m.removeFrom(s, x.namespace(), cni.Attachment{Network: s.Name, Container: x.Container, IfName: x.IfName})
}

// removeFrom is remove in a namespace that was remembered, nil if it is gone, which it closes.
func (m memory) removeFrom(s *chained.Session, ns *kernel.Namespace, a cni.Attachment) error {
	if ns == nil {
		return m.remove(s.Tx, nil, a, s.Log)
	}
	defer ns.Close()
	sandbox, err := s.Tx.Open(ns)
	if err != nil {
		return err
	}
	defer sandbox.Close()
	return m.remove(s.Tx, sandbox, a, s.Log)
}

// remove puts back in the namespace, if it is there, what there was before, and forgets it: last what GC finds it by. What
// fails is remembered, for the next DEL.
func (m memory) remove(tx *kernel.Tx, sandbox *kernel.Space, a cni.Attachment, log *slog.Logger) error {
	if sandbox != nil {
		attributes, settings := m.read(a, log)
		err := errors.Join(restore(sandbox, a.IfName, attributes, log), reset(sandbox, settings))
		if err != nil {
			return err
		}
	}
	if err := forget(tx, m.interfaces, fileName(a)); err != nil {
		return err
	}
	return forget(tx, m.attachments, string(a.Owner()))
}

// restore gives an interface, if it is there, the attributes that it had. What the kernel refuses stays as it is: it would
// refuse it the next time, and DEL would never end.
func restore(sandbox *kernel.Space, ifName string, before Attributes, log *slog.Logger) error {
	if before.none() {
		return nil
	}
	link, err := sandbox.Links.ByName(ifName)
	if err != nil {
		return kernel.UnlessNoLink(err)
	}
	var errs []error
	for _, d := range before.differ(sandbox, link) {
		err := d.set()
		if session.Refused(err) {
			log.Warn("an attribute stays as it is", "err", fmt.Errorf("interface %s: %w", ifName, err))
			continue
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// reset gives settings the values that they had, in reverse order. Those that are gone, with their interface, or that the
// kernel refuses, stay.
func reset(sandbox *kernel.Space, before []kernel.Setting) error {
	if len(before) == 0 {
		return nil
	}
	slices.Reverse(before)
	for i := range before {
		before[i].Optional = true
	}
	return sandbox.Sysctl.SetAll(before)
}
