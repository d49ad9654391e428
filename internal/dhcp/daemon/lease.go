package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/tenon-cni/tenon/internal/about"
	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/dhcp/v4"
	"github.com/tenon-cni/tenon/internal/dhcp/v6"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/netns"
)

// farewellTime is for the message that gives addresses back, of each protocol.
const farewellTime = time.Second

// lease is an attachment that the daemon looks after: a goroutine, and no socket while there is nothing to wait for.
type lease struct {
	d    *Daemon
	name string // of its file
	log  *slog.Logger

	stop  context.CancelCauseFunc // ends the goroutine: errRelease, errLeave
	ended chan struct{}           // closed when it has
	first chan struct{}           // closed when the first lease is there, or will not come

	// What others may ask.
	mu      sync.Mutex
	saved   Record
	status  string
	reason  string // why there is no lease, or it was not prolonged
	failure error  // why there was no first lease

	// What belongs to the goroutine.
	rec      Record
	kept     *netns.NS // nil where paths lead to the namespace
	nextLook time.Time
	answered bool // first is closed
	four     four
	six      *six  // nil: no DHCPv6
	queue    []any // actions of their machines
}

var (
	errRelease = errors.New("the attachment was deleted")
	errLeave   = errors.New("the daemon ends")
)

// start looks after an attachment. at is its place, which is closed at the end; it is nil for one whose lease is there already.
func (d *Daemon) start(rec Record, total time.Duration, at *spot) *lease {
	l := &lease{
		d: d, name: dhcp.FileName(rec.Attachment), rec: rec, saved: rec, ended: make(chan struct{}), first: make(chan struct{}),
		log: d.Log.With(about.Args(rec.Attachment)...), nextLook: time.Now().Add(rand.N(d.LookEvery)),
	}
	mac, _ := net.ParseMAC(rec.Place.MAC) // it was written by enter
	l.four = d.newFour(&rec, mac, total)
	if rec.DHCP6 == dhcp.Stateful || rec.DHCP6 == dhcp.Stateless {
		l.six = d.newSix(&rec, total)
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

func (l *lease) run(ctx context.Context, at *spot) {
	defer l.hangUp()
	if at != nil {
		l.prepare(ctx, at)
		l.four.insist()
	}
	l.then4(l.four.machine.Start(time.Now(), l.rec.Lease))
	if l.six != nil {
		l.then6(l.six.machine.Start(time.Now(), l.rec.Six))
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

// answer lets those go on who wait for the first lease, or for that it will not come.
func (l *lease) answer() {
	if !l.answered {
		l.answered = true
		close(l.first)
	}
}

// prepare brings the interface up, and waits a while until it can send: before, the kernel drops messages.
func (l *lease) prepare(ctx context.Context, at *spot) {
	if !l.d.host.reachable(&l.rec.Place) {
		l.kept = at.ns
	} else {
		defer at.Close()
	}
	wait, cancel := context.WithTimeout(ctx, l.d.Timeout)
	defer cancel()
	err := at.visit(wait, func(space *kernel.Space) error {
		if err := space.Up(at.link); err != nil {
			return err
		}
		if err := space.WaitUp(wait, at.link); err != nil {
			l.log.Warn("no carrier yet", "error", err)
		}
		if l.six == nil {
			return nil
		}
		if err := space.WaitDAD(wait, at.link); err != nil {
			l.log.Warn("no link-local address yet", "error", err)
		}
		return nil
	})
	if err != nil {
		l.log.Warn("interface", "error", err)
	}
}

// hangUp closes what is open.
func (l *lease) hangUp() {
	l.four.hangUp()
	if l.six != nil {
		l.six.hangUp()
	}
	if l.kept != nil {
		l.kept.Close()
	}
}

// wait waits for what comes next, and tells the machine. An error is the end.
func (l *lease) wait(ctx context.Context) error {
	next, messages := l.four.next(l.nextLook)
	var messages6 chan *v6.Message
	if l.six != nil {
		next, messages6 = l.six.next(next)
	}
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case m := <-messages:
		l.log.Debug("received", "type", m.Type(), "address", m.Your)
		l.four.early = nil
		l.then4(l.four.machine.Received(time.Now(), m))
	case m := <-messages6:
		l.log.Debug("received", "type", m.Type)
		l.then6(l.six.machine.Received(time.Now(), m))
	case <-timer.C:
		l.repeat()
		l.then4(l.four.machine.Tick(time.Now()))
		if l.six != nil {
			l.then6(l.six.machine.Tick(time.Now()))
		}
		return l.look(ctx)
	}
	return nil
}

// look sees now and then whether the interface is still there.
func (l *lease) look(ctx context.Context) error {
	if time.Now().Before(l.nextLook) {
		return nil
	}
	l.nextLook = time.Now().Add(l.d.LookEvery)
	at, err := l.open(ctx)
	if errors.Is(err, errGone) {
		return err
	}
	if err != nil {
		l.log.Warn("place", "error", err)
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

// work does what the machines want. An error is the end.
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
		return l.sent(a.Message.Type(), l.send4(ctx, a))
	case v6.Send:
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

// sent is the end where there is no interface to send on any more. Any other message that was not sent is as good as lost.
func (l *lease) sent(kind fmt.Stringer, err error) error {
	if err == nil || errors.Is(err, errGone) {
		return err
	}
	l.log.Warn("send", "type", kind, "error", err)
	return nil
}

// publish lets others see where the client is.
func (l *lease) publish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.saved, l.status, l.reason = l.rec, l.four.machine.State(), l.four.machine.Reason()
	if l.six != nil {
		l.status += ", DHCPv6 " + l.six.machine.State()
		l.reason = cmp.Or(l.reason, l.six.machine.Reason())
	}
}

// open opens the place of the lease. The error wraps errGone if that is not there any more.
func (l *lease) open(ctx context.Context) (*spot, error) { return l.d.host.open(ctx, &l.rec, l.kept) }

// change changes the interface. An error is told, and by CHECK too, as the interface differs then; one that is gone needs none.
func (l *lease) change(ctx context.Context, how func(*spot) error) {
	at, err := l.open(ctx)
	if err == nil {
		err = errors.Join(how(at), at.Close())
	}
	if err != nil && !errors.Is(err, errGone) {
		l.log.Error("interface is not changed", "error", err)
	}
}

// keep saves the lease. An error ends one that nobody has heard of yet.
func (l *lease) keep() error {
	err := l.d.leases.Write(l.name, &l.rec)
	if err != nil && l.answered {
		l.log.Error("lease is not saved", "error", err)
		return nil
	}
	return err
}

// got keeps what a server has given: it is in its file before anybody hears of it. The answer is given when all is there
// that was asked for.
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

// end ends the lease: it is given back where that is possible, or left to the next daemon.
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
	if err := l.d.leases.Remove(l.name); err != nil {
		l.log.Error("lease is not removed", "error", err)
	}
	l.mu.Lock()
	l.failure = why
	l.mu.Unlock()
	l.answer()
	l.d.forget(l)
}

// where is the interface for messages, and whether it has a carrier.
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

// noLeaseError says that no server has given an address in time.
type noLeaseError struct{ reason, where string }

func (e *noLeaseError) Error() string { return e.reason + " on " + e.where }
