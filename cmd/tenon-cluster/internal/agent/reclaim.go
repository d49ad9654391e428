package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
)

const (
	// holdMargin and holdReserve are what the reclaimer waits beyond a node's hold: a tenth for
	// clocks that run at different speeds, and a constant for a call that checked hold just before.
	holdMargin  = 10
	holdReserve = time.Minute
	// expireBatch is the number of cooled-down blocks that one patrol frees in a pool.
	expireBatch = 40
)

// suspicion is what this agent knows of a suspect or fenced node. It is in memory only: after a
// restart, the wait for hold begins again.
type suspicion struct {
	revision int64     // of the node's document
	since    time.Time // when this agent first saw the revision, with the monotonic clock
	act      time.Time // when this agent will act, unless another one is faster
	ask      time.Time // when this agent will ask for evidence
}

// suspect begins to observe the suspect and fenced nodes of a view, and ends it for the others.
func (a *Agent) suspect(nodes []registry.Node) {
	peers := a.view.peers()
	a.mu.Lock()
	defer a.mu.Unlock()
	present := map[string]bool{}
	for _, n := range nodes {
		if alive(n) || n.State == cluster.NodeFenced && len(n.Blocks) == 0 {
			continue
		}
		present[n.Name] = true
		if s := a.watched[n.Name]; s != nil && s.revision == n.Revision {
			continue
		}
		now := time.Now()
		s := &suspicion{revision: n.Revision, since: now, act: now.Add(a.o.Jitter(a.o.TTL)),
			ask: now.Add(a.o.Jitter(a.o.TTL * time.Duration(peers+1)))}
		if wait, ok := holdWait(n); ok && n.State == cluster.NodeSuspect {
			s.act = s.act.Add(wait)
		}
		a.watched[n.Name] = s
	}
	for name := range a.watched {
		if !present[name] {
			delete(a.watched, name)
		}
	}
}

// holdWait returns the time after which a suspect node has certainly stopped using its blocks. ok
// is false if it has not published a hold for each pool of which it has blocks.
func holdWait(n registry.Node) (wait time.Duration, ok bool) {
	longest := time.Duration(0)
	for _, b := range n.Blocks {
		hold := time.Duration(n.Holds[b.Pool])
		if hold <= 0 {
			return 0, false
		}
		longest = max(longest, hold)
	}
	return longest + longest/holdMargin + holdReserve, len(n.Blocks) > 0
}

// reclaim looks for silent nodes, and frees the blocks of fenced ones, until ctx ends.
// Any agent may do it; transactions decide. Nothing is done without contact with the store.
func (a *Agent) reclaim(ctx context.Context) error {
	next := time.Now().Add(a.patrolPause())
	for sleep(ctx, a.o.TTL/6+a.o.Jitter(a.o.TTL/6)) {
		if _, err := a.session.joined(); err != nil {
			continue
		}
		err := a.dispose(ctx)
		if !time.Now().Before(next) {
			err = errors.Join(err, a.patrol(ctx))
			next = time.Now().Add(a.patrolPause())
		}
		a.problems.report("reclaim", err)
	}
	return nil
}

// patrolPause returns the time until this agent looks for dead nodes again. On average, one agent
// of the cluster does so in each lease time.
func (a *Agent) patrolPause() time.Duration {
	nodes := time.Duration(a.view.peers() + 1)
	return a.o.Jitter(2 * a.o.TTL * nodes)
}

