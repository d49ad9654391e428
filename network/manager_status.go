package network

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network/config"
)

// answer is what Status has returned last.
type answer struct {
	err        error
	generation uint64
	until      time.Time
}

// Status reports whether Setup would work for a container that names no networks, with everything that is wrong joined:
// problems of the directory ([config.Snapshot.Err]), but for those of files behind the first [ManagerOptions.Max] networks; too few
// networks; plugins and IPAM plugins that are not there; and what the plugins say ([Client.Status]). The code is
// [cni.CodeNotAvailable] or that of the first plugin. It waits for no ADD.
func (m *Manager) Status(ctx context.Context) error {
	var last *answer
	select {
	case last = <-m.status:
	case <-ctx.Done():
		return cni.Errorf(cni.CodeTryAgainLater, "status is being asked for: %w", ctx.Err())
	}
	s := m.Config()
	if last == nil || last.generation != s.Generation || time.Now().After(last.until) {
		last = &answer{err: m.ask(ctx, s), generation: s.Generation, until: time.Now().Add(m.o.StatusFor)}
		if ctx.Err() != nil {
			last.until = time.Time{} // that says nothing of the plugins
		}
	}
	m.status <- last
	return last.err
}

func (m *Manager) ask(ctx context.Context, s *config.Snapshot) error {
	errs := []error{m.enough(s, cni.CodeNotAvailable), (&config.Snapshot{Problems: m.problems(s)}).Err()}
	c := m.client(s)
	networks := m.defaults(s)
	if m.o.Loopback {
		networks = append([]*config.Network{loopback()}, networks...)
	}
	for _, n := range networks {
		var missing []error
		for _, typ := range n.Executables() {
			if _, err := c.find(typ); err != nil {
				missing = append(missing, cni.Errorf(cni.CodeNotAvailable, "network %s: %w", n.Name, err).WithDetails(cni.AsError(err).Details))
			}
		}
		if missing == nil {
			missing = append(missing, c.Status(ctx, n))
		}
		errs = append(errs, missing...)
	}
	return errors.Join(errs...)
}

// problems returns those that are about what containers are attached to. A broken file before the last of the first networks
// is among them: it might have been one.
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
