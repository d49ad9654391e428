package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/ipam"
)

// maxLost bounds the addresses of a block that an answer names.
const maxLost = 4

// answer answers the question of an operator, see [cluster.Question]. Only a node that distrusts the
// store looks for one. The caller has the turn.
func (a *Agent) answer(ctx context.Context) error {
	if !a.trust.distrusts() {
		return nil
	}
	question, err := a.session.store().Questions.Read(ctx)
	if err != nil || question == "" || question == a.answered {
		return err
	}
	if err := a.confirm(ctx); err != nil { // compare with what the store shows now
		return fmt.Errorf("answer the operator: %w", err)
	}
	lost, err := a.losses(ctx)
	if err == nil {
		answer := cluster.Answer{Question: question, Lost: lost}
		err = a.session.store().Questions.Answer(ctx, a.o.Node.Name, answer)
	}
	if err != nil {
		return a.session.lapse(fmt.Errorf("answer the operator: %w", err))
	}
	a.answered = question
	return nil
}

// losses returns the addresses in use that the store does not show as this node's.
func (a *Agent) losses(ctx context.Context) (lost []cluster.Loss, err error) {
	names, err := a.o.Local.Pools()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		p, err := a.o.Local.Open(ctx, name, true)
		if err != nil {
			return nil, err
		}
		found, err := a.lossesOf(ctx, name, p)
		if err = errors.Join(err, p.Close()); err != nil {
			return nil, err
		}
		lost = append(lost, found...)
	}
	return lost, nil
}

func (a *Agent) lossesOf(
	ctx context.Context, name string, p *local.Pool,
) (lost []cluster.Loss, err error) {
	uses, _, err := p.Usage(ctx)
	if err != nil {
		return nil, err
	}
	leases, err := p.Leases(ctx)
	if err != nil {
		return nil, err
	}
	for _, u := range uses {
		if u.Phase != local.Lost || u.Used == 0 {
			continue
		}
		loss := cluster.Loss{Pool: name, Block: u.Block.Block, Used: u.Used}
		for _, l := range leases {
			if u.Block.Block.Contains(l.Addr) && len(loss.Addrs) < maxLost {
				loss.Addrs = append(loss.Addrs, l.Addr)
			}
		}
		lost = append(lost, loss)
	}
	shared, err := a.lostShared(ctx, name, p, nil)
	for _, l := range shared {
		block := netip.PrefixFrom(l.Addr, l.Addr.BitLen())
		lost = append(lost, cluster.Loss{Pool: name, Block: block, Used: 1, Addrs: []netip.Addr{l.Addr}})
	}
	return lost, err
}

// lostShared returns the reservations of shared addresses in a pool that the store does not show as
// held by their containers. It reads only holders that held lacks.
func (a *Agent) lostShared(
	ctx context.Context, name string, p *local.Pool, held []cluster.Holder,
) (lost []ipam.Lease, err error) {
	_, shared, err := p.Usage(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range shared {
		own := func(h cluster.Holder) bool {
			return h.Pool == name && h.Addr == l.Addr && h.Node == a.o.Node.Name &&
				h.Container == l.Owner.Container
		}
		if slices.ContainsFunc(held, own) {
			continue
		}
		h, err := a.session.store().Shared.Holder(ctx, name, l.Addr)
		if err != nil && !errors.Is(err, registry.ErrNotFound) {
			return nil, err
		}
		if err != nil || !own(h) {
			lost = append(lost, l)
		}
	}
	return lost, nil
}
