package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/agentcall"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// Config is the configuration of an interface plugin with the ipam section of cluster.
type Config struct {
	plugin.Common
	// IPAM is the section that names this plugin.
	IPAM Settings `json:"ipam"`
}

// Settings is the ipam section.
type Settings struct {
	// Pool is the name of the only pool. It excludes Pools.
	Pool string `json:"pool"`
	// Pools are the names of the pools. ADD allocates an address of each pool, in this order.
	Pools []string `json:"pools"`
	// Sticky gives a pod the same addresses again after it was deleted and created under the same
	// name, on any node. It requires K8S_POD_NAMESPACE and K8S_POD_NAME in CNI_ARGS.
	Sticky bool `json:"sticky"`
	// Routes are copied into the result unchanged.
	Routes []cni.Route `json:"routes"`
	// Dir is the directory with the state of the node, which the agent writes.
	Dir string `json:"dir" default:"/var/lib/cni/cluster"`
	// Socket is the socket of the agent.
	Socket string `json:"socket" default:"/run/tenon/cluster.sock"`
}

// pools returns the names of the pools.
func (s *Settings) pools() []string {
	if s.Pool != "" {
		return []string{s.Pool}
	}
	return s.Pools
}

// Plugin is the definition of cluster.
var Plugin = plugin.Define(plugin.Info{
	Name:         "cluster",
	About:        "allocates addresses that are unique in a cluster, from blocks of this node",
	Role:         plugin.RoleIPAM,
	Capabilities: []string{"ips"},
	Args: []string{"IP", "K8S_POD_NAMESPACE", "K8S_POD_NAME", "K8S_POD_UID",
		"K8S_POD_INFRA_CONTAINER_ID"},
	Doc: doc,
}, func() plugin.Plugin { return new(Config) })

// Validate refuses missing, invalid and repeated names of pools, and invalid requested addresses.
func (c *Config) Validate(call *plugin.Call) error {
	pools := c.IPAM.pools()
	switch {
	case c.IPAM.Pool != "" && len(c.IPAM.Pools) > 0:
		return cni.Errorf(cni.CodeInvalidConfig, "ipam: pool and pools exclude each other")
	case len(pools) == 0:
		return cni.Errorf(cni.CodeInvalidConfig, "ipam: no pool").
			WithDetails("add \"pool\" with the name of a pool; list them with `tenon cluster pools`")
	}
	for i, name := range pools {
		if err := cluster.ValidateName(name); err != nil {
			return cni.Errorf(cni.CodeInvalidConfig, "ipam: pool: %w", err)
		}
		if slices.Contains(pools[:i], name) {
			return cni.Errorf(cni.CodeInvalidConfig, "ipam: pools contains %q twice", name)
		}
	}
	for _, text := range call.Asked.IPs {
		if _, err := ipam.ParseRequested(text); err != nil {
			return cni.Errorf(cni.CodeInvalidConfig, "%w", err)
		}
	}
	return nil
}

// Add allocates an address of each pool. If one pool has none, it releases the others.
func (c *Config) Add(ctx context.Context, call *plugin.Call) (*cni.Result, error) {
	a, err := c.newAddition(ctx, call)
	if err != nil {
		return nil, err
	}
	r := &cni.Result{Routes: c.IPAM.Routes}
	for _, pool := range c.IPAM.pools() {
		got, poolErr := a.allocate(ctx, pool)
		if err = poolErr; err != nil {
			break
		}
		r.IPs = append(r.IPs, cni.IP{Address: got.Addr, Gateway: got.Gateway})
	}
	if err == nil && call.Version < cni.V030 && !ipam.DistinctFamilies(r.IPs) {
		err = cni.Errorf(cni.CodeInvalidConfig,
			"CNI version %v does not support more than 1 address per family", call.Version).
			WithDetails("use cniVersion 0.3.0 or newer")
	}
	if err == nil {
		err = a.finish(ctx)
	}
	if err != nil {
		return nil, errors.Join(coded(err), a.tx.Rollback())
	}
	return r, nil
}

// Del frees the addresses of the attachment in all pools of the node. It needs neither the
// configured pools nor the agent.
func (c *Config) Del(ctx context.Context, call *plugin.Call) error {
	return c.eachPool(ctx, call, func(p *local.Pool) (noted bool, err error) {
		return p.Release(ctx, owner(call))
	})
}

// GC frees the addresses of attachments of the network that are no longer in use.
func (c *Config) GC(ctx context.Context, call *plugin.Call) error {
	var keep []ipam.Owner
	for _, v := range call.Valid {
		keep = append(keep, ipam.Owner{Container: v.ContainerID, IfName: v.IfName})
	}
	return c.eachPool(ctx, call, func(p *local.Pool) (noted bool, err error) {
		freed, noted, err := p.Collect(ctx, call.Name, keep)
		for _, l := range freed {
			call.Log.Debug("freed", "lease", l.String())
		}
		return noted, err
	})
}

