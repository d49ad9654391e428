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
	"path/filepath"
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

// Agent is the agent of a node. Each of its parts depends only on parts that are listed before it.
//
// A part has a mutex for what several goroutines use, and calls no other part while it holds it. A
// change in several steps, of the node's document, of its files or of several parts, requires the
// turn.
type Agent struct {
	o     *Options
	turn  turn
	wake  chan struct{} // ends the wait for the next renewal
	tried chan struct{} // closed when the first attempt to join has ended

	problems   *problems
	identity   *identity
	trust      *trust
	session    *session
	view       *view
	hold       *hold
	files      *files
	intents    *intents
	claims     *claims
	commons    *commons
	reclaimer  *reclaimer
	routing    *routing
	membership *membership
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
	a := &Agent{o: &o, turn: make(turn, 1), wake: make(chan struct{}, 1), tried: make(chan struct{})}
	a.problems = newProblems(o.Log)
	a.identity = &identity{o: &o}
	a.trust = &trust{o: &o, identity: a.identity, problems: a.problems, wake: a.wake, seen: seen}
	a.session = &session{o: &o, identity: a.identity, trust: a.trust, wake: a.wake}
	a.view = &view{o: &o, session: a.session}
	a.hold = &hold{o: &o, trust: a.trust, session: a.session, view: a.view, problems: a.problems,
		wake: a.wake}
	a.files = &files{o: &o, identity: a.identity, trust: a.trust, session: a.session, view: a.view,
		hold: a.hold}
	a.intents = &intents{dir: filepath.Join(o.Dir, "intents")}
	a.claims = &claims{o: &o, identity: a.identity, trust: a.trust, session: a.session,
		view: a.view, files: a.files, intents: a.intents, problems: a.problems, turn: a.turn,
		planned: make(chan struct{}, 1), bursts: map[string]burst{},
		idle: map[blockID]time.Time{}, flights: map[string]*flight{}, checked: map[string]bool{}}
	a.commons = &commons{o: &o, trust: a.trust, session: a.session, view: a.view, hold: a.hold,
		files: a.files, intents: a.intents, claims: a.claims, problems: a.problems, turn: a.turn,
		noted: make(chan struct{}, 1), drawn: map[string]uint64{}}
	a.reclaimer = &reclaimer{o: &o, session: a.session, view: a.view, problems: a.problems,
		watched: map[string]*suspicion{}}
	a.routing = &routing{o: &o, identity: a.identity, session: a.session, view: a.view,
		problems: a.problems, turn: a.turn, changed: make(chan struct{}, 1)}
	a.membership = &membership{o: &o, identity: a.identity, trust: a.trust, session: a.session,
		view: a.view, files: a.files, claims: a.claims, commons: a.commons, reclaimer: a.reclaimer}
	return a
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
	parts := []func(context.Context) error{a.live, a.watch, a.claims.run, a.reclaimer.run,
		a.routing.run, a.claims.observe, a.serve, a.commons.run}
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

// turn is held during a transaction that changes the document of this node, or files that describe
// its blocks.
type turn chan struct{}

// take waits until no other transaction of this node is in progress. The caller calls end.
func (t turn) take(ctx context.Context) (end func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
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
