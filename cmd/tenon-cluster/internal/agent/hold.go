package agent

import (
	"context"
	"maps"
	"time"

	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// holdSteps is the number of parts of a hold: the deadline on disk is written again when it has
// fallen behind by one part. A deadline that is too early is safe.
const holdSteps = 100

// hold is the limit on the time for which this node uses its blocks without contact. Its plugin and
// its kernel enforce it, so that other nodes may rely on it. The caller of publish, guard and
// guardNew has the turn.
type hold struct {
	o        *Options
	session  *session
	trust    *trust
	view     *view
	problems *problems
	wake     chan<- struct{} // ends the wait for the next renewal

	enforced guarded // what the kernel enforces; the holder of the turn uses it
}

// deadline returns the deadline of a pool after the last contact: the present one if a new one would
// gain little, nil if the pool has no hold.
func (h *hold) deadline(p cluster.Pool, have *local.Deadline) *local.Deadline {
	hold := h.observed(p)
	if hold <= 0 {
		return nil
	}
	next := h.trust.lastContact().after(hold)
	if have != nil {
		gain := min(next.Boot-have.Boot, next.Wall.Sub(have.Wall))
		if gain >= 0 && gain < hold/holdSteps {
			return have
		}
	}
	return &next
}

// observed returns the hold that the node observes. Other nodes fence this one after the hold that
// it has published, so that a node observes a shorter hold before it publishes it, and publishes a
// longer one, or none, before it observes that.
func (h *hold) observed(p cluster.Pool) time.Duration {
	hold := time.Duration(p.Hold)
	s, err := h.session.joined()
	if err != nil {
		return hold
	}
	published := time.Duration(s.Node.Holds[p.Name])
	switch {
	case published == 0:
		return hold
	case hold == 0:
		return published
	}
	return min(hold, published)
}

// publish writes the holds of the pools into the node's document, after the files observe the
// shorter ones. The caller has the turn.
func (h *hold) publish(ctx context.Context) error {
	s, err := h.session.joined()
	if err != nil {
		return err
	}
	holds := map[string]cluster.Duration{}
	last, _ := h.view.latest()
	for _, p := range last.Pools {
		if p.Hold > 0 && h.view.uses(p) && !h.unguarded() {
			holds[p.Name] = p.Hold
		}
	}
	if maps.Equal(holds, s.Node.Holds) {
		return nil
	}
	if err := h.session.update(ctx, func(n *cluster.Node) { n.Holds = holds }); err != nil {
		return err
	}
	poke(h.wake) // observe the longer ones
	return nil
}
