package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/cluster/agentcall"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/internal/statefile"
	"github.com/tenon-cni/tenon/plugin"
)

const (
	// agentTime limits a request to the agent, unless the context ends earlier.
	agentTime = 20 * time.Second
	// maxAsks is the number of requests to the agent about one pool. Other calls may take the
	// addresses of a new block first.
	maxAsks = 3
	// undoTime limits the release of an address in a rollback, even if the context has ended.
	undoTime = 10 * time.Second
)

// addition is one ADD.
type addition struct {
	*Config
	call    *plugin.Call
	tx      *kernel.Tx
	boot    string // ID of the running boot
	pod     string // the name of the pod, for a sticky address
	request local.Request
	addrs   []netip.Addr  // requested addresses that no pool has provided
	states  []local.State // of the pools that have provided an address
}

// newAddition reads the request of the runtime. The error has code 4 if a sticky address has no
// name.
func (c *Config) newAddition(ctx context.Context, call *plugin.Call) (*addition, error) {
	args, err := cni.ParseArgs(call.Args)
	if err != nil {
		return nil, err
	}
	pod, ok := cni.PodFrom(args)
	if c.IPAM.Sticky && !ok {
		return nil, cni.Errorf(cni.CodeInvalidEnvironment,
			"CNI_ARGS: a sticky address needs K8S_POD_NAMESPACE and K8S_POD_NAME").
			WithDetails("remove \"sticky\" for containers that are not pods")
	}
	for _, name := range []string{pod.Namespace, pod.Name} {
		// The namespace is a line in the file of the reservation.
		if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || unicode.IsControl(r) }) {
			return nil, cni.Errorf(cni.CodeInvalidEnvironment,
				"CNI_ARGS: the pod's name or namespace, %q, contains a space or control character", name)
		}
	}
	boot, err := statefile.BootID()
	if err != nil {
		return nil, cni.Errorf(cni.CodeIOFailure, "%w", err)
	}
	a := &addition{Config: c, call: call, tx: session.Begin(ctx, call), boot: boot,
		request: local.Request{Owner: owner(call), Namespace: pod.Namespace}, pod: pod.Name}
	for _, text := range call.Asked.IPs {
		addr, err := ipam.ParseRequested(text)
		if err != nil {
			return nil, cni.Errorf(cni.CodeInvalidConfig, "%w", err)
		}
		if !slices.Contains(a.addrs, addr) {
			a.addrs = append(a.addrs, addr)
		}
	}
	return a, nil
}

// allocate gets an address of a pool, from the blocks of the node or through the agent.
func (a *addition) allocate(ctx context.Context, pool string) (got local.Allocation, err error) {
	if a.IPAM.Sticky {
		state, err := stateOf(ctx, a.existing(a.call, nil), pool)
		if err != nil {
			return got, err
		}
		return a.acquire(ctx, pool, a.requested(&state), nil)
	}
	for asks := 0; ; asks++ {
		got, requested, err := a.fromBlocks(ctx, pool)
		verb := remedy(err)
		if verb == "" || asks == maxAsks {
			return got, a.explain(ctx, pool, err, nil)
		}
		if verb == agentcall.Acquire {
			return a.acquire(ctx, pool, requested, err)
		}
		q := agentcall.Request{Verb: verb, Pool: pool}
		var full *local.FullError
		if errors.As(err, &full) {
			q.Have = full.Blocks
		}
		if _, askErr := a.ask(ctx, q); askErr != nil {
			return got, a.explain(ctx, pool, err, askErr)
		}
	}
}

// remedy returns the request to the agent that can end an error, or "".
func remedy(err error) agentcall.Verb {
	switch {
	case errors.Is(err, local.ErrForeignAddress):
		return agentcall.Acquire
	case errors.Is(err, local.ErrQuota):
		return agentcall.Draw
	case errors.Is(err, local.ErrFull), errors.Is(err, local.ErrUnconfirmed),
		errors.Is(err, local.ErrNoPool), errors.Is(err, local.ErrDamaged):
		return agentcall.Grow
	}
	return ""
}

