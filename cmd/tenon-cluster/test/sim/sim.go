// Package sim runs nodes of a cluster in one process: each has the real agent and the real
// allocator, in a directory of its own, and no routes. Add and Del do what the plugin cluster does.
// In a bubble of testing/synctest, with package memkv, a node lives in virtual time.
package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/agent"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/history"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/intercept"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/agentcall"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/ipam"
)

// Cluster, Network and IfName are the names that all nodes use.
const (
	Cluster = "sim"
	Network = "pods"
	IfName  = "eth0"
)

// attempts is how often Add asks the agent, as the plugin does.
const attempts = 3

// Options are options of a node. Name, Client and Dir are required.
type Options struct {
	Name    string
	Client  registry.Client
	Dir     string
	Pool    string             // of Add and Del; "pods" if empty
	Seen    *history.Addresses // records allocations and releases, if not nil
	TTL     time.Duration      // of the lease; the agent's default if zero
	Timeout time.Duration      // of a request to etcd; the registry's default if zero
	Clock   *Clock             // both clocks of hold; the clock of the test if nil
	Change  ipam.Change        // of reservations; see local.Options
	Log     *slog.Logger
	// Evidence is the agent's hook, if not nil.
	Evidence func(ctx context.Context, node string) (string, error)
}

// Clock is a clock of a node that a test can set.
type Clock struct {
	start      time.Time
	boot, wall atomic.Int64
}

// NewClock returns a clock that shows the time of the test.
func NewClock() *Clock { return &Clock{start: time.Now()} }

// Advance moves both clocks, as a pause of the machine does.
func (c *Clock) Advance(d time.Duration) {
	c.boot.Add(int64(d))
	c.wall.Add(int64(d))
}

// Jump moves the wall clock alone.
func (c *Clock) Jump(d time.Duration) { c.wall.Add(int64(d)) }

// reboot lets the boot clock begin again.
func (c *Clock) reboot() { c.boot.Store(-int64(time.Since(c.start))) }

// Read is a [local.Clock].
func (c *Clock) Read() (boot time.Duration, wall time.Time) {
	return time.Since(c.start) + time.Duration(c.boot.Load()),
		time.Now().Round(0).Add(time.Duration(c.wall.Load()))
}

// Node is a node.
type Node struct {
	Name  string
	Local *local.Store

	o       Options
	boots   int
	process atomic.Pointer[process] // the present or last one of the agent

	mu    sync.Mutex
	alive map[string]bool // containers that the runtime has to delete some day
}

// process is one run of the agent.
type process struct {
	agent  *agent.Agent
	killed atomic.Bool
	stop   context.CancelFunc
	done   chan struct{}
	err    error
}

// alive sends a request unless the process has been killed.
func (p *process) alive(send func() error) error {
	if p.killed.Load() {
		return errDead
	}
	return send()
}

var errDead = errors.New("the process has been killed")

// New returns a node that is off.
func New(o Options) *Node {
	if o.Pool == "" {
		o.Pool = Network
	}
	if o.Clock == nil {
		o.Clock = NewClock()
	}
	return &Node{Name: o.Name, o: o, alive: map[string]bool{}}
}

// Registry returns a registry for a client, with the options that all nodes use.
func Registry(c registry.Client, timeout time.Duration) *registry.Registry {
	return registry.New(c, registry.Options{Cluster: Cluster, Timeout: timeout})
}

// Boot switches the node on: reservations of an earlier boot are void, containers of it have ended.
func (n *Node) Boot() {
	n.boots++
	n.o.Clock.reboot()
	n.mu.Lock()
	clear(n.alive)
	n.mu.Unlock()
	n.Local = local.New(local.Options{Dir: n.o.Dir, BootID: n.bootID(), Clock: n.o.Clock.Read,
		Change: n.o.Change, Log: n.o.Log})
	n.Start()
}

func (n *Node) bootID() string { return fmt.Sprintf("%s-%d", n.o.Name, n.boots) }

// Asleep returns the node with access to its files, as in its first boot, and without an agent.
func (n *Node) Asleep() *Node {
	n.boots++
	n.Local = local.New(local.Options{Dir: n.o.Dir, BootID: n.bootID()})
	return n
}

// Start starts the agent.
func (n *Node) Start() {
	ctx, stop := context.WithCancel(context.Background())
	p := &process{stop: stop, done: make(chan struct{})}
	client := &intercept.Client{Client: n.o.Client, Around: p.alive}
	p.agent = agent.New(agent.Options{
		Registry: Registry(client, n.o.Timeout),
		Local:    n.Local,
		Dir:      n.o.Dir,
		Cluster:  Cluster,
		Node:     cluster.Node{Name: n.o.Name, Mode: "none"},
		BootID:   n.bootID(),
		Clock:    n.o.Clock.Read,
		TTL:      n.o.TTL,
		Evidence: n.o.Evidence,
		Log:      n.o.Log,
	})
	n.process.Store(p)
	go func() {
		defer close(p.done)
		p.err = p.agent.Run(ctx)
	}()
}

// Stop ends the agent as a service manager does. Containers and plugin go on.
func (n *Node) Stop() {
	p := n.process.Load()
	p.stop()
	<-p.done
}

// Die lets the agent send no more requests to etcd, also within one of them. Kill must follow.
func (n *Node) Die() { n.process.Load().killed.Store(true) }

// Kill ends the agent without another request to etcd.
func (n *Node) Kill() {
	n.Die()
	n.Stop()
}

// Ended returns a channel that is closed when the agent has ended, by Stop or by an error, which
// Err then returns.
func (n *Node) Ended() <-chan struct{} { return n.process.Load().done }

