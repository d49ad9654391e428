package network

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network/config"
)

// answer is the last result of Status.
type answer struct {
	err        error
	generation uint64
	until      time.Time
}

// Status reports whether Setup would work for a request that names no networks. It joins all
// errors: problems of the directory ([config.Snapshot.Err]), except in files after the first
// [ManagerOptions.Max] networks; too few networks; missing plugins and IPAM plugins; and the errors
// of the plugins ([Client.Status]). The code is [cni.CodeNotAvailable] or the code of the first
// plugin that failed. Status waits for no ADD.
func (m *Manager) Status(ctx context.Context) error {
	var last *answer
	select {
	case last = <-m.status:
	case <-ctx.Done():
		return cni.Errorf(cni.CodeTryAgainLater, "another Status is in progress: %w", ctx.Err())
	}
	s := m.Config()
	if last == nil || last.generation != s.Generation || time.Now().After(last.until) {
		last = &answer{err: m.ask(ctx, s), generation: s.Generation,
			until: time.Now().Add(m.o.StatusFor)}
		if ctx.Err() != nil {
			last.until = time.Time{} // the error is not the plugins'
		}
	}
	m.status <- last
	return last.err
}

func (m *Manager) ask(ctx context.Context, s *config.Snapshot) error {
	errs := []error{m.enough(s, cni.CodeNotAvailable),
		(&config.Snapshot{Problems: m.problems(s)}).Err()}
	c := m.client(s)
	networks := m.defaults(s)
	if m.o.Loopback {
		networks = append([]*config.Network{loopback()}, networks...)
	}
	for _, n := range networks {
		var missing []error
		for _, typ := range n.Executables() {
			if _, err := c.find(typ); err != nil {
				missing = append(missing, cni.Errorf(cni.CodeNotAvailable, "network %s: %w", n.Name,
					err).WithDetails(cni.AsError(err).Details))
			}
		}
		if missing == nil {
			missing = append(missing, c.Status(ctx, n))
		}
		errs = append(errs, missing...)
	}
	return errors.Join(errs...)
}

// problems returns the problems that affect the networks of containers. They include broken files
// that sort before the last of the first networks, because such a file could contain one of them.
func (m *Manager) problems(s *config.Snapshot) []config.Problem {
	networks := m.defaults(s)
	if m.o.Max == 0 || len(networks) < m.o.Max {
		return s.Problems
	}
	last := networks[len(networks)-1].Source
	return slices.DeleteFunc(slices.Clone(s.Problems), func(p config.Problem) bool {
		return config.KindOf(p.Path) != config.OtherFile && p.Path > last
	})
}
