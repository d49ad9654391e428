package kernel

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// Filter hands packets of a link to another, or lets them pass.
type Filter = netlink.Filter

// Match says which packets a filter is about; the zero value is about all of them.
type Match = netlink.Match

// Hook is where a filter looks at packets of a link.
type Hook = netlink.Hook

// The hooks of filters, and the target of those that let packets pass.
const (
	Ingress = netlink.Ingress
	Egress  = netlink.Egress
	Pass    = netlink.Pass
)

// classifier is what a link has of filters.
type classifier struct {
	kind    string   // of the qdisc that holds them: [netlink.KindIngress], [netlink.KindClsact] or "", none
	filters []Filter // that SetFilters could have made
	others  int      // number of those that it could not
}

// Filters lists the filters of a link that [Qdiscs.SetFilters] could have made.
func (s Qdiscs) Filters(l Link) ([]Filter, error) {
	now, err := s.space.classifier(l)
	return now.filters, err
}

// Redirections lists for links, by their index, those that filters hand packets to them from.
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
		now.filters, now.others = append(now.filters, list...), now.others+others
	}
	return now, nil
}

// SetFilters makes the filters of a link that are mine those wanted, and leaves the others. The qdisc that holds them comes
// with the first and goes with the last; where it is of a kind that has not the hook and others use it, the error wraps
// [unix.EEXIST]. Undone by making them what they were.
func (s Qdiscs) SetFilters(l Link, mine func(Filter) bool, want []Filter) error {
	now, err := s.space.classifier(l)
	if err != nil {
		return err
	}
	shared := now.others > 0 || slices.ContainsFunc(now.filters, func(f Filter) bool { return !mine(f) })
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
			return fmt.Errorf("link %q has a qdisc %s with filters of somebody else: %w", l.Name, now.kind, unix.EEXIST)
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

// kindFor returns the kind of qdisc that filters need, where there is one of the kind now.
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
	if f.Target < 0 { // it led nowhere
		undo = nil
	}
	return s.tx.Do(fmt.Sprintf("delete filter %s dev %s", f, l.Name),
		func() error { return present(s.rt.Qdiscs.DeleteFilter(l, f)) }, undo)
}
