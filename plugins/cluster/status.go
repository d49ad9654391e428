package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/cluster/agentcall"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/ipam/filestore"
	"github.com/tenon-cni/tenon/plugin"
)

// Status succeeds while ADD can. The error has code 51 if the hold of a pool has ended, because the
// kernel then drops the traffic of existing containers, and code 50 if there is no address for
// another reason. Status waits neither for an ADD that hangs nor for the store.
func (c *Config) Status(ctx context.Context, call *plugin.Call) error {
	store := c.existing(call, nil)
	for _, pool := range c.IPAM.pools() {
		err := c.status(ctx, store, pool)
		switch {
		case errors.Is(err, local.ErrHold):
			return cni.Errorf(cni.CodeLimitedConnectivity, "%w", err).
				WithDetails(c.facts(ctx, pool) + "; " + hint(err))
		case err != nil:
			return cni.Errorf(cni.CodeNotAvailable, "%w", err).
				WithDetails(c.facts(ctx, pool) + "; " + hint(err))
		}
	}
	return nil
}

// reportTime limits the wait for the status of the agent, which reads no more than local files.
const reportTime = 5 * time.Second

// status returns why a pool has no address for an ADD.
func (c *Config) status(ctx context.Context, store *local.Store, pool string) (err error) {
	dir := filepath.Join(c.dir(), "addresses")
	if err := filestore.Writable(dir, pool); err != nil {
		return fmt.Errorf("dir: %w", err)
	}
	p, err := store.Open(ctx, pool, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	err = c.free(ctx, store, p)
	if remedy(err) == "" || ctx.Err() != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reportTime)
	defer cancel()
	reply, askErr := agentcall.Call(ctx, c.socket(), agentcall.Request{Verb: agentcall.Report})
	switch {
	case askErr != nil:
		return fmt.Errorf("%w; the agent cannot help: %w", err, askErr)
	case reply.Status == nil || reply.Status.Contact.IsZero():
		return fmt.Errorf("%w; the agent has no contact with the store", err)
	}
	for _, s := range reply.Status.Pools {
		if s.Pool == pool && s.Exhausted != "" && !c.IPAM.Sticky {
			return fmt.Errorf("%w: %s", err, s.Exhausted)
		}
	}
	return nil // the agent can provide an address
}

// free returns why the blocks of the node have no free address, or nil.
func (c *Config) free(ctx context.Context, store *local.Store, p *local.Pool) error {
	if err := p.Err(); err != nil {
		return err
	}
	if err := store.Usable(&p.State); err != nil {
		return err
	}
	if c.IPAM.Sticky { // the agent provides it
		return fmt.Errorf("pool %s: sticky: %w", p.Name(), local.ErrForeignAddress)
	}
	blocks, _, err := p.Usage(ctx)
	if err != nil {
		return err
	}
	var used, capacity uint64
	for _, u := range blocks {
		if u.Phase == local.Owned {
			used, capacity = used+u.Used, capacity+u.Capacity
		}
	}
	if used >= capacity {
		return &local.FullError{Pool: p.Name(), Used: used, Capacity: capacity}
	}
	return nil
}
