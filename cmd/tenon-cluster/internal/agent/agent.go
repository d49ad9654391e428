package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// Options are the parts of an agent. Registry, Local, Dir, Cluster, Node and BootID are required.
type Options struct {
	Registry *registry.Registry
	Local    *local.Store
	Dir      string       // the directory of Local
	Cluster  string       // the name of the cluster
	Node     cluster.Node // Name, Addresses, MTU, Labels and Mode; the agent sets the rest
	BootID   string
	Machine  string                                  // its hardware, such as the UUID of SMBIOS; "" if not known
	Clock    local.Clock                             // both clocks of hold; time.Now if nil
	TTL      time.Duration                           // of the lease; 30 s if zero
	Nonce    func() string                           // 128 random bits if nil
	Jitter   func(limit time.Duration) time.Duration // a random duration below limit, if not nil
	Log      *slog.Logger                            // nothing is logged if nil
	Router   Router                                  // programs the routes to other nodes, if not nil
	Listener *net.UnixListener                       // of the socket, if not nil
	// Evidence reports whether a suspect node is proven to be off, if not nil. It asks a power
	// controller or an operator's program.
	Evidence func(ctx context.Context, node string) (evidence string, err error)
	// Changes calls changed when the reservations of a pool have changed, until ctx ends, if not
	// nil. Without it, the agent looks at every renewal.
	Changes func(ctx context.Context, changed func(pool string)) error
	// Guard makes the kernel drop packets from blocks after the given times, if not nil; see
	// [routes.Hold].
	Guard func(ctx context.Context, left map[netip.Prefix]time.Duration) error
	// Breaks returns how often all connections to the store have broken, if not nil. A restored
	// store breaks them.
	Breaks func() uint64
	Notify func(state string) // reports to the service manager (sd_notify(3)), if not nil
}

// Durations of the agent. Package tests depend on none of them being changed.
const (
	defaultTTL = 30 * time.Second
	// idleTime is the time for which a block must be unnecessary before the agent gives it back.
	idleTime = 10 * time.Minute
	// scarceIdleTime applies instead while the pool has no free block.
	scarceIdleTime = time.Minute
	// resyncTime is the interval at which the watch and the routes compare everything.
	resyncTime = 90 * time.Second
	// batchTime collects changes of routes before they are programmed.
	batchTime = 100 * time.Millisecond
	// minBackoff and maxBackoff limit the wait after an error of the store.
	minBackoff = 100 * time.Millisecond
	maxBackoff = 10 * time.Second
	// leaveTime limits the replacement of the proof when the agent stops.
	leaveTime = 3 * time.Second
)

// Agent is the agent of a node.
type Agent struct {
	o *Options
	// turn is held during a transaction that changes the document of this node, or files that
	// describe its blocks.
	turn chan struct{}
	wake chan struct{} // ends the wait for the next renewal
	rout chan struct{} // the view has changed
	// tried is closed when the first attempt to join has ended.
	tried chan struct{}
	// planned has an event while claims are planned.
	planned chan struct{}

	problems *problems
	identity *identity
	trust    *trust
	session  *session
	view     *view
	hold     *hold
	files    *files

	// The holder of the turn uses the following fields.
	rival    rival  // another host that may use the identity
	answered string // the last question of an operator that this process has answered
	commons  commons

	mu      sync.Mutex            // guards the following fields
	flights map[string]*flight    // claims in progress, by pool
	bursts  map[string]burst      // last claims, by pool
	idle    map[blockID]time.Time // since when blocks have been unnecessary
	watched map[string]*suspicion // suspect nodes, by name
	checked map[string]bool       // pools to look at before the next renewal
}

// stamp is an instant on both clocks of [local.Deadline]. The zero stamp means never.
type stamp struct {
	boot time.Duration
	wall time.Time
}

// after returns the deadline that lies d after the instant.
func (s stamp) after(d time.Duration) local.Deadline {
	return local.NewDeadline(s.boot, s.wall, d)
}

// New returns an agent. It does no I/O.
func New(o Options) *Agent {
	o.TTL = cmp.Or(o.TTL, defaultTTL)
	if o.Clock == nil {
		start := time.Now()
		o.Clock = func() (time.Duration, time.Time) { return time.Since(start), time.Now() }
	}
	if o.Nonce == nil {
		o.Nonce = rand.Text
	}
	if o.Jitter == nil {
		o.Jitter = func(d time.Duration) time.Duration {
			return time.Duration(mathrand.Int64N(int64(max(d, 1))))
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Notify == nil {
		o.Notify = func(string) {}
	}
	seen := new(registry.Seen)
	o.Registry = o.Registry.Judged(seen)
	wake := make(chan struct{}, 1)
	problems := newProblems(o.Log)
	identity := &identity{o: &o}
	trust := &trust{o: &o, identity: identity, problems: problems, wake: wake, seen: seen}
	session := &session{o: &o, identity: identity, trust: trust, wake: wake}
	view := &view{o: &o}
	hold := &hold{o: &o, session: session, trust: trust, view: view, problems: problems, wake: wake}
	return &Agent{
		o:        &o,
		problems: problems,
		identity: identity,
		trust:    trust,
		session:  session,
		view:     view,
		hold:     hold,
		files: &files{o: &o, identity: identity, trust: trust, session: session, view: view,
			hold: hold},
		turn:    make(chan struct{}, 1),
		wake:    wake,
		rout:    make(chan struct{}, 1),
		tried:   make(chan struct{}),
		planned: make(chan struct{}, 1),
		flights: map[string]*flight{},
		bursts:  map[string]burst{},
		idle:    map[blockID]time.Time{},
		watched: map[string]*suspicion{},
		checked: map[string]bool{},
		commons: newCommons(),
	}
}

// Run runs the agent until ctx ends and then returns nil. It leaves routes, blocks and files as
// they are. It returns an error only if the node can never join: one that wraps
// [registry.ErrIdentity] if another host uses the name or the identity, or an error about the
// node's own files.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.identity.read(); err != nil {
		return err
	}
	a.trust.begin()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	parts := []func(context.Context) error{a.live, a.watch, a.claims, a.reclaim, a.route, a.observe,
		a.serve, a.common}
	for _, part := range parts {
		running.Go(func() {
			if err := part(ctx); err != nil {
				cancel(err)
			}
		})
	}
	running.Wait()
	a.o.Notify("STOPPING=1")
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// attempted waits until the first attempt to join has ended. Before that there is no session.
func (a *Agent) attempted(ctx context.Context) error {
	select {
	case <-a.tried:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// exclusive waits until no other transaction of this node is in progress. The caller calls end.
func (a *Agent) exclusive(ctx context.Context) (end func(), err error) {
	select {
	case a.turn <- struct{}{}:
		return func() { <-a.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// poke sends to a channel that holds at most one event.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sleep waits for a duration. It returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// now returns the present instant.
func (o *Options) now() stamp {
	boot, wall := o.Clock()
	return stamp{boot, wall}
}
