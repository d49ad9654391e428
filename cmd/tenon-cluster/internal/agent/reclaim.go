package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// reclaimer notices the death of other nodes, and frees their blocks.
type reclaimer struct {
	o        *Options
	session  *session
	view     *view
	problems *problems

	mu      sync.Mutex            // guards the following field
	watched map[string]*suspicion // suspect nodes, by name
}

// suspicion is what this agent knows of a suspect or fenced node. It is in memory only: after a
// restart, the wait for hold begins again.
type suspicion struct {
	revision int64     // of the node's document
	since    time.Time // when this agent first saw the revision, with the monotonic clock
	act      time.Time // when this agent will act, unless another one is faster
	ask      time.Time // when this agent will ask for evidence
}

// observe begins to observe the suspect and fenced nodes of a view, and ends it for the others.
func (r *reclaimer) observe(nodes []registry.Node) {
	peers := r.view.peers()
	r.mu.Lock()
	defer r.mu.Unlock()
	present := map[string]bool{}
	for _, n := range nodes {
		if alive(n) || n.State == cluster.NodeFenced && len(n.Blocks) == 0 {
			continue
		}
		present[n.Name] = true
		if s := r.watched[n.Name]; s != nil && s.revision == n.Revision {
			continue
		}
		now := time.Now()
		s := &suspicion{revision: n.Revision, since: now, act: now.Add(r.o.Jitter(r.o.TTL)),
			ask: now.Add(r.o.Jitter(r.o.TTL * time.Duration(peers+1)))}
		if wait, ok := holdWait(n); ok && n.State == cluster.NodeSuspect {
			s.act = s.act.Add(wait)
		}
		r.watched[n.Name] = s
	}
	for name := range r.watched {
		if !present[name] {
			delete(r.watched, name)
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

// run looks for silent nodes, and frees the blocks of fenced ones, until ctx ends.
// Any agent may do it; transactions decide. Nothing is done without contact with the store.
func (r *reclaimer) run(ctx context.Context) error {
	next := time.Now().Add(r.patrolPause())
	for sleep(ctx, r.o.TTL/6+r.o.Jitter(r.o.TTL/6)) {
		if _, err := r.session.joined(); err != nil {
			continue
		}
		err := r.dispose(ctx)
		if !time.Now().Before(next) {
			err = errors.Join(err, r.patrol(ctx))
			next = time.Now().Add(r.patrolPause())
		}
		r.problems.report("reclaim", err)
	}
	return nil
}

// patrolPause returns the time until this agent looks for dead nodes again. On average, one agent
// of the cluster does so in each lease time.
func (r *reclaimer) patrolPause() time.Duration {
	nodes := time.Duration(r.view.peers() + 1)
	return r.o.Jitter(2 * r.o.TTL * nodes)
}

// patrol marks nodes without leased key as suspect, and frees blocks that have cooled down.
func (r *reclaimer) patrol(ctx context.Context) error {
	live, err := r.session.store().Nodes.Lives(ctx)
	if err != nil {
		return fmt.Errorf("read the leases of the nodes: %w", err)
	}
	last, _ := r.view.latest()
	var errs []error
	for _, n := range last.Nodes {
		if n.Name == r.o.Node.Name || !alive(n) || live[n.Name] {
			continue
		}
		if _, err := r.session.store().Nodes.Suspect(ctx, n); err == nil {
			r.o.Log.Warn("the store has not heard from a node; it is suspect now", "node", n.Name)
		} else if !errors.Is(err, registry.ErrConflict) && !errors.Is(err, registry.ErrNotFound) {
			errs = append(errs, fmt.Errorf("suspect node %s: %w", n.Name, err))
		}
	}
	for _, p := range last.Pools {
		if _, err := r.session.store().Blocks.Expire(ctx, p.Name, expireBatch); err != nil {
			errs = append(errs, fmt.Errorf("free cooled-down blocks of pool %s: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}

// dispose fences the suspect nodes that are proven to be off, and reclaims the blocks of fenced
// ones.
func (r *reclaimer) dispose(ctx context.Context) error {
	var errs []error
	for _, n := range r.due() {
		var err error
		if n.State == cluster.NodeFenced {
			err = r.reclaimAll(ctx, n)
		} else {
			err = r.prove(ctx, n)
		}
		if err != nil && !errors.Is(err, registry.ErrConflict) {
			errs = append(errs, fmt.Errorf("node %s: %w", n.Name, err))
		}
	}
	return errors.Join(errs...)
}

// due returns the suspect and fenced nodes that it is time to look at.
func (r *reclaimer) due() (nodes []registry.Node) {
	last, _ := r.view.latest()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range last.Nodes {
		s := r.watched[n.Name]
		if s == nil || s.revision != n.Revision || n.Name == r.o.Node.Name {
			continue
		}
		hook := r.o.Evidence != nil && n.State == cluster.NodeSuspect && !time.Now().Before(s.ask)
		if hook || !time.Now().Before(s.act) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// prove fences a suspect node if a program proves that it is off, or if its hold is over.
func (r *reclaimer) prove(ctx context.Context, n registry.Node) error {
	evidence := r.askEvidence(ctx, n)
	if evidence == "" {
		evidence = r.holdOver(n)
	}
	if evidence == "" {
		return nil
	}
	_, err := r.session.store().Nodes.Fence(ctx, n, evidence, "agent of "+r.o.Node.Name)
	if err == nil {
		r.o.Log.Warn("fenced a node", "node", n.Name, "epoch", n.Epoch, "evidence", evidence)
	}
	return err
}

// askEvidence asks a program for evidence that a suspect node is off. It returns "" if there is
// none, or if it is not this agent's turn: on average, one agent asks in each lease time.
func (r *reclaimer) askEvidence(ctx context.Context, n registry.Node) string {
	if r.o.Evidence == nil {
		return ""
	}
	peers := r.view.peers()
	r.mu.Lock()
	s := r.watched[n.Name]
	turn := s != nil && !time.Now().Before(s.ask)
	if turn {
		s.ask = time.Now().Add(r.o.TTL + r.o.Jitter(2*r.o.TTL*time.Duration(peers)))
	}
	r.mu.Unlock()
	if !turn {
		return ""
	}
	evidence, err := r.o.Evidence(ctx, n.Name)
	if err != nil {
		r.o.Log.Info("no evidence that a suspect node is off", "node", n.Name, "cause", err)
		return ""
	}
	return evidence
}

// holdOver returns evidence that a suspect node has stopped using its blocks, or "".
func (r *reclaimer) holdOver(n registry.Node) string {
	wait, ok := holdWait(n)
	if !ok {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.watched[n.Name]
	if s == nil || s.revision != n.Revision || time.Since(s.since) < wait {
		return ""
	}
	return fmt.Sprintf("hold: the node was suspect for %s", time.Since(s.since).Round(time.Second))
}

// reclaimAll frees the blocks of a fenced node, in batches.
func (r *reclaimer) reclaimAll(ctx context.Context, n registry.Node) error {
	blocks := len(n.Blocks)
	for {
		rest, done, err := r.session.store().Nodes.Reclaim(ctx, n, "fenced")
		if err != nil {
			return fmt.Errorf("reclaim: %w", err)
		}
		if n = rest; done {
			break
		}
	}
	if blocks > 0 {
		r.o.Log.Info("reclaimed the blocks of a fenced node", "node", n.Name, "blocks", blocks)
	}
	return nil
}