// fromBlocks allocates an address of the node's blocks. requested is the requested address that
// lies in the pool, or the zero Addr.
func (a *addition) fromBlocks(
	ctx context.Context, pool string,
) (got local.Allocation, requested netip.Addr, err error) {
	var state local.State
	err = a.do("allocate an address of pool "+pool, func() (err error) {
		got, requested, state, err = a.inLock(ctx, pool)
		return err
	}, a.release(ctx, pool))
	if err == nil {
		a.provided(requested, state)
	}
	return got, requested, err
}

// do makes a change, and returns the error of apply as it is.
func (a *addition) do(op string, apply, undo func() error) (err error) {
	doErr := a.tx.Do(op, func() error {
		err = apply()
		return err
	}, undo)
	return cmp.Or(err, doErr)
}

// inLock allocates while the pool is locked. On error nothing is allocated.
func (a *addition) inLock(ctx context.Context, pool string) (
	got local.Allocation, requested netip.Addr, state local.State, err error,
) {
	tx := session.Begin(ctx, a.call)
	store := local.New(local.Options{Dir: a.dir(), BootID: a.boot, Change: tx.Do, Log: a.call.Log})
	p, err := store.Open(ctx, pool, false)
	if err != nil {
		return got, requested, state, err
	}
	defer p.Abandon()
	q := a.request
	q.Addr = a.requested(&p.State)
	if got, err = p.Allocate(ctx, q); err != nil {
		err = errors.Join(err, tx.Rollback())
	}
	return got, q.Addr, p.State, errors.Join(err, p.Close())
}

// requested returns the requested address that lies in a pool, or the zero Addr.
func (a *addition) requested(s *local.State) netip.Addr {
	i := slices.IndexFunc(a.addrs, s.Pool.Range.Contains)
	if i < 0 {
		return netip.Addr{}
	}
	a.addrs[i] = s.Unit(a.addrs[i])
	return a.addrs[i]
}

// provided records for finish that a pool in this state has provided an address.
func (a *addition) provided(addr netip.Addr, state local.State) {
	a.states = append(a.states, state)
	a.addrs = slices.DeleteFunc(a.addrs, func(b netip.Addr) bool { return b == addr })
}

// release returns the undo of an allocation: the attachment held no address of the pool before.
func (a *addition) release(ctx context.Context, pool string) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		p, err := a.existing(a.call, nil).Open(ctx, pool, false)
		if err != nil {
			return err
		}
		defer p.Abandon()
		noted, err := p.Release(ctx, a.request.Owner)
		if err = errors.Join(err, p.Close()); noted {
			a.notify(ctx, a.call)
		}
		return err
	}
}

// acquire gets a shared address through the agent because of cause: the requested one if that is
// valid. The undo releases it.
func (a *addition) acquire(
	ctx context.Context, pool string, requested netip.Addr, cause error,
) (got local.Allocation, err error) {
	q := agentcall.Request{Verb: agentcall.Acquire, Pool: pool, Addr: requested}
	if a.IPAM.Sticky {
		q.Name = a.pod
	}
	var reply *agentcall.Reply
	if err := a.do("acquire a shared address of pool "+pool, func() (err error) {
		reply, err = a.ask(ctx, q)
		return err
	}, a.release(ctx, pool)); err != nil {
		return got, a.explain(ctx, pool, cause, err)
	}
	state, err := stateOf(ctx, a.existing(a.call, nil), pool)
	a.provided(state.Unit(reply.Address.Addr()), state)
	return local.Allocation{Addr: reply.Address, Gateway: reply.Gateway}, err
}

// ask sends a request to the agent for the attachment.
func (a *addition) ask(ctx context.Context, q agentcall.Request) (*agentcall.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, agentTime)
	defer cancel()
	o := a.request.Owner
	q.Network, q.Container, q.IfName = o.Network, o.Container, o.IfName
	q.Namespace = a.request.Namespace
	return agentcall.Call(ctx, a.socket(), q)
}

