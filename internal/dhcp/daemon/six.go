package daemon

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/dhcp/v6"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// six is the DHCPv6 client of a lease. Only the goroutine of the lease uses it.
type six struct {
	transport[*v6.Message]
	machine *v6.Machine
}

func (l *lease) newSix(total time.Duration) *six {
	rec := &l.rec
	h := fnv.New32a()
	h.Write(rec.ClientID)
	machine := v6.New(v6.Params{
		ClientID: duid(l.d.leases.Boot, rec.Container), IAID: h.Sum32(),
		Request: []dhcpv6.OptionCode{
			dhcpv6.OptionDNSRecursiveNameServer, dhcpv6.OptionDomainSearchList,
		},
		Stateless: rec.DHCP6 == dhcp.Stateless, Probe: true, Total: total,
	})
	via := transport[*v6.Message]{lease: l, open: (*openLink).open6, decode: v6.Decode}
	return &six{transport: via, machine: machine}
}

// duid returns the identifier of a container (RFC 8415 section 11). Each container has its own,
// because servers treat it as a node, and an IAID of 32 bits is too short for all containers of a
// host. A MAC address is random and ends with its interface (section 11.4), so the identifier is a
// hash of the boot ID and the container. It needs no storage, because no container survives a boot.
func duid(boot, container string) v6.DUID {
	h := fnv.New128a()
	fmt.Fprintf(h, "%s/%s", boot, container)
	u := [16]byte(h.Sum(nil))
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80 // version 8 (RFC 9562 section 5.8)
	return v6.UUID(u)
}

func (l *lease) send6(ctx context.Context, s v6.Send) error {
	if err := l.six.connect(ctx); err != nil {
		return err
	}
	l.log.Debug("send", "type", s.Message.Type)
	return l.six.listener.multicast(s.Message.Encode())
}

// probe6 lets the kernel test whether other nodes have addresses.
func (l *lease) probe6(ctx context.Context, addresses []netip.Addr) {
	var used []netip.Addr
	at, err := l.open(ctx)
	if err == nil {
		used, err = at.duplicates(ctx, addresses)
		err = errors.Join(err, at.Close())
	}
	if err != nil {
		l.log.Warn("duplicate address detection", "error", err)
	}
	l.six.then(l.six.machine.Probed(time.Now(), used...))
}

// duplicates returns the addresses in a list that other nodes have. The interface has the addresses
// only during the test.
func (o *openLink) duplicates(
	ctx context.Context, addresses []netip.Addr,
) (used []netip.Addr, err error) {
	tx := kernel.Begin(ctx)
	space, err := tx.Open(o.ns)
	if err != nil {
		return nil, err
	}
	defer space.Close()
	for _, a := range addresses {
		if err == nil {
			err = space.Addrs.Add(o.link, netip.PrefixFrom(a, 128))
		}
	}
	if err == nil {
		err = space.Addrs.WaitDAD(ctx, o.link)
	}
	var found *kernel.DuplicateError
	// The other addresses are still tested.
	for errors.As(err, &found) && slices.Contains(addresses, found.Addr.Addr()) {
		used = append(used, found.Addr.Addr())
		if err = space.Addrs.Delete(o.link, found.Addr); err == nil {
			err = space.Addrs.WaitDAD(ctx, o.link)
		}
	}
	return used, errors.Join(err, tx.Rollback())
}

// conflicts6 declines the addresses of the lease that the kernel does not use because another node
// has them.
func (l *lease) conflicts6(ctx context.Context, at *openLink) {
	var used []netip.Addr
	err := at.visit(ctx, func(space *kernel.Space) error {
		found, err := space.Addrs.Duplicates(at.link)
		for _, p := range found {
			used = append(used, p.Addr())
		}
		return err
	})
	if err != nil {
		l.log.Warn("duplicate address detection", "error", err)
	}
	l.six.then(l.six.machine.Declined(time.Now(), used...))
}

func (l *lease) bind6(ctx context.Context, b v6.Bind) error {
	if l.answered && (b.Before == nil || !b.Before.Same(b.Lease)) {
		l.apply(ctx, func(at *openLink) error { return at.apply6(ctx, b.Before, &b.Lease) })
	}
	l.rec.Six, l.rec.Lost6 = &b.Lease, ""
	l.log.Info("bound by DHCPv6", "addresses", b.Lease.Prefixes(), "renew", b.Lease.Renew)
	return l.got()
}

func (l *lease) lose6(ctx context.Context, a v6.Lose) error {
	l.log.Error("DHCPv6 lease is lost", "reason", a.Reason)
	l.apply(ctx, func(at *openLink) error { return at.apply6(ctx, &a.Lease, nil) })
	l.rec.Six, l.rec.Lost6 = nil, a.Reason
	return l.keep()
}

// apply6 changes the addresses of the interface from one lease to another. Either lease may be nil.
func (o *openLink) apply6(ctx context.Context, before, after *v6.Lease) error {
	had, want := before.Prefixes(), after.Prefixes()
	return o.visit(ctx, func(space *kernel.Space) error {
		if err := o.addAddresses(space, without(want, had)...); err != nil {
			return err
		}
		for _, p := range without(had, want) {
			if err := space.Addrs.Delete(o.link, p); err != nil {
				return err
			}
		}
		return nil
	})
}

// release6 removes the addresses from the interface (RFC 8415 section 18.2.7), releases them, and
// waits until the server answers.
func (l *lease) release6(ctx context.Context) {
	if l.six == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	if len(l.rec.Six.Prefixes()) > 0 {
		l.apply(ctx, func(at *openLink) error { return at.apply6(ctx, l.rec.Six, nil) })
	}
	actions, wake := l.six.machine.Release(time.Now())
	for !l.six.machine.Stopped() {
		for _, a := range actions { // at most one
			if err := l.send6(ctx, a.(v6.Send)); err != nil {
				l.log.Warn("cannot release the addresses at the DHCPv6 server", "error", err)
				return
			}
		}
		select {
		case m := <-l.six.listener.messages:
			actions, wake = l.six.machine.Received(time.Now(), m)
		case <-time.After(time.Until(wake)):
			actions, wake = l.six.machine.Tick(time.Now())
		case <-ctx.Done():
			l.log.Warn("the DHCPv6 server has not confirmed the release")
			return
		}
	}
}

// add6 adds the DHCPv6 lease to a result. DHCPv6 does not provide routes.
func add6(r *cni.Result, s *Record) {
	if s.Six == nil {
		return
	}
	for _, p := range s.Six.Prefixes() {
		r.IPs = append(r.IPs, cni.IP{Address: p})
	}
	if s.DHCP6 == dhcp.Stateless {
		r.DNS = (&Record{Six: s.Six}).DNS()
	}
}
