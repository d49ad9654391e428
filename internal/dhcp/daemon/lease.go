package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tenon-cni/tenon/internal/about"
	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/dhcp/v4"
	"github.com/tenon-cni/tenon/internal/dhcp/v6"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// releaseTime is the limit for releasing the addresses of each protocol.
const releaseTime = time.Second

// lease manages the lease of an attachment in a goroutine. It has no socket open unless it waits
// for a message.
type lease struct {
	d    *Daemon
	name string // file name
	log  *slog.Logger

	stop  context.CancelCauseFunc // ends the goroutine: errRelease, errLeave
	ended chan struct{}           // closed when the goroutine has ended
	first chan struct{}           // closed when the first lease has been bound or has failed

	unremoved error // why the file remains after the end; valid when ended is closed

	// The state for other goroutines.
	mu      sync.Mutex
	saved   Record
	status  string
	reason  string // why there is no lease, or why it was not renewed
	failure error  // why there was no first lease

	// The state of the goroutine.
	rec      Record
	kept     *kernel.Namespace // nil if a path leads to the namespace
	nextLook time.Time
	answered bool // whether first is closed
	four     four
	six      *six  // nil without DHCPv6
	queue    []any // actions of both machines
}

var (
	errRelease = errors.New("the attachment was deleted")
	errLeave   = errors.New("the DHCP daemon is stopping")
)

// start starts the goroutine of an attachment, which closes at. For an attachment with a lease at
// is nil.
func (d *Daemon) start(rec Record, total time.Duration, at *openLink) *lease {
	l := &lease{
		d: d, name: dhcp.FileName(rec.Attachment), rec: rec, saved: rec, ended: make(chan struct{}),
		first:    make(chan struct{}),
		log:      d.Log.With(about.Args(rec.Attachment)...),
		nextLook: time.Now().Add(rand.N(d.LookEvery)),
	}
	l.four = l.newFour(total)
	if rec.DHCP6 == dhcp.Stateful || rec.DHCP6 == dhcp.Stateless {
		l.six = l.newSix(total)
	}
	if at == nil {
		l.answer()
	}
	var ctx context.Context
	ctx, l.stop = context.WithCancelCause(context.Background())
	d.running.Go(func() {
		defer close(l.ended)
		l.run(ctx, at)
	})
	return l
}

func (l *lease) run(ctx context.Context, at *openLink) {
	defer l.disconnect()
	if at != nil {
		l.prepare(ctx, at)
		l.four.insist()
	}
	l.four.then(l.four.machine.Start(time.Now(), l.rec.Lease))
	if l.six != nil {
		l.six.then(l.six.machine.Start(time.Now(), l.rec.Six))
	}
	for {
		if err := l.work(ctx); err != nil {
			l.end(ctx, err)
			return
		}
		if err := l.wait(ctx); err != nil {
			l.end(ctx, err)
			return
		}
	}
}

// answer ends the wait for the first lease.
func (l *lease) answer() {
	if !l.answered {
		l.answered = true
		close(l.first)
	}
}

// prepare sets the interface up, and waits until it can send, because the kernel drops earlier
// messages. The wait is limited.
func (l *lease) prepare(ctx context.Context, at *openLink) {
	if !l.d.host.reachable(&l.rec.Place) {
		l.kept = at.ns
	} else {
		defer at.Close()
	}
	wait, cancel := context.WithTimeout(ctx, l.d.Timeout)
	defer cancel()
	err := at.visit(wait, func(space *kernel.Space) error {
		if err := space.Links.Up(at.link); err != nil {
			return err
		}
		if err := space.Links.WaitUp(wait, at.link); err != nil {
			l.log.Warn("no carrier yet", "error", err)
		}
		if l.six == nil {
			return nil
		}
		if err := space.Addrs.WaitDAD(wait, at.link); err != nil {
			l.log.Warn("no link-local address yet", "error", err)
		}
		return nil
	})
	if err != nil {
		l.log.Warn("cannot prepare the interface", "error", err)
	}
}

// disconnect closes all sockets and the namespace.
func (l *lease) disconnect() {
	l.four.disconnect()
	if l.six != nil {
		l.six.disconnect()
	}
	if l.kept != nil {
		l.kept.Close()
	}
}

// wait waits for the next event and passes it to the machine. An error ends the lease.
func (l *lease) wait(ctx context.Context) error {
	next, messages := l.four.next(l.nextLook)
	var messages6 chan *v6.Message
	if l.six != nil {
		next, messages6 = l.six.next(next, l.six.machine.Expects())
	}
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case m := <-messages:
		l.log.Debug("received", "type", m.Type(), "address", m.Your)
		l.four.early = nil
		l.four.then(l.four.machine.Received(time.Now(), m))
	case m := <-messages6:
		l.log.Debug("received", "type", m.Type)
		l.six.then(l.six.machine.Received(time.Now(), m))
	case <-timer.C:
		l.repeat()
		l.four.then(l.four.machine.Tick(time.Now()))
		if l.six != nil {
			l.six.then(l.six.machine.Tick(time.Now()))
		}
		return l.look(ctx)
	}
	return nil
}

