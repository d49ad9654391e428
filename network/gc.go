package network

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenon-cni/tenon/cni"
)

// GC takes away what belongs to no attachment of valid, the complete list of those of this network that
// are in use. A nil list is refused with [cni.CodeInvalidConfig]: it would mean that none is; an empty
// one says so.
//
// First the recorded attachments of the network that are not in the list are deleted as [Client.Del]
// does. Then, from 1.1.0 on, the plugins get GC in their order. GC goes on past errors and joins them;
// records that cannot be read are among them, and given up once all plugins have collected. An attachment
// that comes to be while GC waits for the network counts as valid. A network with disableGC is left
// alone, which is success.
func (c *Client) GC(ctx context.Context, n *Network, valid []cni.ValidAttachment) error {
	if err := checkNetwork(n); err != nil {
		return err
	}
	if valid == nil {
		return cni.Errorf(cni.CodeInvalidConfig, "network %s: GC without the list of valid attachments", n.Name).
			WithDetails("an empty list says that none is in use")
	}
	if n.DisableGC {
		return nil
	}
	before, staleErr := c.attached(n.Name)
	unlock, err := c.lockNetwork(ctx, n.Name)
	if err != nil {
		return fmt.Errorf("network %s: %w", n.Name, err)
	}
	defer unlock()
	g := collection{Client: c, network: n, before: before, valid: valid}
	if staleErr == nil {
		staleErr = g.deleteStale(ctx)
	}
	if err := errors.Join(staleErr, g.collect(ctx)); err != nil {
		return fmt.Errorf("network %s: %w", n.Name, err)
	}
	return nil
}

// attached returns which attachments of a network are recorded, and since when.
func (c *Client) attached(network string) (map[cni.Owner]time.Time, error) {
	found, err := c.store().scan(cni.NetworkOwner(network))
	since := map[cni.Owner]time.Time{}
	for _, f := range found {
		if f.err == nil && f.record.State == Attached {
			since[f.owner] = f.record.Created
		}
	}
	return since, err
}

// collection is one GC of a locked network.
type collection struct {
	*Client
	network    *Network
	before     map[cni.Owner]time.Time // what was attached when the caller made its list
	valid      []cni.ValidAttachment
	unreadable []cni.Owner
}

// deleteStale runs DEL for what is recorded and not valid.
func (g *collection) deleteStale(ctx context.Context) error {
	found, err := g.store().scan(cni.NetworkOwner(g.network.Name))
	if err != nil {
		return err
	}
	valid := map[cni.Owner]bool{}
	for _, v := range g.valid {
		valid[cni.Attachment{Network: g.network.Name, Container: v.ContainerID, IfName: v.IfName}.Owner()] = true
	}
	errs := []error{g.store().sweep(g.network.Name)}
	for _, f := range found {
		switch r := f.record; {
		case valid[f.owner]:
		case f.err != nil:
			errs = append(errs, f.err)
			g.unreadable = append(g.unreadable, f.owner)
		case r.State == Attached && !r.Created.Equal(g.before[f.owner]):
			g.valid = append(g.valid, cni.ValidAttachment{ContainerID: r.Attachment.Container, IfName: r.Attachment.IfName})
		default:
			if err := g.deleteOne(ctx, r); err != nil {
				errs = append(errs, fmt.Errorf("%v: %w", r.Attachment, err))
			}
		}
	}
	return errors.Join(errs...)
}

func (g *collection) deleteOne(ctx context.Context, r *Record) error {
	unlock, err := g.lockContainer(ctx, r.Attachment.Container)
	if err != nil {
		return err
	}
	defer unlock()
	return g.remove(ctx, r)
}

// collect runs GC. Once all plugins have succeeded nothing is left of what unreadable records stood for.
func (g *collection) collect(ctx context.Context) error {
	n, err := g.negotiate(ctx, g.network)
	if err != nil || !n.Version.Has(cni.GC) {
		return err
	}
	l := n.List
	env := g.env(cni.GC, cni.Attachment{}, Parameters{})
	if err := g.runAll(ctx, l, forward(l), env, cni.RequestData{Valid: g.valid}); err != nil {
		return err
	}
	var errs []error
	for _, o := range g.unreadable {
		errs = append(errs, g.store().removeOwner(o))
	}
	return errors.Join(errs...)
}