// finish checks that all requested addresses were provided, and that hold has not ended since they
// were allocated.
func (a *addition) finish(ctx context.Context) error {
	if len(a.addrs) > 0 {
		return &ipam.LeftoverError{Addrs: a.addrs}
	}
	store := local.New(local.Options{Dir: a.dir(), BootID: a.boot, Existing: true})
	for i := range a.states {
		if err := store.Usable(&a.states[i]); err != nil {
			return a.explain(ctx, a.states[i].Pool.Name, err, nil)
		}
	}
	return nil
}

// explain adds code and details to an error of package local, which asking the agent has not
// remedied because of askErr, or which no request can remedy.
func (a *addition) explain(ctx context.Context, pool string, err, askErr error) error {
	var refusal *cni.Error
	switch {
	case err == nil && askErr == nil:
		return nil
	case errors.As(askErr, &refusal): // of the agent, which knows the cause
		if refusal.Details == "" {
			refusal = refusal.WithDetails(a.facts(ctx, pool))
		}
		return refusal
	case err == nil: // a sticky address
		err = fmt.Errorf("pool %s: the agent must provide a shared address: %w", pool, askErr)
		return cni.Errorf(cni.CodeTryAgainLater, "%w", err).WithDetails(a.details(ctx, pool, err))
	case askErr != nil:
		err = fmt.Errorf("%w; the agent cannot help: %w", err, askErr)
	}
	coded := coded(err)
	e := cni.AsError(coded)
	if e.Code != cni.CodeTryAgainLater || e.Details != "" {
		return coded
	}
	return cni.Errorf(e.Code, "%w", err).WithDetails(a.details(ctx, pool, err))
}

// details returns the facts about a pool, and a hint.
func (a *addition) details(ctx context.Context, pool string, err error) string {
	text := a.facts(ctx, pool)
	var full *local.FullError
	if errors.As(err, &full) && full.Details() != "" {
		text += "; " + full.Details()
	}
	return text + "; " + hint(err)
}

// facts describes the last contact with the store and the remaining hold of a pool.
func (c *Config) facts(ctx context.Context, pool string) string {
	store := local.New(local.Options{Dir: c.dir(), Existing: true})
	_, now := store.Clock()()
	text := []string{"pool " + pool}
	switch contact, err := store.Contact(); {
	case errors.Is(err, fs.ErrNotExist):
		text = append(text, "no contact with the store so far")
	case err == nil:
		text = append(text, "last contact with the store "+ipam.FormatAge(now.Sub(contact))+" ago")
	}
	state, err := stateOf(ctx, store, pool)
	if err != nil {
		return strings.Join(text, ", ")
	}
	hold := "hold is off"
	if h := state.Hold; h != nil {
		hold = "hold ends in " + ipam.FormatAge(h.Left(store.Clock()))
		if h.Passed(store.Clock()) {
			hold = "hold has ended"
		}
	}
	return strings.Join(append(text, hold), ", ")
}

// stateOf reads the state of a pool without waiting for its lock.
func stateOf(ctx context.Context, store *local.Store, pool string) (local.State, error) {
	p, err := store.Open(ctx, pool, true)
	if err != nil {
		return local.State{}, err
	}
	return p.State, p.Close()
}

// hint says what an operator can do about an error.
func hint(err error) string {
	switch {
	case errors.Is(err, agentcall.ErrUnreachable):
		return "start the agent of this node: `tenon-cluster agent`"
	case errors.Is(err, local.ErrDraining):
		return "an operator drains this node; use another node, or run `tenon-cluster node undrain`"
	case errors.Is(err, local.ErrLost):
		return "the node rejoins when its remaining containers have ended, or after " +
			"`tenon-cluster node rejoin`"
	case errors.Is(err, local.ErrHold):
		return "restore the connection of this node to the store"
	}
	return "run `tenon cluster status`"
}
