package daemon

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/tenon-cni/tenon/internal/dhcp/v4"
)

// four is the DHCPv4 client of a lease. Only the goroutine of the lease uses it.
type four struct {
	transport[*v4.Message]
	machine *v4.Machine
	early   []time.Time // times at which to repeat the first message, see repeats
	opening []byte      // the first message
}

// repeats are the delays after which the first message is sent again unless an answer has come. A
// bridge port does not forward packets for a moment after its interface is set up.
var repeats = [...]time.Duration{250 * time.Millisecond, time.Second, 3 * time.Second}

func (l *lease) newFour(total time.Duration) four {
	d, rec := l.d, &l.rec
	mac, _ := net.ParseMAC(rec.Place.MAC) // enter has written it
	machine := v4.New(v4.Params{
		MAC: mac, ClientID: rec.ClientID, Options: rec.Options, Parameters: rec.Parameters,
		Broadcast: d.Broadcast || rec.Broadcast, Probe: true,
		Timeout: d.Timeout, Pause: d.ResendMax, Total: total,
	})
	via := transport[*v4.Message]{lease: l, open: (*openLink).open4, decode: v4.Decode}
	return four{transport: via, machine: machine}
}

// next returns the time of the next action, at most by, and the channel of messages.
func (f *four) next(by time.Time) (time.Time, chan *v4.Message) {
	if len(f.early) > 0 && f.early[0].Before(by) {
		by = f.early[0]
	}
	return f.transport.next(by, f.machine.Expects())
}

// insist schedules repeats of the first message.
func (f *four) insist() {
	for _, d := range repeats {
		f.early = append(f.early, time.Now().Add(d))
	}
}

// repeat sends the first message again when a repeat is due.
func (l *lease) repeat() {
	f := &l.four
	if len(f.early) == 0 || time.Now().Before(f.early[0]) {
		return
	}
	f.early = f.early[1:]
	if f.listener != nil && f.opening != nil {
		if err := f.listener.broadcast(netip.Addr{}, netip.Addr{}, f.opening); err != nil {
			l.log.Warn("cannot send", "error", err)
		}
	}
}

func (l *lease) send4(ctx context.Context, s v4.Send) error {
	f := &l.four
	if err := f.connect(ctx); err != nil {
		return err
	}
	l.log.Debug("send", "type", s.Message.Type(), "from", s.From, "to", s.To)
	b := s.Message.Encode()
	if len(f.early) > 0 {
		f.opening = b
	}
	if !s.To.IsValid() {
		return f.listener.broadcast(s.From, netip.Addr{}, b)
	}
	f.listener.closePort()
	port, err := f.listener.at.unicast(s.From, s.To, b)
	if err != nil { // the interface does not have the address yet, or has lost it
		l.log.Debug("sent the message by broadcast", "reason", err)
		return f.listener.broadcast(s.From, s.To, b)
	}
	f.listener.port = port
	return nil
}

// probe4 probes the link for an address.
func (l *lease) probe4(ctx context.Context, address netip.Addr) {
	var by net.HardwareAddr
	err := l.four.connect(ctx)
	if err == nil {
		by, err = l.four.listener.at.probe(ctx, address)
	}
	if err != nil {
		l.log.Warn("cannot probe the address", "address", address, "error", err)
	}
	l.four.then(l.four.machine.Probed(time.Now(), address, by))
}

func (l *lease) bind4(ctx context.Context, b v4.Bind) error {
	before := b.Before
	// The interface plugin applies the result, which contains everything but the MTU.
	if !l.answered {
		before = new(b.Lease)
		before.MTU = 0
	}
	if before == nil || !before.Same(b.Lease) {
		l.apply(ctx, func(at *openLink) error { return at.apply(ctx, before, &b.Lease, &l.rec) })
	}
	l.rec.Lease, l.rec.Lost, l.rec.Last = &b.Lease, "", nil
	l.log.Info("bound", "address", b.Lease.Address, "server", b.Lease.Server, "renew",
		b.Lease.Renew, "expires", b.Lease.Expires)
	return l.got()
}

func (l *lease) lose4(ctx context.Context, a v4.Lose) error {
	l.log.Error("lease is lost", "address", a.Lease.Address, "reason", a.Reason)
	l.apply(ctx, func(at *openLink) error { return at.apply(ctx, &a.Lease, nil, &l.rec) })
	l.rec.Lease, l.rec.Lost, l.rec.Last = nil, a.Reason, &a.Lease
	return l.keep()
}

// release4 releases the address, and waits until the message has left. A release has no answer.
func (l *lease) release4(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	for _, a := range l.four.machine.Release() {
		s, ok := a.(v4.Send)
		if !ok {
			continue
		}
		err := l.send4(ctx, s)
		if err == nil && l.four.listener.port != nil {
			err = l.four.listener.port.sent(ctx)
		}
		if err != nil {
			l.log.Warn("cannot release the address at the server", "error", err)
			continue
		}
		l.log.Info("released", "address", s.From, "server", s.To)
	}
}
