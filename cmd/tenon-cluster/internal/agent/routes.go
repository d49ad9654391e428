package agent

import (
	"context"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// Router programs the routes to the blocks of other nodes. It compares the view with the kernel and
// changes only what differs.
type Router interface {
	// Sync makes the kernel agree with a view. It returns the MTU for container interfaces, 0 if it
	// is not known.
	Sync(ctx context.Context, node string, v registry.View) (mtu int, err error)
}

// route programs the routes after changes of the view, and at least every resyncTime. Routes stay
// when ctx ends.
func (a *Agent) route(ctx context.Context) error {
	if a.o.Router == nil {
		return nil
	}
	for ctx.Err() == nil {
		t := time.NewTimer(resyncTime + a.o.Jitter(resyncTime/10))
		select {
		case <-a.rout:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		if !sleep(ctx, batchTime) {
			break
		}
		select {
		case <-a.rout: // the view below includes it
		default:
		}
		a.report("routes", a.program(ctx))
	}
	return nil
}

// program makes the kernel agree with the last view.
func (a *Agent) program(ctx context.Context) error {
	a.mu.Lock()
	v, ok := a.view, a.viewed
	a.mu.Unlock()
	if !ok { // without a list of the nodes, routes stay as they are
		return nil
	}
	mtu, err := a.o.Router.Sync(ctx, a.o.Node.Name, v)
	if err != nil {
		return err
	}
	end, err := a.exclusive(ctx)
	if err != nil {
		return nil
	}
	defer end()
	return a.remember(func(n *local.Node) { n.MTU = mtu })
}