// look checks periodically that the interface still exists.
func (l *lease) look(ctx context.Context) error {
	if time.Now().Before(l.nextLook) {
		return nil
	}
	l.nextLook = time.Now().Add(l.d.LookEvery)
	defer l.d.turn()()
	at, err := l.open(ctx)
	if errors.Is(err, errGone) {
		return err
	}
	if err != nil {
		l.log.Warn("cannot find the interface", "error", err)
		return nil
	}
	if l.six != nil {
		l.conflicts6(ctx, at)
	}
	if l.kept != nil && l.d.host.reachable(&l.rec.Place) {
		l.kept.Close()
		l.kept = nil
	}
	return at.Close()
}

// work carries out the actions of the machines. An error ends the lease.
func (l *lease) work(ctx context.Context) error {
	for len(l.queue) > 0 {
		a := l.queue[0]
		l.queue = l.queue[1:]
		if err := l.do(ctx, a); err != nil {
			return err
		}
	}
	l.publish()
	return nil
}

func (l *lease) do(ctx context.Context, action any) error {
	switch a := action.(type) {
	case v4.Send:
		defer l.d.turn()()
		return l.sent(a.Message.Type(), l.send4(ctx, a))
	case v6.Send:
		defer l.d.turn()()
		return l.sent(a.Message.Type, l.send6(ctx, a))
	case v4.Probe:
		l.probe4(ctx, a.Address)
	case v6.Probe:
		l.probe6(ctx, a.Addresses)
	case v4.Bind:
		return l.bind4(ctx, a)
	case v6.Bind:
		return l.bind6(ctx, a)
	case v4.Lose:
		return l.lose4(ctx, a)
	case v6.Lose:
		return l.lose6(ctx, a)
	case v4.Fail:
		return &noLeaseError{a.Reason, l.where(ctx)}
	case v6.Fail:
		return &noLeaseError{"DHCPv6: " + a.Reason, l.where(ctx)}
	}
	return nil
}

// sent returns an error only if the interface no longer exists. After other errors the machine
// repeats the message.
func (l *lease) sent(kind fmt.Stringer, err error) error {
	if err == nil || errors.Is(err, errGone) {
		return err
	}
	l.log.Warn("cannot send", "type", kind, "error", err)
	return nil
}

// publish copies the state for other goroutines.
func (l *lease) publish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.saved, l.status, l.reason = l.rec, l.four.machine.State(), l.four.machine.Refused
	if l.six != nil {
		l.status += ", DHCPv6 " + l.six.machine.State()
		l.reason = cmp.Or(l.reason, l.six.machine.Refused)
	}
}

// open opens the interface of the lease. The error wraps errGone if it no longer exists.
func (l *lease) open(ctx context.Context) (*openLink, error) {
	return l.d.host.open(ctx, &l.rec, l.kept)
}

// apply changes the interface. It logs errors, and CHECK reports the difference. If the interface
// no longer exists, there is nothing to change.
func (l *lease) apply(ctx context.Context, how func(*openLink) error) {
	at, err := l.open(ctx)
	if err == nil {
		err = errors.Join(how(at), at.Close())
	}
	if err != nil && !errors.Is(err, errGone) {
		l.log.Error("cannot change the interface", "error", err)
	}
}

// keep saves the lease. It returns an error only before the first answer.
func (l *lease) keep() error {
	err := l.d.leases.Write(l.name, &l.rec)
	if err != nil && l.answered {
		l.log.Error("cannot save the lease", "error", err)
		return nil
	}
	return err
}

// got saves a new lease before it publishes it, and answers ADD when all requested leases are
// bound.
func (l *lease) got() error {
	if err := l.keep(); err != nil {
		return err
	}
	l.publish()
	if l.rec.Lease != nil && (l.six == nil || l.rec.Six != nil) {
		l.answer()
	}
	return nil
}

// end releases the lease if possible, or leaves it to the next daemon.
func (l *lease) end(ctx context.Context, why error) {
	failed := !l.answered
	switch {
	case errors.Is(why, errLeave) && !failed:
		return
	case errors.Is(why, errLeave), errors.Is(why, errRelease):
	default:
		l.log.Warn("lease ends", "reason", why)
	}
	last := context.WithoutCancel(ctx)
	l.release4(last)
	l.release6(last)
	if l.unremoved = l.d.leases.Remove(l.name); l.unremoved != nil {
		l.log.Error("cannot remove the lease file", "error", l.unremoved)
	}
	l.mu.Lock()
	l.failure = why
	l.mu.Unlock()
	l.answer()
	l.d.forget(l)
}

// where returns the interface and its carrier, for error messages.
func (l *lease) where(ctx context.Context) string {
	carrier := "gone"
	if at, err := l.open(ctx); err == nil {
		carrier = "carrier down"
		if at.link.OperState == kernel.OperUp {
			carrier = "carrier up"
		}
		at.Close()
	}
	return fmt.Sprintf("%s (%s)", l.rec.IfName, carrier)
}

// noLeaseError reports that no server has granted an address in time.
type noLeaseError struct{ reason, where string }

func (e *noLeaseError) Error() string { return e.reason + " on " + e.where }
