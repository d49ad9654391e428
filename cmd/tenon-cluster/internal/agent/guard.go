package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// guarded are the limits that the kernel has.
type guarded struct {
	ends map[netip.Prefix]local.Deadline // of blocks with a limit; the zero Deadline if lost
	over map[netip.Prefix]bool           // the limit has passed
	at   time.Time
	err  error
}

// guard sets the times in the kernel until which packets may leave the blocks of pools with a hold;
// no packet may leave a lost block. It does so after changes, and at least every resyncTime. more are
// blocks that the files do not have yet.
func (h *hold) guard(ctx context.Context, more map[netip.Prefix]local.Deadline) error {
	if h.o.Guard == nil {
		return nil
	}
	next, err := h.limits(ctx)
	if err != nil {
		return err
	}
	maps.Copy(next.ends, more)
	left := map[netip.Prefix]time.Duration{}
	for b, end := range next.ends {
		left[b] = end.Left(h.o.Clock)
		next.over[b] = left[b] == 0
	}
	last := h.enforced
	if last.err == nil && maps.Equal(last.ends, next.ends) && maps.Equal(last.over, next.over) &&
		time.Since(last.at) < resyncTime {
		return nil
	}
	if next.err = h.o.Guard(ctx, left); next.err != nil {
		next.err = fmt.Errorf("limit the use of blocks in the kernel: %w", next.err)
	}
	h.enforced = next
	return next.err
}

// limits reads the limits of all blocks and shared addresses from the files.
func (h *hold) limits(ctx context.Context) (guarded, error) {
	g := guarded{
		ends: map[netip.Prefix]local.Deadline{}, over: map[netip.Prefix]bool{}, at: time.Now(),
	}
	names, err := h.o.Local.Pools()
	if err != nil {
		return g, err
	}
	for _, name := range names {
		p, err := h.o.Local.Open(ctx, name, true)
		if err != nil {
			return g, err
		}
		for _, b := range p.State.Blocks {
			switch {
			case b.Phase == local.Lost:
				g.ends[b.Block] = local.Deadline{}
			case p.State.Hold != nil:
				g.ends[b.Block] = *p.State.Hold
			}
		}
		err = errors.Join(h.limitShared(ctx, p, g.ends), p.Close())
		if err != nil {
			return g, err
		}
	}
	return g, nil
}

// limitShared adds the limits of a pool's shared addresses. A fenced node has lost them.
func (h *hold) limitShared(
	ctx context.Context, p *local.Pool, ends map[netip.Prefix]local.Deadline,
) error {
	end := p.State.Hold
	if _, err := h.session.joined(); errors.Is(err, registry.ErrFenced) {
		end = new(local.Deadline)
	}
	if end == nil {
		return nil
	}
	_, shared, err := p.Usage(ctx)
	for _, l := range shared {
		ends[unitOf(p.State.Pool, l.Addr)] = *end
	}
	return err
}

// unitOf returns the part of a pool that an attachment with a shared address gets.
func unitOf(p cluster.Pool, a netip.Addr) netip.Prefix {
	return netip.PrefixFrom(a, cmp.Or(p.PrefixBits, a.BitLen()))
}

// unguarded reports whether the kernel does not enforce hold. Other nodes must then not rely on it.
// The caller has the turn.
func (h *hold) unguarded() bool {
	return h.o.Guard != nil && (h.enforced.err != nil || h.enforced.at.IsZero())
}

// guardNew limits the use of new blocks or shared addresses in the kernel before the plugin uses
// them. A kernel that cannot do so is not an error: the node then does not publish its hold.
func (h *hold) guardNew(ctx context.Context, pool string, blocks []local.Block) error {
	p, ok := h.view.pool(pool)
	end := h.deadline(p.Pool, nil)
	if !ok || end == nil {
		return nil
	}
	more := map[netip.Prefix]local.Deadline{}
	for _, b := range blocks {
		more[b.Block] = *end
	}
	h.problems.report("guard", h.guard(ctx, more))
	return ctx.Err()
}
