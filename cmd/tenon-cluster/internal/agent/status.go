package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/agentcall"
)

// report records the outcome of a topic, and logs it if it has changed. A nil error ends the
// problem.
func (a *Agent) report(topic string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	a.mu.Lock()
	before := a.problems[topic]
	if a.problems[topic] = text; text == "" {
		delete(a.problems, topic)
	}
	a.mu.Unlock()
	switch {
	case text == before:
	case text == "":
		a.log.Info("recovered", "topic", topic)
	default:
		a.log.Warn("problem", "topic", topic, "error", err)
	}
}

// problem records a problem that ends only when its topic is deleted. The caller holds a.mu.
func (a *Agent) problem(topic, text string) {
	if a.problems[topic] != text {
		a.problems[topic] = text
		a.log.Error(text)
	}
}

// status describes the agent and the use of the node's pools.
func (a *Agent) status(ctx context.Context) agentcall.Status {
	a.mu.Lock()
	s := agentcall.Status{
		Cluster: a.o.Cluster,
		Node:    a.o.Node.Name,
		State:   "disconnected",
		Epoch:   a.identity.Epoch,
		Mode:    a.o.Node.Mode,
		MTU:     a.identity.MTU,
		Peers:   a.peers,
		Contact: a.contact.wall,
	}
	if wait := a.settling(); wait > 0 {
		s.Settled = a.now().wall.Add(wait)
	}
	switch {
	case a.fenced:
		s.State = string(cluster.NodeFenced)
	case a.session != nil:
		s.State = string(a.session.Node.State)
	}
	for _, topic := range slices.Sorted(maps.Keys(a.problems)) {
		s.Problems = append(s.Problems, topic+": "+a.problems[topic])
	}
	a.mu.Unlock()
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
	_, err := a.mayClaim(ctx, name)
	// The wait for other nodes passes soon, unless the store does not answer.
	if err != nil && !errors.Is(err, errSettling) {
		return err.Error()
	}
	a.mu.Lock()
	problem := a.problems["store"]
	a.mu.Unlock()
	if problem != "" {
		return problem
	}
	if free, known := a.unowned(name); known && free == 0 {
		return "the nodes own all blocks of the pool"
	}
	return ""
}
