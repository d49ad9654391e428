package daemon_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/dhcp/v4"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/dhcpserver"
)

// TestWire checks that the server gets the options that a network provides and requests, the
// broadcast flag, and a client identifier of at most 255 bytes, which differs between interfaces
// even if their names are long.
func TestWire(t *testing.T) {
	t.Parallel()
	n := dhcpserver.NewNet(t, "a", "b")
	heard := overhear(t, n)
	answer(t, n, func(question *v4.Message) [][]byte { return grant(question, 60) })
	d := newNode(t, n)
	d.stop()
	d.o.Broadcast = true
	d.start()
	network, container := strings.Repeat("n", 230), strings.Repeat("c", 64)
	d.conf = `{"cniVersion": "1.1.0", "name": "` + network + `-END", "type": "x", "ipam": {"type": "dhcp", "request": [{"option": "121"}, {"option": "interface-mtu"}],
		"provide": [{"option": "host-name", "value": "x", "fromArg": "K8S_POD_NAME"}, {"option": "60", "value": "tenon"}]}}`
	ids := map[string]bool{}
	for _, netns := range []string{"a", "b"} { // this server gives both the same address
		q := dhcp.Request{
			Verb: dhcp.Allocate, Container: container, IfName: "eth0",
			Netns:  n.Container(netns).Path(),
			Args:   "IgnoreUnknown=1;K8S_POD_NAME=web",
			Config: json.RawMessage(strings.Replace(d.conf, "-END", netns, 1)),
		}
		if err := d.ask(q); err != nil {
			t.Fatal(err)
		}
	}
	kinds := map[v4.Type]int{}
	for _, m := range heard() {
		kinds[m.Type()]++
		id := m.Get(v4.OptClientID)
		ids[string(id)] = true
		if !m.Broadcast || len(id) != 255 ||
			string(m.Get(v4.OptParameters)) != "\x79\x1a\x03\x01" ||
			m.Text(byte(dhcpv4.OptionHostName)) != "web" ||
			string(m.Get(byte(dhcpv4.OptionClassIdentifier))) != "tenon" ||
			string(m.Get(v4.OptMaxMessageSize)) != "\x05\xdc" {
			t.Errorf("%+v", m.Message)
		}
	}
	if kinds[v4.Discover] < 2 || kinds[v4.Request] < 2 || len(ids) != 2 {
		t.Errorf("%v of %d clients", kinds, len(ids))
	}
}

// TestRoutes checks that the routes of a result are the classless ones alone or, without them, the
// classful ones and one through the first router. All have the metric.
func TestRoutes(t *testing.T) {
	t.Parallel()
	routers := v4.Option{Code: v4.OptRouter, Value: []byte{10, 92, 0, 1, 10, 92, 0, 2}}
	classful := v4.Option{Code: v4.OptStaticRoutes,
		Value: []byte{10, 0, 0, 0, 10, 92, 0, 3, 192, 168, 1, 0, 10, 92, 0, 4}}
	classless := v4.Option{Code: v4.OptClasslessRoute,
		Value: []byte{16, 10, 50, 10, 92, 0, 9, 16, 10, 60, 0, 0, 0, 0}}
	for _, tt := range []struct {
		name    string
		options []v4.Option
		want    string
	}{
		{"none", nil, "gateway invalid IP:"},
		{"routers", []v4.Option{routers}, "gateway 10.92.0.1: 0.0.0.0/0 10.92.0.1 5"},
		{"classful", []v4.Option{classful, routers},
			"gateway 10.92.0.1: 10.0.0.0/8 10.92.0.3 5, 192.168.1.0/24 10.92.0.4 5, 0.0.0.0/0 10.92.0.1 5"},
		{"classless", []v4.Option{classful, routers, classless},
			"gateway 10.92.0.1: 10.50.0.0/16 10.92.0.9 5, 10.60.0.0/16 0.0.0.0 5 link"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := dhcpserver.NewNet(t, "a")
			answer(t, n, func(question *v4.Message) [][]byte {
				return grant(question, 60, tt.options...)
			})
			d := newNode(t, n)
			d.conf = strings.Replace(d.conf, `"type": "dhcp"`, `"type": "dhcp", "priority": 5`, 1)
			r := d.must(dhcp.Allocate, "a")
			var routes []string
			for _, route := range r.Routes {
				text := fmt.Sprint(route.Dst, " ", route.GW, " ", route.Priority)
				if route.Scope == cni.Some(253) {
					text += " link"
				}
				routes = append(routes, text)
			}
			if got := strings.TrimSpace(fmt.Sprintf("gateway %v: %s", r.IPs[0].Gateway,
				strings.Join(routes, ", "))); got != tt.want {
				t.Errorf("got %s, expected %s", got, tt.want)
			}
		})
	}
}