// Err returns the error with which the agent has ended.
func (n *Node) Err() error { return n.process.Load().err }

// ask sends a request to the agent.
func (n *Node) ask(ctx context.Context, q *agentcall.Request) *agentcall.Reply {
	if end, ok := ctx.Deadline(); ok {
		q.Deadline = end
	}
	return n.process.Load().agent.Handle(ctx, q)
}

// Off switches the node off: all containers end, and the agent.
func (n *Node) Off() {
	n.Kill()
	if n.o.Seen != nil {
		n.o.Seen.Died(n.Name)
	}
}

// Status asks the agent for its status.
func (n *Node) Status(ctx context.Context) agentcall.Status {
	return *n.ask(ctx, &agentcall.Request{Verb: agentcall.Report}).Status
}

// Ready waits until the agent may claim blocks, and ADD can succeed or needs only another block.
func (n *Node) Ready(ctx context.Context) error {
	for {
		err := errors.New("the agent may not claim blocks yet")
		rest := time.Until(n.Status(ctx).Settled)
		if rest <= 0 {
			if _, err = n.try(ctx, "ready"); err == nil {
				err = n.release(ctx, "ready")
			}
			if err == nil || errors.Is(err, local.ErrFull) {
				return nil
			}
		}
		select {
		case <-time.After(max(rest, 20*time.Millisecond)):
		case <-n.Ended():
			return fmt.Errorf("the agent has ended: %w", n.Err())
		case <-ctx.Done():
			return fmt.Errorf("node %s: %w: %w", n.Name, ctx.Err(), err)
		}
	}
}

// Add allocates an address for a container. If its blocks are full, it asks the agent.
func (n *Node) Add(ctx context.Context, container string) (netip.Addr, error) {
	a, err := n.try(ctx, container)
	for range attempts {
		var have []string
		var full *local.FullError
		switch {
		case err == nil:
			n.added(container, a)
			return a, nil
		case errors.As(err, &full):
			have = full.Blocks
		case errors.Is(err, local.ErrNoPool), errors.Is(err, local.ErrUnconfirmed):
		default:
			return a, err
		}
		r := n.ask(ctx, &agentcall.Request{Verb: agentcall.Grow, Pool: n.o.Pool, Network: Network,
			Container: container, IfName: IfName, Have: have})
		if r.Error != nil {
			return a, errors.Join(err, r.Error)
		}
		a, err = n.try(ctx, container)
	}
	return a, err
}

// Namespace is the namespace of the pods with sticky addresses.
const Namespace = "default"

// Acquire gives a container the sticky address of a pod.
func (n *Node) Acquire(ctx context.Context, container, pod string) (netip.Addr, error) {
	r := n.ask(ctx, &agentcall.Request{Verb: agentcall.Acquire, Pool: n.o.Pool, Network: Network,
		Container: container, IfName: IfName, Namespace: Namespace, Name: pod})
	if r.Error != nil {
		return netip.Addr{}, r.Error
	}
	n.added(container, r.Address.Addr())
	return r.Address.Addr(), nil
}

// added notes that ADD has returned an address.
func (n *Node) added(container string, a netip.Addr) {
	n.mu.Lock()
	n.alive[container] = true
	n.mu.Unlock()
	if n.o.Seen != nil {
		n.o.Seen.Allocated(history.Attachment{Node: n.Name, Container: container}, a)
	}
}

func (n *Node) owner(container string) ipam.Owner {
	return ipam.Owner{Container: container, IfName: IfName, Network: Network}
}

func (n *Node) try(ctx context.Context, container string) (a netip.Addr, err error) {
	p, err := n.Local.Open(ctx, n.o.Pool, false)
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	got, err := p.Allocate(ctx, local.Request{Owner: n.owner(container)})
	return got.Addr.Addr(), err
}

// Del releases the addresses of a container.
func (n *Node) Del(ctx context.Context, container string) error {
	if n.o.Seen != nil {
		n.o.Seen.Releasing(history.Attachment{Node: n.Name, Container: container})
	}
	if err := n.release(ctx, container); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.alive, container)
	return nil
}

func (n *Node) release(ctx context.Context, container string) (err error) {
	p, err := n.Local.Open(ctx, n.o.Pool, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	noted, err := p.Release(ctx, n.owner(container))
	if noted && err == nil && n.process.Load() != nil {
		n.ask(ctx, &agentcall.Request{Verb: agentcall.Released, Pool: n.o.Pool})
	}
	return err
}

// Containers returns the containers that have been added and not deleted.
func (n *Node) Containers() (all []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.alive {
		all = append(all, c)
	}
	return all
}

// Leases returns the node's reservations.
func (n *Node) Leases(ctx context.Context) (leases []ipam.Lease, err error) {
	p, err := n.Local.Open(ctx, n.o.Pool, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	return p.Leases(ctx)
}

// Blocks returns the blocks in the node's files.
func (n *Node) Blocks(ctx context.Context) (blocks []local.Block, err error) {
	p, err := n.Local.Open(ctx, n.o.Pool, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	return p.State.Blocks, nil
}

// Leftovers returns the files that a node without attachments must not have: reservations, notes,
// intents.
func (n *Node) Leftovers(ctx context.Context) (left []string, err error) {
	leases, err := n.Leases(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range leases {
		left = append(left, n.Name+": reservation "+l.String())
	}
	notes, err := n.Local.Notes()
	if err != nil {
		return nil, err
	}
	for _, note := range notes {
		left = append(left, fmt.Sprintf("%s: note %+v", n.Name, note))
	}
	intents, err := os.ReadDir(filepath.Join(n.o.Dir, "intents"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, in := range intents {
		left = append(left, n.Name+": intent "+in.Name())
	}
	return left, nil
}