// patrol marks nodes without leased key as suspect, and frees blocks that have cooled down.
func (a *Agent) patrol(ctx context.Context) error {
	live, err := a.session.store().Nodes.Lives(ctx)
	if err != nil {
		return fmt.Errorf("read the leases of the nodes: %w", err)
	}
	last, _ := a.view.latest()
	var errs []error
	for _, n := range last.Nodes {
		if n.Name == a.o.Node.Name || !alive(n) || live[n.Name] {
			continue
		}
		if _, err := a.session.store().Nodes.Suspect(ctx, n); err == nil {
			a.o.Log.Warn("the store has not heard from a node; it is suspect now", "node", n.Name)
		} else if !errors.Is(err, registry.ErrConflict) && !errors.Is(err, registry.ErrNotFound) {
			errs = append(errs, fmt.Errorf("suspect node %s: %w", n.Name, err))
		}
	}
	for _, p := range last.Pools {
		if _, err := a.session.store().Blocks.Expire(ctx, p.Name, expireBatch); err != nil {
			errs = append(errs, fmt.Errorf("free cooled-down blocks of pool %s: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}

// dispose fences the suspect nodes that are proven to be off, and reclaims the blocks of fenced
// ones.
func (a *Agent) dispose(ctx context.Context) error {
	var errs []error
	for _, n := range a.due() {
		var err error
		if n.State == cluster.NodeFenced {
			err = a.reclaimAll(ctx, n)
		} else {
			err = a.prove(ctx, n)
		}
		if err != nil && !errors.Is(err, registry.ErrConflict) {
			errs = append(errs, fmt.Errorf("node %s: %w", n.Name, err))
		}
	}
	return errors.Join(errs...)
}

// due returns the suspect and fenced nodes that it is time to look at.
func (a *Agent) due() (nodes []registry.Node) {
	last, _ := a.view.latest()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range last.Nodes {
		s := a.watched[n.Name]
		if s == nil || s.revision != n.Revision || n.Name == a.o.Node.Name {
			continue
		}
		hook := a.o.Evidence != nil && n.State == cluster.NodeSuspect && !time.Now().Before(s.ask)
		if hook || !time.Now().Before(s.act) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// prove fences a suspect node if a program proves that it is off, or if its hold is over.
func (a *Agent) prove(ctx context.Context, n registry.Node) error {
	evidence := a.askEvidence(ctx, n)
	if evidence == "" {
		evidence = a.holdOver(n)
	}
	if evidence == "" {
		return nil
	}
	_, err := a.session.store().Nodes.Fence(ctx, n, evidence, "agent of "+a.o.Node.Name)
	if err == nil {
		a.o.Log.Warn("fenced a node", "node", n.Name, "epoch", n.Epoch, "evidence", evidence)
	}
	return err
}

// askEvidence asks a program for evidence that a suspect node is off. It returns "" if there is
// none, or if it is not this agent's turn: on average, one agent asks in each lease time.
func (a *Agent) askEvidence(ctx context.Context, n registry.Node) string {
	if a.o.Evidence == nil {
		return ""
	}
	peers := a.view.peers()
	a.mu.Lock()
	s := a.watched[n.Name]
	turn := s != nil && !time.Now().Before(s.ask)
	if turn {
		s.ask = time.Now().Add(a.o.TTL + a.o.Jitter(2*a.o.TTL*time.Duration(peers)))
	}
	a.mu.Unlock()
	if !turn {
		return ""
	}
	evidence, err := a.o.Evidence(ctx, n.Name)
	if err != nil {
		a.o.Log.Info("no evidence that a suspect node is off", "node", n.Name, "cause", err)
		return ""
	}
	return evidence
}

// holdOver returns evidence that a suspect node has stopped using its blocks, or "".
func (a *Agent) holdOver(n registry.Node) string {
	wait, ok := holdWait(n)
	if !ok {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.watched[n.Name]
	if s == nil || s.revision != n.Revision || time.Since(s.since) < wait {
		return ""
	}
	return fmt.Sprintf("hold: the node was suspect for %s", time.Since(s.since).Round(time.Second))
}

// reclaimAll frees the blocks of a fenced node, in batches.
func (a *Agent) reclaimAll(ctx context.Context, n registry.Node) error {
	blocks := len(n.Blocks)
	for {
		rest, done, err := a.session.store().Nodes.Reclaim(ctx, n, "fenced")
		if err != nil {
			return fmt.Errorf("reclaim: %w", err)
		}
		if n = rest; done {
			break
		}
	}
	if blocks > 0 {
		a.o.Log.Info("reclaimed the blocks of a fenced node", "node", n.Name, "blocks", blocks)
	}
	return nil
}
