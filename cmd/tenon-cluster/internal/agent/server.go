package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/cluster/agentcall"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// serve answers requests on the socket until ctx ends.
func (a *Agent) serve(ctx context.Context) error {
	if a.o.Listener == nil {
		return nil
	}
	defer context.AfterFunc(ctx, func() { a.o.Listener.Close() })()
	return agentcall.Serve(ctx, a.o.Listener, a.o.Log, a.Handle)
}

// Handle answers a request of the plugin or of a command.
func (a *Agent) Handle(ctx context.Context, q *agentcall.Request) *agentcall.Reply {
	if !q.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, q.Deadline)
		defer cancel()
	}
	switch q.Verb {
	case agentcall.Grow, agentcall.Acquire, agentcall.Draw:
		return a.provide(ctx, q)
	case agentcall.Released:
		poke(a.commons.noted)
		return &agentcall.Reply{}
	case agentcall.Report:
		status := a.status(ctx)
		return &agentcall.Reply{Status: &status}
	}
	return &agentcall.Reply{Error: cni.Errorf(cni.CodeInvalidConfig, "unknown request %q", q.Verb)}
}

// provide gets blocks, a shared address or tokens, after the first attempt to join: it may be about
// to confirm the blocks of this node.
func (a *Agent) provide(ctx context.Context, q *agentcall.Request) *agentcall.Reply {
	var got local.Allocation
	err := a.attempted(ctx)
	switch {
	case err != nil:
	case q.Verb == agentcall.Grow:
		err = a.claims.grow(ctx, q.Pool, q.Have)
	case q.Verb == agentcall.Draw:
		err = a.commons.draw(ctx, q.Pool, q.Namespace)
	default:
		got, err = a.commons.acquire(ctx, q)
		if refused(err) {
			err := cni.Errorf(cni.CodeInvalidConfig, "pool %s: %w", q.Pool, err)
			return &agentcall.Reply{Error: err}
		}
	}
	if err != nil {
		return &agentcall.Reply{Error: a.explain(q.Pool, err)}
	}
	return &agentcall.Reply{Address: got.Addr, Gateway: got.Gateway}
}

// refused reports whether a request for a shared address has failed for a reason that has nothing
// to do with the contact to the store.
func refused(err error) bool {
	return errors.Is(err, registry.ErrRefused) || errors.Is(err, local.ErrNotAllocatable) ||
		errors.Is(err, local.ErrNamespace)
}

// explain returns the protocol's error for a request that failed: code 11 with the pool, the last
// contact and the remaining hold, because each of the causes may pass.
func (a *Agent) explain(pool string, err error) *cni.Error {
	text := err
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, registry.ErrUnknown):
		text = fmt.Errorf("the store did not answer in time: %w", err)
	case errors.Is(err, registry.ErrFull):
		text = fmt.Errorf("all blocks of the pool are in use or cool down: %w", err)
	}
	e := cni.Errorf(cni.CodeTryAgainLater, "pool %s: %w", pool, text)
	return e.WithDetails(a.circumstances(pool))
}

// circumstances describes the contact with the store and the hold of a pool.
func (a *Agent) circumstances(pool string) string {
	contact := a.trust.lastContact()
	if contact == (stamp{}) {
		return "the agent has had no contact with the store since it started"
	}
	text := fmt.Sprintf("last contact with the store %s ago",
		a.o.now().wall.Sub(contact.wall).Round(time.Second))
	if p, ok := a.view.pool(pool); ok {
		if hold := a.hold.observed(p.Pool); hold > 0 {
			left := contact.after(hold).Left(a.o.Clock)
			text += fmt.Sprintf("; blocks may be used for another %s", left.Round(time.Second))
		}
	}
	return text
}