// TestChangedRoutes checks that changes of a renewal other than the address reach the interface,
// the result and the next daemon, and that routes of other programs stay.
func TestChangedRoutes(t *testing.T) {
	t.Parallel()
	n := dhcpserver.NewNet(t, "a")
	var changed atomic.Bool
	stop := answer(t, n, func(question *v4.Message) [][]byte {
		if changed.Load() {
			return grant(question, 60,
				v4.Option{Code: v4.OptMTU, Value: []byte{1300 >> 8, 1300 & 0xff}},
				v4.Option{Code: v4.OptDNS, Value: []byte{10, 92, 0, 54}},
				v4.Option{Code: v4.OptDomainName, Value: []byte("new.example")},
				v4.Option{Code: v4.OptClasslessRoute,
					Value: []byte{16, 172, 30, 10, 92, 0, 2, 16, 172, 31, 10, 92, 0, 9}})
		}
		return grant(question, 60, v4.Option{Code: v4.OptRenewalTime, Value: []byte{0, 0, 0, 1}},
			v4.Option{Code: v4.OptMTU, Value: []byte{1400 >> 8, 1400 & 0xff}},
			v4.Option{Code: v4.OptDNS, Value: []byte{10, 92, 0, 53}},
			v4.Option{Code: v4.OptClasslessRoute,
				Value: []byte{16, 172, 30, 10, 92, 0, 2, 16, 172, 29, 10, 92, 0, 9}})
	})
	d := newNode(t, n)
	d.conf = strings.Replace(d.conf, `{"option": "121"}`, `{"option": "121"}, {"option": "26"}`, 1)
	d.add("a")
	c := n.Container("a")
	if shown := c.Command("ip", "link", "show", "eth0"); !strings.Contains(shown, " mtu 1400 ") {
		t.Errorf("the MTU that was requested: %s", shown)
	}
	c.Batch("route add 198.51.100.0/24 via 10.92.0.3 dev eth0")
	changed.Store(true)
	want := "10.92.0.0/24 dev eth0 proto kernel scope link src 10.92.0.66\n172.30.0.0/16 via 10.92.0.2\n172.31.0.0/16 via 10.92.0.9\n198.51.100.0/24 via 10.92.0.3\n"
	testnet.Eventually(t, func() error {
		got := c.Command("ip", "-4", "route", "show", "dev", "eth0")
		if plain(got) != plain(want) {
			return fmt.Errorf("routes\n%s\nexpected\n%s", got, want)
		}
		if shown := c.Command("ip", "link", "show", "eth0"); !strings.Contains(shown,
			" mtu 1300 ") {
			return errors.New(shown)
		}
		// The daemon changes the interface before it publishes the lease.
		if l, _ := d.lease("a"); l.DNS.Domain != "new.example" {
			return fmt.Errorf("the list has %v", l.DNS)
		}
		return nil
	})
	stop()
	for _, when := range []string{"after the renewal", "after a restart"} {
		var routes []string
		for _, r := range d.must(dhcp.Check, "a").Routes {
			routes = append(routes, r.Dst.String()+" "+r.GW.String())
		}
		if want := []string{"172.30.0.0/16 10.92.0.2",
			"172.31.0.0/16 10.92.0.9"}; !slices.Equal(routes, want) {
			t.Errorf("%s: the result has %v, expected %v", when, routes, want)
		}
		if l, _ := d.lease("a"); fmt.Sprint(l.DNS) != "{[10.92.0.54] new.example [] []}" {
			t.Errorf("%s: the list has %v", when, l.DNS)
		}
		d.stop()
		d.start()
	}
}

// plain returns a list of routes without the attributes of the interface.
func plain(routes string) string {
	var lines []string
	for line := range strings.Lines(strings.ReplaceAll(routes, "dev eth0 ", "")) {
		lines = append(lines, strings.TrimSpace(line))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestUnrequestedMTU checks that an MTU that the client has not requested changes nothing.
func TestUnrequestedMTU(t *testing.T) {
	t.Parallel()
	n := dhcpserver.NewNet(t, "a")
	answer(t, n, func(question *v4.Message) [][]byte {
		return grant(question, 60,
			v4.Option{Code: v4.OptMTU, Value: []byte{1400 >> 8, 1400 & 0xff}})
	})
	newNode(t, n).add("a")
	if shown := n.Container("a").Command("ip", "link", "show", "eth0"); !strings.Contains(shown,
		" mtu 1500 ") {
		t.Error(shown)
	}
}

// TestNotSaved checks that the daemon releases an address if it cannot save the lease.
func TestNotSaved(t *testing.T) {
	t.Parallel()
	n := dhcpserver.NewNet(t, "a")
	heard := overhear(t, n)
	answer(t, n, func(question *v4.Message) [][]byte { return grant(question, 60) })
	d := newNode(t, n)
	leases := d.socket + ".d/leases"
	if err := errors.Join(os.RemoveAll(leases), os.WriteFile(leases, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if r, err := d.call(dhcp.Allocate, "a"); err == nil || !strings.Contains(err.Error(), leases) {
		t.Errorf("%+v, %v", r, err)
	}
	testnet.Eventually(t, func() error {
		if !slices.ContainsFunc(heard(), func(m sent) bool { return m.Type() == v4.Release }) {
			return errors.New("not given back")
		}
		return nil
	})
}

// TestHandedOver checks that the daemon uses a namespace even if its path does not exist where it
// runs, because the plugin passes the namespace.
func TestHandedOver(t *testing.T) {
	t.Parallel()
	n := dhcpserver.NewNet(t, "a")
	dhcpserver.StartRenewing(t, n, isc, pool, 5)
	d := newNode(t, n)
	q := dhcp.Request{Container: "a", IfName: "eth0", Netns: "/of/another/mount/namespace",
		Config: json.RawMessage(d.conf)}
	for _, verb := range []dhcp.Verb{dhcp.Allocate, dhcp.Check} {
		q.Verb = verb
		ns, err := os.Open(n.Container("a").Path())
		if err != nil {
			t.Fatal(err)
		}
		q.NS = ns
		if err := d.ask(q); err != nil {
			t.Errorf("%s: %v", verb, err)
		}
		ns.Close()
	}
	before, _ := d.lease("a")
	// As the interface plugin does.
	n.Container("a").Batch("addr add " + before.Addresses[0].String() + " brd + dev eth0")
	testnet.Eventually(t, func() error {
		if l, _ := d.lease("a"); !l.Expires.After(before.Expires) {
			return fmt.Errorf("not renewed: %+v", l)
		}
		return nil
	})
}
