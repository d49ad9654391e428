package ovs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/ovslab"
)

// TestSegment: containers of a segment reach each other across hosts that use different VLANs for
// it. A container of another segment, of a VLAN, and of a trunk on the same bridge and in the same
// subnet does not reach them. The last DEL removes all rows.
func TestSegment(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	everywhere(t, func(t *testing.T, start start, f family) {
		c := newCluster(t, 2, start, f)
		a, b := c.hosts[0], c.hosts[1]
		b.must(cni.Add, "first", conf{"vlan": 1}) // host b has to choose another VLAN
		clean := []string{a.sw.Rows(), b.sw.Rows()}
		others := conf{"trunk": []conf{{"minID": 100, "maxID": 200}}}
		a42 := a.add("a42", c.segment(a, 42), "10.9.0.1/24")
		b42 := b.add("b42", c.segment(b, 42), "10.9.0.2/24")
		a43 := a.add("a43", c.segment(a, 43), "10.9.0.3/24")
		b43 := b.add("b43", c.segment(b, 43), "10.9.0.4/24")
		vlan := a.add("vlan", conf{"vlan": 7}, "10.9.0.5/24")
		trunk := a.add("trunk", others, "10.9.0.6/24")

		tag := func(h *host) string {
			return h.sw.VSCtl("get", "Bridge", "ovs0", "external_ids:cni-vni-42")
		}
		if tag(a) == tag(b) {
			t.Errorf("both hosts use VLAN %s", tag(a))
		}
		testnet.Reaches(t, a42, addr(2), true)
		testnet.Reaches(t, b42, addr(1), true)
		testnet.Reaches(t, a43, addr(4), true)
		testnet.Reaches(t, b43, addr(3), true)
		for from, others := range map[*testnet.Namespace][]int{
			a42: {3, 4, 5, 6}, b42: {3, 4, 5, 6}, b43: {1, 2, 5, 6}, vlan: {1, 2, 3, 4, 6}, trunk: {1, 2, 3, 4, 5},
		} {
			for _, other := range others {
				testnet.Reaches(t, from, addr(other), false)
			}
		}

		for _, x := range []struct {
			h         *host
			container string
			c         conf
		}{
			{a, "a42", c.segment(a, 42)}, {b, "b42", c.segment(b, 42)}, {a, "a43", c.segment(a, 43)},
			{b, "b43", c.segment(b, 43)}, {a, "vlan", conf{"vlan": 7}}, {a, "trunk", others},
		} {
			x.h.must(cni.Del, x.container, x.c)
		}
		for i, h := range c.hosts {
			if diff := testnet.Diff(clean[i], h.sw.Rows()); diff != "" {
				t.Errorf("left on %s:\n%s", h.Host.Name, diff)
			}
		}
	})
}

// TestMesh: among three hosts with tunnels between each two, each port of the segment receives a
// broadcast once, and its sender not at all.
func TestMesh(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	everywhere(t, func(t *testing.T, start start, f family) {
		c := newCluster(t, 3, start, f)
		var ports []*port
		for _, h := range c.hosts {
			for i := range 2 {
				name := fmt.Sprintf("c%d%d", h.number, i)
				h.add(name, c.segment(h, 42), fmt.Sprintf("10.9.%d.%d/16", h.number, i+1))
			}
			other := h.add(fmt.Sprintf("other%d", h.number), c.segment(h, 43), "10.9.9.9/16")
			ports = append(ports, open(t, other))
		}
		reached := c.hosts[0].Container("c00")
		testnet.Reaches(t, reached, addr(1, 1), true)
		testnet.Reaches(t, reached, addr(2, 1), true)
		for _, h := range c.hosts {
			for i := range 2 {
				ports = append(ports, open(t, h.Container(fmt.Sprintf("c%d%d", h.number, i))))
			}
		}
		const broadcasts = 20
		for _, sender := range ports {
			if strings.HasPrefix(sender.name, "other") {
				continue
			}
			for range broadcasts {
				sender.send(t, 0, "hello")
			}
			var want []string
			for _, p := range ports {
				if p != sender && !strings.HasPrefix(p.name, "other") {
					want = append(want, fmt.Sprintf("%s: hello x%d", p.name, broadcasts))
				}
			}
			received(t, ports, want...)
		}
	})
}

// TestMTU: the MTU of a segment is the largest with which packets fit into the underlay's 1500
// bytes.
func TestMTU(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	everywhere(t, func(t *testing.T, start start, f family) {
		c := newCluster(t, 2, start, f)
		var ends []*testnet.Namespace
		for _, h := range c.hosts {
			ends = append(ends, h.add("c", c.segment(h, 42), fmt.Sprintf("10.9.0.%d/24", h.number+1)))
		}
		mtu := map[family]int{ipv4: 1450, ipv6: 1430}[f]
		for _, end := range ends {
			if shown := end.Command("ip", "link", "show", "dev", "eth0"); !strings.Contains(shown, fmt.Sprintf("mtu %d ", mtu)) {
				t.Errorf("want MTU %d: %s", mtu, shown)
			}
		}
		ping := func(size int) error {
			return ends[0].Try("ping", "-n", "-M", "do", "-s", fmt.Sprint(size-28), "-c", "1", "-W", "2", "10.9.0.2")
		}
		testnet.Eventually(t, func() error { return ping(mtu) })
		if ping(mtu+1) == nil {
			t.Errorf("a packet of %d bytes passes", mtu+1)
		}
		for i, h := range c.hosts { // with a larger MTU the packet is lost on the way
			ends[i].Batch(fmt.Sprintf("link set eth0 mtu %d", mtu+1))
			h.Host.Batch(fmt.Sprintf("link set %s mtu %d", h.port("c"), mtu+1))
		}
		testnet.Eventually(t, func() error { return ping(mtu) })
		if err := ping(mtu + 1); err == nil {
			t.Errorf("with a larger MTU of the container a packet of %d bytes passes", mtu+1)
		}
	})
}

// TestRestarts: the traffic of a segment continues after the end of either daemon and its restart,
// and while ovsdb-server is down.
func TestRestarts(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	everywhere(t, func(t *testing.T, start start, f family) {
		c := newCluster(t, 2, start, f)
		a, b := c.hosts[0], c.hosts[1]
		from := a.add("c", c.segment(a, 42), "10.9.0.1/24")
		added := b.must(cni.Add, "c", c.segment(b, 42).with("10.9.0.2/24"))
		testnet.Reaches(t, from, addr(2), true)
		a.sw.DB.Kill()
		if a.sw.Datapath == ovslab.Kernel { // the other one forwards nothing without the database
			testnet.Reaches(t, from, addr(2), true)
		}
		a.sw.DB.Start()
		testnet.Reaches(t, from, addr(2), true)
		b.sw.Daemon.Kill()
		b.sw.Daemon.Start()
		b.sw.Address()
		testnet.Reaches(t, from, addr(2), true)
		check := c.segment(b, 42).with("10.9.0.2/24")
		check["prevResult"] = raw(added)
		b.must(cni.Check, "c", check)
		a.must(cni.Del, "c", c.segment(a, 42))
		b.must(cni.Del, "c", c.segment(b, 42))
	})
}
