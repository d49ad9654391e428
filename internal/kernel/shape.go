package kernel

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// TBF contains the parameters of a token bucket filter (tc-tbf(8)).
type TBF = netlink.TBF

// TBF returns the token bucket filter that [Qdiscs.SetTBF] installed as the root of a link, and
// whether there is one.
func (s Qdiscs) TBF(l Link) (t TBF, ok bool, err error) {
	q, err := s.space.root(l)
	return q.TBF, q.Ours && q.Kind == "tbf", err
}

func (s *Space) root(l Link) (netlink.Qdisc, error) {
	all, err := s.rt.Qdiscs.All()
	i := slices.IndexFunc(all, func(q netlink.Qdisc) bool { return q.Link == l.Index && q.Root })
	if i < 0 {
		return netlink.Qdisc{}, err
	}
	return all[i], err
}

// SetTBF installs a token bucket filter as the root of a link, with handle 1:, or changes the
// parameters of the existing one, which loses no packets. Rollback restores the former parameters.
// SetTBF does not replace the root of another program; the error then wraps [unix.EEXIST].
func (s Qdiscs) SetTBF(l Link, t TBF) error {
	q, err := s.space.root(l)
	if err != nil {
		return err
	}
	was, had := q.TBF, q.Ours && q.Kind == "tbf"
	if q.Kind != "" && !q.Default && !had {
		return fmt.Errorf("link %q has a qdisc %s of another program: %w", l.Name, q.Kind, unix.EEXIST)
	}
	if had && was.Same(t) {
		return nil
	}
	return s.space.tx.Do(fmt.Sprintf("tbf %s dev %s", t, l.Name),
		func() error { return s.space.rt.Qdiscs.SetTBF(l, t) },
		func() error {
			if had {
				return present(s.space.rt.Qdiscs.SetTBF(l, was))
			}
			return present(s.space.rt.Qdiscs.DeleteTBF(l))
		})
}

// DeleteTBF deletes the filter of [Qdiscs.SetTBF]. Rollback installs it again.
func (s Qdiscs) DeleteTBF(l Link) error {
	was, had, err := s.TBF(l)
	if err != nil || !had {
		return err
	}
	return s.space.tx.Do("delete tbf dev "+l.Name,
		func() error { return present(s.space.rt.Qdiscs.DeleteTBF(l)) },
		func() error { return present(s.space.rt.Qdiscs.SetTBF(l, was)) })
}
