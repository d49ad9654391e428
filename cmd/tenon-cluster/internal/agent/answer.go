package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/ipam"
)

// maxLost bounds the addresses of a block that an answer names.
const maxLost = 4

// answer answers the question of an operator, see [cluster.Question]. Only a node that distrusts the
// store looks for one. The caller has the turn.
func (m *membership) answer(ctx context.Context) error {
	if !m.trust.distrusts() {
		return nil
	}
	question, err := m.session.store().Questions.Read(ctx)
	if err != nil || question == "" || question == m.answered {
		return err
	}
	if err := m.confirm(ctx); err != nil { // compare with what the store shows now
		return fmt.Errorf("answer the operator: %w", err)
	}
	lost, err := m.losses(ctx)
	if err == nil {
		answer := cluster.Answer{Question: question, Lost: lost}
		err = m.session.store().Questions.Answer(ctx, m.o.Node.Name, answer)
	}
	if err != nil {
		return m.session.lapse(fmt.Errorf("answer the operator: %w", err))
	}
	m.answered = question
	return nil
}

// losses returns the addresses in use that the store does not show as this node's.
func (m *membership) losses(ctx context.Context) (lost []cluster.Loss, err error) {
	names, err := m.o.Local.Pools()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		blocks, shared, err := m.lostBlocks(ctx, name)
		if err != nil {
			return nil, err
		}
		lost = append(lost, blocks...)
		shared, err = m.commons.lostShared(ctx, name, shared, nil)
		if err != nil {
			return nil, err
		}
		for _, l := range shared {
			lost = append(lost, cluster.Loss{Pool: name, Used: 1, Addrs: []netip.Addr{l.Addr},
				Block: netip.PrefixFrom(l.Addr, l.Addr.BitLen())})
		}
	}
	return lost, nil
}

// lostBlocks reads the lost blocks of a pool that containers use, and the reservations of shared
// addresses.
func (m *membership) lostBlocks(
	ctx context.Context, name string,
) (lost []cluster.Loss, shared []ipam.Lease, err error) {
	p, err := m.o.Local.Open(ctx, name, true)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	uses, shared, err := p.Usage(ctx)
	if err != nil {
		return nil, nil, err
	}
	leases, err := p.Leases(ctx)
	if err != nil {
		return nil, nil, err
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
	return lost, shared, nil
}
