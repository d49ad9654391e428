package kernel

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// Filter redirects packets of a link to another link, or lets them pass.
type Filter = netlink.Filter

// Match selects the packets of a filter; the zero value selects all.
type Match = netlink.Match

// Hook is the point at which a filter examines packets of a link.
type Hook = netlink.Hook

// The hooks of filters, and the target of filters that let packets pass.
const (
	Ingress = netlink.Ingress
	Egress  = netlink.Egress
	Pass    = netlink.Pass
)

// classifier describes the filters of a link.
type classifier struct {
	kind    string   // of their qdisc: [netlink.KindIngress], [netlink.KindClsact], or "" for none
	filters []Filter // in a form that SetFilters writes
	others  []uint16 // priorities of filters in other forms
}

// Filters lists the filters of a link in a form that [Qdiscs.SetFilters] writes.
func (s Qdiscs) Filters(l Link) ([]Filter, error) {
	now, err := s.space.classifier(l)
	return now.filters, err
}

// FilterPriorities lists the priorities of the filters of a link for which mine returns false, or
// which have another form.
func (s Qdiscs) FilterPriorities(l Link, mine func(Filter) bool) ([]uint16, error) {
	now, err := s.space.classifier(l)
	list := now.others
	for _, f := range now.filters {
		if !mine(f) {
			list = append(list, f.Priority)
		}
	}
	return list, err
}

// Redirections returns, by the index of a link, the links with filters that redirect packets to it.
func (s Qdiscs) Redirections() (map[int][]Link, error) {
	qdiscs, err := s.space.rt.Qdiscs.All()
	if err != nil {
		return nil, err
	}
	from := map[int][]Link{}
	for _, q := range qdiscs {
		if !holdsFilters(q) {
			continue
		}
		l := Link{Index: q.Link, Name: fmt.Sprintf("with index %d", q.Link)}
		now, err := s.space.readFilters(l, q.Kind)
		if err != nil {
			return nil, err
		}
		for _, f := range now.filters {
			from[f.Target] = append(from[f.Target], l)
		}
	}
	return from, nil
}

func holdsFilters(q netlink.Qdisc) bool {
	return q.Kind == netlink.KindIngress || q.Kind == netlink.KindClsact
}

func (s *Space) classifier(l Link) (classifier, error) {
	qdiscs, err := s.rt.Qdiscs.All()
	if err != nil {
		return classifier{}, err
	}
	i := slices.IndexFunc(qdiscs, func(q netlink.Qdisc) bool { return q.Link == l.Index && holdsFilters(q) })
	if i < 0 {
		return classifier{}, nil
	}
	return s.readFilters(l, qdiscs[i].Kind)
}

func (s *Space) readFilters(l Link, kind string) (classifier, error) {
	now := classifier{kind: kind}
	hooks := []netlink.Hook{Ingress}
	if kind == netlink.KindClsact {
		hooks = append(hooks, Egress)
	}
	for _, h := range hooks {
		list, others, err := s.rt.Qdiscs.Filters(l, h)
		if err != nil {
			return now, err
		}
		now.filters, now.others = append(now.filters, list...), append(now.others, others...)
	}
	return now, nil
}

// SetFilters replaces the filters of a link for which mine returns true by want, and keeps the
// others. It creates the qdisc for the first filter and deletes it with the last one. If the
// existing qdisc lacks a hook and contains other filters, the error wraps [unix.EEXIST]. Rollback
// restores the former filters.
func (s Qdiscs) SetFilters(l Link, mine func(Filter) bool, want []Filter) error {
	now, err := s.space.classifier(l)
	if err != nil {
		return err
	}
	shared := len(now.others) > 0 || slices.ContainsFunc(now.filters, func(f Filter) bool { return !mine(f) })
	kind := kindFor(now.kind, shared, want)
	for _, f := range now.filters {
		if mine(f) && (kind != now.kind || !slices.Contains(want, f)) {
			if err := s.space.deleteFilter(l, now.kind, f); err != nil {
				return err
			}
		}
	}
	if kind != now.kind {
		if shared {
			return fmt.Errorf("link %q has a qdisc %s with filters of another program: %w", l.Name, now.kind, unix.EEXIST)
		}
		if err := s.space.changeHooks(l, now.kind, kind); err != nil {
			return err
		}
	}
	for _, f := range want {
		if kind != now.kind || !slices.Contains(now.filters, f) {
			if err := s.space.addFilter(l, kind, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// kindFor returns the kind of qdisc that the filters in want need; now is the existing kind.
func kindFor(now string, shared bool, want []Filter) string {
	switch {
	case slices.ContainsFunc(want, func(f Filter) bool { return f.Hook == Egress }):
		return netlink.KindClsact
	case len(want) == 0 && !shared:
		return ""
	case now == "":
		return netlink.KindIngress
	}
	return now
}

func (s *Space) changeHooks(l Link, from, to string) error {
	if from != "" {
		err := s.tx.Do(fmt.Sprintf("delete %s dev %s", from, l.Name),
			func() error { return present(s.rt.Qdiscs.DeleteHooks(l)) },
			func() error { return present(s.rt.Qdiscs.AddHooks(l, from)) })
		if err != nil {
			return err
		}
	}
	if to == "" {
		return nil
	}
	return s.tx.change(fmt.Sprintf("add %s dev %s", to, l.Name),
		func() (added bool, err error) {
			err = s.rt.Qdiscs.AddHooks(l, to)
			if errors.Is(err, unix.EEXIST) { // another process was faster
				return false, nil
			}
			return err == nil, err
		},
		func() error { return present(s.rt.Qdiscs.DeleteHooks(l)) })
}

func (s *Space) addFilter(l Link, kind string, f Filter) error {
	return s.tx.Do(fmt.Sprintf("add filter %s dev %s", f, l.Name),
		func() error { return s.rt.Qdiscs.AddFilter(l, kind, f) },
		func() error { return present(s.rt.Qdiscs.DeleteFilter(l, f)) })
}

func (s *Space) deleteFilter(l Link, kind string, f Filter) error {
	undo := func() error { return present(s.rt.Qdiscs.AddFilter(l, kind, f)) }
	if f.Target < 0 { // its target no longer exists
		undo = nil
	}
	return s.tx.Do(fmt.Sprintf("delete filter %s dev %s", f, l.Name),
		func() error { return present(s.rt.Qdiscs.DeleteFilter(l, f)) }, undo)
}
