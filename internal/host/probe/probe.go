// Package probe sends one packet of a flow, and reports where the packet and its answer were seen,
// what the rules of nftables decided about them, and whether an answer arrived. For the time of a
// probe, which is bounded, it adds tables to the rules of the namespaces on the way. Their rules only
// mark the packet for the trace of the kernel. The tables belong to sockets of this process, so that
// the kernel removes them when the process ends, also by SIGKILL.
package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Flow is the flow of the packet.
type Flow struct {
	Host     *host.Host
	Source   *host.Namespace
	From     netip.Addr // invalid: the kernel's choice
	To       netip.Addr
	Protocol uint8  // IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMP or IPPROTO_ICMPV6
	Port     uint16 // of the destination, 0 for a ping
	// Way are the namespaces to trace, in the order in which the packet is expected in them.
	Way []*host.Namespace
}

// Outcome is what happened to the packet.
type Outcome string

// The outcomes.
const (
	Answered    Outcome = "answered"
	Refused     Outcome = "refused"     // a port is closed, or a firewall rejects the packet
	Unreachable Outcome = "unreachable" // a router, or the kernel of a host on the way, reports it
	NotSent     Outcome = "not sent"    // the kernel of the source refuses to send the packet
	Silent      Outcome = "no answer"   // within [Patience]
)

// Patience is how long a probe waits for an answer. TCP would repeat its packet after one second.
const Patience = 900 * time.Millisecond

// quiet is how long a probe waits for more events after the answer.
const quiet = 50 * time.Millisecond

// Result is what a probe found.
type Result struct {
	Outcome Outcome `json:"outcome"`
	Error   string  `json:"error,omitzero"`   // that the kernel reported
	Seconds float64 `json:"seconds,omitzero"` // until the answer or the error
	// Seen lists the namespaces in which the packet was seen before the first rule, in the order of
	// [Flow.Way], and then the namespaces in which the answer was seen, in reverse.
	Seen []Sighting `json:"seen"`
	// Decisions are the final decisions of rules and policies, in each namespace in their order.
	Decisions []Decision `json:"decisions"`
	// Counters of drops that rose during the probe. They count all packets of a namespace.
	Counters []Counter `json:"counters,omitzero"`
	Lost     bool      `json:"lost,omitzero"` // some decisions and sightings are missing
}

// Direction distinguishes the packet and its answer.
type Direction string

// The directions.
const (
	Request Direction = "request"
	Reply   Direction = "reply"
)

// Sighting is a namespace in which the packet or its answer was seen.
type Sighting struct {
	Namespace string    `json:"namespace"` // its ID
	Direction Direction `json:"direction"`
}

// Decision is a decision of a rule or a policy.
type Decision struct {
	Sighting
	Table   nftmsg.Table `json:"table"`
	Chain   string       `json:"chain"`
	Handle  uint64       `json:"handle,omitzero"` // of the rule; 0: the policy
	Number  int          `json:"number,omitzero"` // of the rule in its chain, from 1; 0: not known
	Verdict string       `json:"verdict"`         // accept, drop, queue or stolen
}

// ErrOld reports a kernel in which a probe could leave its tables behind.
var ErrOld = errors.New("the kernel cannot bind tables of nftables to a process; Linux 5.12 or newer can")

// run is a probe.
type run struct {
	flow    Flow
	socket  *socket
	watched []*watched
	news    chan news
	answer  chan error
	done    chan struct{} // closed at the end
	running sync.WaitGroup
	result  *Result
}

// Run probes a flow. It returns the cause of the end of ctx if ctx ends before the probe.
func Run(ctx context.Context, f Flow) (r *Result, err error) {
	source, err := f.Source.Open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	s, err := newSocket(source, &f)
	if err != nil {
		return nil, err
	}
	p := &run{flow: f, socket: s, news: make(chan news), answer: make(chan error, 1),
		done: make(chan struct{}), result: &Result{Seen: []Sighting{}, Decisions: []Decision{}}}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.watch(); err != nil {
		return nil, err
	}
	if err := p.observe(ctx); err != nil {
		return nil, err
	}
	for _, w := range p.watched {
		p.result.Counters = append(p.result.Counters, w.rose()...)
	}
	p.result.sort(f.Way)
	return p.result, nil
}

// close ends the probe, and removes its tables.
func (p *run) close() error {
	close(p.done)
	err := p.socket.file.Close()
	for _, w := range p.watched {
		err = errors.Join(err, w.close())
	}
	p.running.Wait()
	return err
}

// watch begins to trace in all namespaces.
func (p *run) watch() error {
	for _, n := range p.flow.Way {
		w, err := watch(n, p.flow, p.socket.id)
		if errors.Is(err, os.ErrNotExist) {
			continue // the namespace has ended since it was read
		}
		if err != nil {
			return fmt.Errorf("trace in network namespace %s: %w", n.ID, err)
		}
		p.watched = append(p.watched, w)
		p.running.Go(func() { w.receive(p.news, p.done) })
	}
	return nil
}

// news are events of one datagram in a namespace.
type news struct {
	seen      []Sighting
	decisions []Decision
	lost      bool
}

// observe sends the packet and collects what happens, until there is an answer and nothing follows.
func (p *run) observe(ctx context.Context) error {
	r, begun := p.result, time.Now()
	end := time.NewTimer(Patience)
	defer end.Stop()
	if err := p.socket.send(p.flow); err != nil {
		r.Outcome, r.Error = NotSent, err.Error()
		end.Reset(quiet)
	} else {
		p.running.Go(func() { p.answer <- p.socket.wait() })
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-end.C:
			if r.Outcome == "" {
				r.Outcome = Silent
			}
			return nil
		case err := <-p.answer:
			r.answered(err)
			r.Seconds = time.Since(begun).Seconds()
			end.Reset(quiet)
		case n := <-p.news:
			r.Seen, r.Decisions = append(r.Seen, n.seen...), append(r.Decisions, n.decisions...)
			r.Lost = r.Lost || n.lost
		}
	}
}

// answered notes an answer, or an error that the kernel reports about the packet.
func (r *Result) answered(err error) {
	switch {
	case err == nil:
		r.Outcome = Answered
		return
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ECONNRESET):
		r.Outcome = Refused
	default:
		r.Outcome = Unreachable
	}
	r.Error = err.Error()
}

// sort puts sightings and decisions into the order of the way.
func (r *Result) sort(way []*host.Namespace) {
	position := func(s Sighting) int {
		i := slices.IndexFunc(way, func(n *host.Namespace) bool { return n.ID == s.Namespace })
		if s.Direction == Reply {
			return 2*len(way) - i
		}
		return i
	}
	slices.SortStableFunc(r.Seen, func(a, b Sighting) int { return position(a) - position(b) })
	r.Seen = slices.Compact(r.Seen)
	slices.SortStableFunc(r.Decisions, func(a, b Decision) int {
		return position(a.Sighting) - position(b.Sighting)
	})
}

// receive passes on what the kernel reports in the namespace, until the trace or done is closed.
func (w *watched) receive(to chan<- news, done <-chan struct{}) {
	for {
		events, err := w.trace.Next()
		var n news
		switch {
		case errors.Is(err, netlink.ErrOverrun):
			n.lost = true
		case err != nil:
			return
		}
		for _, e := range events {
			w.describe(e, &n)
		}
		select {
		case to <- n:
		case <-done:
			return
		}
	}
}
