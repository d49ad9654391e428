package routes_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/cluster/routes"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestWatch: whatever deletes objects of this package, or changes the links below, causes an event,
// and Apply repairs it. Then there are no more events and changes.
func TestWatch(t *testing.T) {
	t.Parallel()
	s := newSingle(t)
	s.options.Nodes = s.options.Nodes[:1] // the kernel removes IPv6 addresses of a link that is down
	w := wanting(peerOf4(nearby(2)), peerOf4(distant(3)))
	s.host.Batch("link add pods type bridge", "link set pods up",
		"address add 10.64.1.1/26 dev pods", "route add default via 192.0.2.2")
	r := s.router(nil)
	apply := func() int {
		t.Helper()
		report, err := s.try(r, w)
		if err != nil {
			t.Fatal(err)
		}
		return report.Changes
	}
	apply()
	want := s.state()
	ctx, cancel := context.WithCancel(t.Context())
	var events <-chan struct{}
	s.host.Do(func() {
		var err error
		if events, err = r.Watch(ctx); err != nil {
			t.Fatal(err)
		}
	})
	await := func(what string) {
		t.Helper()
		select {
		case _, open := <-events:
			if !open {
				t.Fatalf("%s: the channel is closed", what)
			}
		case <-time.After(testnet.Patience):
			t.Fatalf("%s: no event", what)
		}
	}
	for _, row := range []struct {
		name     string
		commands []string
		repaired []string // commands that end the disturbance, before the state is compared
	}{
		{"route deleted", []string{"route del 10.64.3.0/26"}, nil},
		{"routes flushed", []string{"route flush proto 117"}, nil},
		{"route replaced", []string{"route replace 10.64.3.0/26 via 192.0.2.9 metric 2000"},
			[]string{"route del 10.64.3.0/26 via 192.0.2.9 metric 2000"}},
		{"neighbour deleted", []string{"neigh del 198.51.100.3 dev tenon-vx"}, nil},
		{"device down", []string{"link set tenon-vx down"}, nil},
		{"device deleted", []string{"link del tenon-vx"}, nil},
		{"MTU of the device", []string{"link set tenon-vx mtu 1300"}, nil},
		{"MTU of the link", []string{"link set uplink mtu 1400"}, []string{"link set uplink mtu 1500"}},
		{"link down", []string{"link set uplink down"},
			[]string{"link set uplink up", "route add default via 192.0.2.2",
				"address add 2001:db8::1/64 dev uplink nodad"}},
		{"source gone", []string{"address del 10.64.1.1/26 dev pods"},
			[]string{"address add 10.64.1.1/26 dev pods"}},
		{"a closer network", []string{"address add 198.51.100.1/24 dev pods"},
			[]string{"address del 198.51.100.1/24 dev pods"}},
	} {
		s.host.Batch(row.commands...)
		await(row.name)
		changes := apply()
		if row.repaired != nil {
			s.host.Batch(row.repaired...)
			await(row.name + " repaired")
		}
		testnet.Eventually(t, func() error {
			changes += apply()
			if got := s.state(); got != want {
				return fmt.Errorf("%s (-want +got):\n%s", row.name, testnet.Diff(want, got))
			}
			return nil
		})
		if changes == 0 {
			t.Errorf("%s: nothing was repaired", row.name)
		}
		for quiet := false; !quiet; { // the events of the repair
			select {
			case <-events:
			case <-time.After(100 * time.Millisecond):
				quiet = true
			}
		}
	}
	s.host.Command("bridge", "fdb", "del", routes.VTEPMAC("3").String(), "dev", "tenon-vx", "dst", "198.51.100.3")
	await("fdb entry deleted")
	apply()
	s.expect("fdb entry deleted", want)
	vtep := routes.VTEPMAC("3").String()
	s.host.Command("bridge", "fdb", "append", vtep, "dev", "tenon-vx", "dst", "198.51.100.9")
	s.host.Command("bridge", "fdb", "append", "02:00:00:00:00:09", "dev", "tenon-vx", "dst",
		"198.51.100.9", "port", "7")
	apply()
	s.expect("foreign fdb entries", want)
	cancel()
	for range events { // until it is closed
	}
}

func peerOf4(p routes.Peer) routes.Peer {
	p.Addrs = p.Addrs[:1]
	return p
}

// TestUnrelated: changes of interfaces of containers cause no event.
func TestUnrelated(t *testing.T) {
	t.Parallel()
	s := newSingle(t)
	r := s.router(nil)
	if _, err := s.try(r, wanting()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var events <-chan struct{}
	s.host.Do(func() {
		var err error
		if events, err = r.Watch(ctx); err != nil {
			t.Fatal(err)
		}
	})
	testnet.Eventually(t, func() error { // the kernel may still report that the uplink is up
		s.host.Batch("link add unrelated type bridge", "link set unrelated up",
			"address add 203.0.113.1/24 dev unrelated", "link del unrelated")
		select {
		case <-events:
			return errors.New("an event about an unrelated link")
		case <-time.After(100 * time.Millisecond):
			return nil
		}
	})
	cancel()
	for range events {
	}
}