// eachPool calls fn for all pools of the node, and notifies the agent afterwards if fn has written
// notes. It continues past errors.
func (c *Config) eachPool(
	ctx context.Context, call *plugin.Call, fn func(*local.Pool) (noted bool, err error),
) error {
	store := c.existing(call, session.Begin(ctx, call).Do)
	names, err := store.Pools()
	errs := []error{err}
	notes := false
	for _, name := range names {
		noted, err := withPool(ctx, store, name, fn)
		errs = append(errs, err)
		notes = notes || noted
	}
	if notes {
		c.notify(ctx, call)
	}
	return coded(errors.Join(errs...))
}

// withPool calls fn with a locked pool.
func withPool(
	ctx context.Context, store *local.Store, name string,
	fn func(*local.Pool) (noted bool, err error),
) (noted bool, err error) {
	p, err := store.Open(ctx, name, false)
	if err != nil {
		return false, err
	}
	defer p.Abandon()
	noted, err = fn(p)
	return noted, errors.Join(err, p.Close())
}

// notifyTime limits the wait for the agent in notify. The agent reads notes in any case, at
// its next start or resync.
const notifyTime = 2 * time.Second

// notify sends the agent a request to read its notes.
func (c *Config) notify(ctx context.Context, call *plugin.Call) {
	ctx, cancel := context.WithTimeout(ctx, notifyTime)
	defer cancel()
	_, err := agentcall.Call(ctx, c.socket(), agentcall.Request{Verb: agentcall.Released})
	if err != nil {
		call.Log.Debug("the agent will release shared addresses later", "err", err)
	}
}

// Check requires that the attachment holds an address of each pool, and that the node has not lost
// it.
func (c *Config) Check(ctx context.Context, call *plugin.Call) error {
	store := c.existing(call, nil)
	for _, name := range c.IPAM.pools() {
		_, err := withPool(ctx, store, name, func(p *local.Pool) (bool, error) {
			return false, check(ctx, p, owner(call))
		})
		if err != nil {
			return coded(err)
		}
	}
	return nil
}

// check requires that an attachment holds an address of a pool, and that the node has not lost it.
func check(ctx context.Context, p *local.Pool, o ipam.Owner) error {
	held, err := p.Held(ctx, o)
	if err != nil {
		return err
	}
	if len(held) == 0 {
		return cni.Errorf(cni.CodeInternal,
			"cluster: Failed to find address added by container %s in pool %s", o.Container, p.Name())
	}
	for _, l := range held {
		if b := p.State.BlockOf(l.Addr); b != nil && b.Phase == local.Lost {
			return cni.Errorf(cni.CodeInternal,
				"address %s of pool %s is in block %s, which this node has lost", l.Addr, p.Name(),
				b.Block).WithDetails("the node was fenced; replace the container")
		}
	}
	return nil
}

// existing returns the store for a call that creates no directory.
func (c *Config) existing(call *plugin.Call, change ipam.Change) *local.Store {
	return local.New(local.Options{Dir: c.dir(), Change: change, Log: call.Log, Existing: true})
}

func (c *Config) dir() string { return cmp.Or(c.IPAM.Dir, local.DefaultDir) }

func (c *Config) socket() string { return cmp.Or(c.IPAM.Socket, local.DefaultSocket) }

func owner(c *plugin.Call) ipam.Owner {
	return ipam.Owner{Container: c.ContainerID, IfName: c.IfName, Network: c.Name}
}

// coded returns err with the error code for errors of packages local and ipam.
func coded(err error) error {
	var (
		known     *cni.Error
		taken     *ipam.InUseError
		duplicate *ipam.DuplicateError
		leftover  *ipam.LeftoverError
	)
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.As(err, &taken):
		return cni.Errorf(cni.CodeTryAgainLater, "%w", err).WithDetails(taken.Details())
	case errors.As(err, &duplicate):
		return cni.Errorf(cni.CodeInvalidConfig, "%w", err).WithDetails(duplicate.Details())
	case errors.As(err, &leftover), errors.Is(err, local.ErrNotAllocatable),
		errors.Is(err, local.ErrNamespace):
		return cni.Errorf(cni.CodeInvalidConfig, "%w", err)
	case slices.ContainsFunc(transient, func(e error) bool { return errors.Is(err, e) }):
		return cni.Errorf(cni.CodeTryAgainLater, "%w", err)
	}
	return cni.Errorf(cni.CodeIOFailure, "%w", fmt.Errorf("dir: %w", err))
}

// transient are the errors that end without a change of the configuration.
var transient = []error{local.ErrNoPool, local.ErrFull, local.ErrUnconfirmed, local.ErrCopied,
	local.ErrRival, local.ErrHold, local.ErrDraining, local.ErrLost, local.ErrQuota,
	local.ErrForeignAddress, local.ErrDamaged, agentcall.ErrUnreachable}
