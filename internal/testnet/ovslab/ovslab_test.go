package ovslab_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/ovslab"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// attach connects a container by a veth pair to a port of a bridge.
func attach(n *testnet.Net, s *ovslab.Switch, bridge, container, address string, port ...string) {
	c := n.Container(container)
	host := "port-" + container
	c.Batch("link add eth0 type veth peer name " + host)
	c.Command("ip", "link", "set", host, "netns", n.Host.Path())
	c.Batch("address add "+address+" dev eth0", "link set eth0 up")
	n.Host.Batch("link set " + host + " up")
	s.VSCtl(append([]string{"add-port", bridge, host}, port...)...)
}

// datapaths runs a test with each datapath.
func datapaths(t *testing.T,
	test func(t *testing.T, start func(testing.TB, *testnet.Namespace) *ovslab.Switch)) {
	for name, start := range map[string]func(testing.TB, *testnet.Namespace) *ovslab.Switch{
		"userspace": ovslab.Start, "kernel": ovslab.StartKernel,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start)
		})
	}
}

// TestTwoHosts connects containers of two hosts by VXLAN, over IPv4 and over IPv6. The hosts use
// different local tags.
func TestTwoHosts(t *testing.T) {
	t.Parallel()
	datapaths(t, func(t *testing.T, start func(testing.TB, *testnet.Namespace) *ovslab.Switch) {
		hosts := []*testnet.Net{testnet.New(t), testnet.New(t)}
		var switches []*ovslab.Switch
		for _, h := range hosts {
			switches = append(switches, start(t, h.Host))
		}
		ovslab.Connect(t, switches...)
		for i, s := range switches {
			s.Bridge("ovs0")
			tag := fmt.Sprintf("tag=%d", 5+i)
			v4, v6 := ovslab.Underlay(1 - i)
			for key, remote := range []netip.Addr{v4, v6} {
				port := fmt.Sprintf("tunnel%d", key)
				s.VSCtl("add-port", "ovs0", port, fmt.Sprintf("tag=%d%d", 5+i, key), "--", "set",
					"Interface", port, "type=vxlan", fmt.Sprintf("options:key=%d", 42+key),
					"options:remote_ip="+remote.String())
				attach(hosts[i], s, "ovs0", fmt.Sprintf("c%d", key),
					fmt.Sprintf("10.9.%d.%d/24", key, i+1), fmt.Sprintf("%s%d", tag, key))
			}
		}
		for key := range 2 {
			testnet.Reaches(t, hosts[0].Container(fmt.Sprintf("c%d", key)),
				netip.MustParseAddr(fmt.Sprintf("10.9.%d.2", key)), true)
		}
	})
}

// TestDaemons pauses, kills and restarts both daemons.
func TestDaemons(t *testing.T) {
	t.Parallel()
	n := testnet.New(t)
	s := ovslab.Start(t, n.Host)
	s.Bridge("ovs0")
	attach(n, s, "ovs0", "a", "10.9.0.1/24")
	attach(n, s, "ovs0", "b", "10.9.0.2/24")
	b := netip.MustParseAddr("10.9.0.2")
	testnet.Reaches(t, n.Container("a"), b, true)
	rows := s.Rows()
	if !strings.Contains(rows, "ovs0") || !strings.Contains(rows, "port-b") {
		t.Errorf("rows:\n%s", rows)
	}

	s.Daemon.Kill()
	testnet.Reaches(t, n.Container("a"), b, false)
	s.Database("set", "Port", "port-b", "tag=7")
	s.Daemon.Start()
	s.VSCtl("clear", "Port", "port-b", "tag")
	testnet.Reaches(t, n.Container("a"), b, true)

	s.DB.Kill()
	if _, err := s.Try("ovs-vsctl", "--timeout=1", "show"); err == nil {
		t.Error("the database answers without ovsdb-server")
	}
	s.DB.Start()
	if got := s.Rows(); got != rows {
		t.Error(testnet.Diff(rows, got))
	}
	s.VSCtl("del-port", "port-b") // ovs-vswitchd has connected again
	testnet.Reaches(t, n.Container("a"), b, false)

	s.DB.Pause()
	if _, err := s.Try("ovs-vsctl", "--timeout=1", "show"); err == nil {
		t.Error("the database answers during a pause")
	}
	s.DB.Resume()
	s.VSCtl("show")
	s.DB.Stop()
	s.Daemon.Stop()
}
