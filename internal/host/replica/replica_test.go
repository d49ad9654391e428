package replica_test

import (
	"testing"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/host/replica"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

func read(t *testing.T, ns *netns.NS) *host.Namespace {
	t.Helper()
	var h *host.Host
	err := ns.Run(func() (err error) {
		h, err = host.Read(t.Context(), host.Options{OnlyPaths: true})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return h.Own()
}

// TestMake compares copies of a host and a container with their sources, which stay unchanged.
func TestMake(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Kernel(kernel.FeatureNFT), testnet.Tool("nft"), testnet.Tool("bridge"))
	n := testnet.New(t, "web", "other")
	web, other := n.Container("web"), n.Container("other")
	n.Host.Wire("up0")
	n.Host.Batch("link add br0 type bridge stp_state 0 ageing_time 1200",
		"link set br0 up", "addr add 10.7.0.1/24 dev br0", "addr add 2001:db8::1/64 dev br0 nodad",
		"link set up0 mtu 1400 up", "addr add 192.0.2.1 peer 192.0.2.2/32 dev up0",
		"link property add dev up0 altname uplink",
		"link add va type veth peer name eth0 netns "+web.Path(), "link set va master br0 up alias web",
		"link add vb type veth peer name eth0 netns "+other.Path(), "link set vb master br0 up",
		"link add d0 type bridge", "link set d0 up", "addr add 10.8.0.1/24 dev d0")
	if testnet.Kernel(kernel.FeatureVLAN, kernel.FeatureVRF, kernel.FeatureMacvlan)() == nil {
		n.Host.Batch("link add link up0 name up0.5 type vlan id 5", "link set up0.5 up",
			"link add vrf9 type vrf table 9", "link set vrf9 up", "link set d0 master vrf9",
			"link add link up0 mac0 netns "+web.Path()+" type macvlan mode bridge")
		web.Batch("link set mac0 up")
	}
	web.Batch("link set lo up", "link set eth0 up", "addr add 10.7.0.2/24 dev eth0",
		"route add default via 10.7.0.1", "neigh add 10.7.0.9 lladdr 02:00:00:00:00:09 dev eth0")
	n.Host.Batch("route add default via 192.0.2.2 dev up0 onlink",
		"route add blackhole 203.0.113.0/24 metric 9",
		"route add 198.51.100.0/24 table 100 nexthop via 10.7.0.8 weight 2 nexthop via 10.7.0.9",
		"route add 2001:db8:9::/48 via 2001:db8::9",
		"rule add from 10.7.0.0/24 iif br0 fwmark 0x10/0xf0 lookup 100 priority 50",
		"rule add not to 10.0.0.0/8 unreachable priority 60")
	n.Host.Command("bridge", "link", "set", "dev", "va", "hairpin", "on")
	n.Host.Command("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.br0.rp_filter=2", "net.ipv6.conf.d0.accept_ra=0")
	n.Host.Command("nft", `table inet fw {
		set ports { type inet_service; flags interval; elements = { 80, 1000-2000 }; }
		map dn { type inet_proto . inet_service : ipv4_addr . inet_service; elements = { tcp . 80 comment "x" : 10.7.0.2 . 8080 }; }
		counter hits { packets 3 bytes 5 }
		chain extra { ip saddr { 10.0.0.1, 10.0.0.2 } counter drop comment "two"; }
		chain in { type filter hook input priority 0; policy drop; tcp dport @ports accept; tcp dport vmap { 22 : accept, 23 : jump extra }; counter name hits; log prefix "x"; }
	}`)
	n.Host.Command("iptables-nft", "-t", "nat", "-A", "PREROUTING", "-p", "tcp", "-m", "multiport", "--dports", "80,81", "-j", "REDIRECT", "--to-ports", "8")
	if testnet.Tool("iptables-legacy")() == nil {
		n.Host.Command("iptables-legacy", "-A", "FORWARD", "-s", "10.1.0.0/16", "-m", "comment", "--comment", "c", "-j", "DROP")
		n.Host.Command("ip6tables-legacy", "-A", "INPUT", "-s", "fd00::/64", "-j", "DROP")
	}

	conn, err := netlink.Open(testnet.NS(t, n.Host))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, name := range []string{"va", "br0"} {
		l, err := conn.Links.ByName(name)
		if err == nil {
			err = conn.Links.WaitUp(t.Context(), l)
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	before := testnet.Snapshot(t, n.Spaces())
	sources := []*netns.NS{testnet.NS(t, n.Host), testnet.NS(t, web)}
	w, err := replica.Make(replica.Source{NS: sources[0]}, replica.Source{NS: sources[1]})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if diff := testnet.Diff(before, testnet.Snapshot(t, n.Spaces())); diff != "" {
		t.Errorf("copying has changed the source:\n%s", diff)
	}
	for _, note := range w.Notes {
		t.Error("note:", note)
	}
	for i, source := range sources {
		for _, c := range host.DiffNamespace(read(t, source), read(t, w.Spaces[i])) {
			if c.Derived { // some follow the detection of duplicate addresses
				continue
			}
			t.Errorf("%d %+v", i, c)
		}
	}
}
