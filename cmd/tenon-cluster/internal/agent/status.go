package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/agentcall"
)

// status describes the agent and the use of the node's pools.
func (a *Agent) status(ctx context.Context) agentcall.Status {
	n := a.identity.node()
	s := agentcall.Status{
		Cluster: a.o.Cluster,
		Node:    a.o.Node.Name,
		State:   "disconnected",
		Epoch:   n.Epoch,
		Mode:    a.o.Node.Mode,
		MTU:     n.MTU,
		Peers:   a.view.peers(),
		Contact: a.trust.lastContact().wall,
	}
	if wait := a.trust.settling(); wait > 0 {
		s.Settled = a.o.now().wall.Add(wait)
	}
	switch now, err := a.session.joined(); {
	case errors.Is(err, registry.ErrFenced):
		s.State = string(cluster.NodeFenced)
	case err == nil:
		s.State = string(now.Node.State)
	}
	s.Problems = a.problems.list()
	names, err := a.o.Local.Pools()
	if err != nil {
		s.Problems = append(s.Problems, err.Error())
	}
	for _, name := range names {
		p, err := a.poolStatus(ctx, name)
		if err != nil {
			s.Problems = append(s.Problems, fmt.Sprintf("pool %s: %v", name, err))
			continue
		}
		s.Pools = append(s.Pools, p)
	}
	return s
}

// poolStatus describes a pool from the node's files.
func (a *Agent) poolStatus(ctx context.Context, name string) (s agentcall.PoolStatus, err error) {
	p, err := a.o.Local.Open(ctx, name, true)
	if err != nil {
		return s, err
	}
	defer p.Close()
	use, shared, err := p.Usage(ctx)
	if err != nil {
		return s, err
	}
	s.Pool, s.Blocks = name, len(use)
	for _, u := range use {
		s.Capacity += u.Capacity
		s.Used += u.Used
	}
	s.Used += uint64(len(shared))
	if p.State.Hold != nil {
		s.Hold = p.State.Hold.Wall
	}
	s.Exhausted = a.exhausted(ctx, name)
	return s, nil
}

// exhausted returns why the node gets no further block of a pool at present, or "". It does not try
// to claim one, so a block that cools down counts as free.
func (a *Agent) exhausted(ctx context.Context, name string) string {
	_, err := a.claims.mayClaim(ctx, name)
	// The wait for other nodes passes soon, unless the store does not answer.
	if err != nil && !errors.Is(err, errSettling) {
		return err.Error()
	}
	if problem := a.problems.of("store"); problem != "" {
		return problem
	}
	if free, known := a.view.unowned(name); known && free == 0 {
		return "the nodes own all blocks of the pool"
	}
	return ""
}
