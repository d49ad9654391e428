package doctor

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/firewalld"
	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
	"github.com/tenon-cni/tenon/internal/ops/why"
	"github.com/tenon-cni/tenon/network"
)

// Indexes of links on the host of the tests.
const (
	loLink = iota + 1
	upLink
	bridgeLink
	vethLink
	otherLink
)

// now is the time on the host of the tests.
var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// healthy returns the state of a host with container web on bridge cni0 (network pods), which
// publishes port 80 as 8080, and an uplink up0.
func healthy() *State {
	const conf = `{"type":"bridge","isGateway":true,"ipam":{"type":"host-local","ranges":[
		[{"subnet":"10.77.0.0/24"}],[{"subnet":"fd77::/64"}]]}}`
	up := []string{"up", "lower-up"}
	nsid := 0
	own := host.Namespace{
		ID:      "own",
		Ruleset: &nftmsg.Ruleset{},
		Peers:   []host.Peer{{NSID: 0, ID: "web"}},
		Links: []host.Link{
			{Index: loLink, Name: "lo", MTU: 65536, Flags: up},
			{Index: upLink, Name: "up0", MTU: 1500, Flags: up},
			{
				Index:  bridgeLink,
				Name:   "cni0",
				Kind:   "bridge",
				MTU:    1500,
				Flags:  up,
				Bridge: &host.Bridge{},
			},
			{
				Index:     vethLink,
				Name:      "veth1",
				Kind:      "veth",
				MTU:       1500,
				Flags:     up,
				Master:    bridgeLink,
				Lower:     2,
				LowerNSID: &nsid,
				Port:      &host.Port{State: "forwarding"},
			},
			{Index: otherLink, Name: "vpn0", MTU: 1500, Flags: up},
		},
		Addrs: []host.Addr{
			address(upLink, "192.0.2.1/24"), address(upLink, "2001:db8::1/64"),
			address(bridgeLink, "10.77.0.1/24"), address(bridgeLink, "fd77::1/64"),
		},
		Routes: []host.Route{
			route("0.0.0.0/0", upLink, "192.0.2.2"), route("::/0", upLink, "2001:db8::2"),
			route("192.0.2.0/24", upLink, ""), route("2001:db8::/64", upLink, ""),
			route("10.77.0.0/24", bridgeLink, ""), route("fd77::/64", bridgeLink, ""),
			local("192.0.2.1/32", upLink), local("2001:db8::1/128", upLink),
			local("10.77.0.1/32", bridgeLink), local("fd77::1/128", bridgeLink),
		},
		Rules: []host.Rule{
			{Family: "ipv4", Action: "lookup", Table: tableLocal, Suppress: -1},
			{Family: "ipv4", Action: "lookup", Table: 254, Priority: 32766, Suppress: -1},
			{Family: "ipv6", Action: "lookup", Table: tableLocal, Suppress: -1},
			{Family: "ipv6", Action: "lookup", Table: 254, Priority: 32766, Suppress: -1},
		},
		Settings: map[string]string{
			"net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1",
			"net.ipv4.conf.all.rp_filter": "0", "net.ipv6.conf.up0.accept_ra": "1",
			"net.bridge.bridge-nf-call-iptables": "0", "net.bridge.bridge-nf-call-ip6tables": "0",
			"net.netfilter.nf_conntrack_max": "1000", "net.netfilter.nf_conntrack_count": "10",
		},
	}
	web := host.Namespace{ID: "web", Paths: []string{"/run/netns/web"}, Ruleset: &nftmsg.Ruleset{},
		Peers: []host.Peer{{NSID: 0, ID: "own"}},
		Links: []host.Link{
			{
				Index:     2,
				Name:      "eth0",
				Kind:      "veth",
				MTU:       1500,
				Flags:     up,
				Lower:     vethLink,
				LowerNSID: &nsid,
			},
		},
		Addrs: []host.Addr{address(2, "10.77.0.2/24"), address(2, "fd77::2/64")},
		Routes: []host.Route{route("0.0.0.0/0", 2, "10.77.0.1"), route("::/0", 2, "fd77::1"),
			route(
				"10.77.0.0/24",
				2,
				"",
			), route("fd77::/64", 2, ""), local("10.77.0.2/32", 2), local("fd77::2/128", 2)},
		Rules: own.Rules, Settings: map[string]string{},
	}
	rec := network.Record{
		Attachment: cni.Attachment{Network: "pods", Container: "web", IfName: "eth0"},
		Created:    now.Add(-time.Hour),
		BootID:     "boot",
	}
	rec.Netns = "/run/netns/web"
	rec.Capabilities = map[string]json.RawMessage{
		"portMappings": json.RawMessage(`[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]`)}
	rec.Result = &cni.Result{IPs: []cni.IP{
		{Address: netip.MustParsePrefix("10.77.0.2/24"), Gateway: netip.MustParseAddr("10.77.0.1")},
		{Address: netip.MustParsePrefix("fd77::2/64"), Gateway: netip.MustParseAddr("fd77::1")},
	}}
	return &State{
		Places: &why.Places{
			Records: []network.Record{rec},
			Host: &host.Host{Version: host.Version, Name: "node-7",
				Time: now, BootID: "boot", Namespaces: []host.Namespace{own, web}, Settings: map[string]string{
					"fs.inotify.max_user_instances": "128", "fs.file-max": "1000", "fs.file-nr": "10 0 1000",
					"net.ipv4.neigh.default.gc_thresh3": "1024", "net.ipv6.neigh.default.gc_thresh3": "1024",
					"net.netfilter.nf_conntrack_buckets": "1000",
				}},
		},
		Networks: []Network{{Name: "pods", Source: "/etc/cni/net.d/10-pods.conflist", Containers: 1,
			Plugins: []Plugin{{"bridge", json.RawMessage(conf)}}}},
		Node: Node{
			Boot:     now.Add(-24 * time.Hour),
			Resolver: &Resolver{Path: resolvConf, Nameservers: []string{"192.0.2.53"}},
			Inotify: []InotifyUser{
				{Instances: 5},
			},
			Neighbours: map[string]int64{"ipv4": 5, "ipv6": 5},
		},
	}
}

func address(link int, prefix string) host.Addr {
	return host.Addr{Link: link, Prefix: netip.MustParsePrefix(prefix), Scope: "global"}
}

func route(dst string, link int, via string) host.Route {
	r := host.Route{
		Type:  "unicast",
		Dst:   netip.MustParsePrefix(dst),
		Table: 254,
		Scope: "link",
		Hops:  []host.Hop{{Link: link}},
	}
	if via != "" {
		r.Scope, r.Hops[0].Via = "global", netip.MustParseAddr(via)
	}
	return r
}

func local(dst string, link int) host.Route {
	return host.Route{
		Type:  "local",
		Dst:   netip.MustParsePrefix(dst),
		Table: tableLocal,
		Scope: "host",
		Hops:  []host.Hop{{Link: link}},
	}
}

// filter returns a base chain of an IPv4 table with a policy of drop.
func filter(table, name string, hook uint32) nftmsg.ListedChain {
	return nftmsg.ListedChain{
		Table:   nftmsg.Table{Family: nftmsg.IPv4, Name: table},
		Name:    name,
		Base:    true,
		Hook:    hook,
		Type:    "filter",
		Drops:   true,
		Packets: 2113,
	}
}

// accepting returns a rule that accepts all packets.
func accepting(c nftmsg.ListedChain) nftmsg.ListedRule {
	return nftmsg.ListedRule{Table: c.Table, Chain: c.Name, Handle: 7,
		Exprs: []nftmsg.Raw{nftmsg.RawOf(nftmsg.Verdict{Code: nftmsg.Accept})}}
}

// faults break the healthy host: how, and the finding with its severity and a part of its text.
var faults = []struct {
	name     string
	damage   func(s *State, own *host.Namespace)
	id       string // "": no finding
	severity Severity
	text     string
}{
	{"kernel lacks a feature", func(s *State, _ *host.Namespace) {
		s.Node.Lacking = []Lacking{{"bridge-vlan-filtering", []string{"pods"}}}
	}, "kernel.feature", Error, "network pods needs"},
	{
		"inotify instances used up",
		func(s *State, _ *host.Namespace) { s.Node.Inotify[0].Instances = 128 },
		"limits.inotify-instances",
		Error,
		"128 of 128 inotify instances of UID 0",
	},
	{
		"inotify instances nearly used up",
		func(s *State, _ *host.Namespace) { s.Node.Inotify[0].Instances = 120 },
		"limits.inotify-instances",
		Warning,
		"max_user_instances=512",
	},
	{"neighbour table full", func(s *State, _ *host.Namespace) { s.Node.Neighbours["ipv6"] = 1024 },
		"limits.neighbours", Error, "1024 of 1024 neighbour entries of IPv6"},
	{"neighbour table counted", func(s *State, own *host.Namespace) {
		s.Node.Neighbours = nil
		s.Host.Settings["net.ipv4.neigh.default.gc_thresh3"] = "1"
		own.Neighbours = []host.Neighbour{{Addr: netip.MustParseAddr("192.0.2.2"), State: "stale"}}
	}, "limits.neighbours", Error, "1 of 1"},
	{"conntrack full", func(_ *State, own *host.Namespace) {
		own.Settings["net.netfilter.nf_conntrack_count"] = "1000"
	}, "limits.conntrack", Error, "conntrack is full: 1000 of 1000"},
	{
		"few buckets",
		func(s *State, _ *host.Namespace) { s.Host.Settings["net.netfilter.nf_conntrack_buckets"] = "1" },
		"limits.conntrack-buckets",
		Warning,
		"10 entries in 1 buckets",
	},
	{
		"conntrack has dropped",
		func(s *State, _ *host.Namespace) { s.Node.Conntrack = map[string]int64{"insert_failed": 99} },
		"limits.conntrack-races",
		Info,
		"99 packets",
	},
	{
		"files used up",
		func(s *State, _ *host.Namespace) { s.Host.Settings["fs.file-nr"] = "990 0 1000" },
		"limits.files",
		Warning,
		"990 of 1000",
	},
	{
		"forwarding off",
		func(_ *State, own *host.Namespace) { own.Settings["net.ipv4.ip_forward"] = "0" },
		"sysctl.forwarding",
		Error,
		"net.ipv4.ip_forward is 0",
	},
	{
		"forwarding off on the bridge",
		func(_ *State, own *host.Namespace) { own.Settings["net.ipv6.conf.cni0.forwarding"] = "0" },
		"sysctl.forwarding",
		Error,
		"net.ipv6.conf.cni0.forwarding is 0",
	},
	{"forwarding off, nothing attached", func(s *State, own *host.Namespace) {
		own.Settings["net.ipv4.ip_forward"], s.Records = "0", nil
	}, "", "", ""},
	{
		"service behind the bridge",
		func(_ *State, own *host.Namespace) { own.Ruleset.Rules = dnat("svc", "10.77.0.2") },
		"sysctl.bridge-nf",
		Warning,
		"bridge-nf-call-iptables is 0",
	},
	{"service behind the bridge with br_netfilter", func(_ *State, own *host.Namespace) {
		own.Ruleset.Rules = dnat("svc", "10.77.0.2")
		own.Settings["net.bridge.bridge-nf-call-iptables"] = "1"
	}, "", "", ""},
	{
		"translation to nobody",
		func(_ *State, own *host.Namespace) { own.Ruleset.Rules = dnat("svc", "10.77.0.250") },
		"firewall.stale-dnat",
		Warning,
		"which no container has",
	},
	{
		"translation by Tenon",
		func(_ *State, own *host.Namespace) { own.Ruleset.Rules = dnat("tenon", "10.77.0.250") },
		"",
		"",
		"",
	},
	{"strict rp_filter on a second uplink", func(_ *State, own *host.Namespace) {
		second := route("0.0.0.0/0", otherLink, "198.51.100.1")
		second.Metric = 100
		own.Routes = append(own.Routes, second)
		own.Settings["net.ipv4.conf.vpn0.rp_filter"] = "1"
	}, "sysctl.rp-filter", Warning, "strict rp_filter on vpn0"},
	{"loose rp_filter on a second uplink", func(_ *State, own *host.Namespace) {
		second := route("0.0.0.0/0", otherLink, "198.51.100.1")
		second.Metric = 100
		own.Routes = append(own.Routes, second)
		own.Settings["net.ipv4.conf.vpn0.rp_filter"] = "2"
	}, "", "", ""},
	{"router advertisements ignored", func(_ *State, own *host.Namespace) {
		own.Routes = slices.DeleteFunc(
			own.Routes,
			func(r host.Route) bool { return r.Dst.String() == "::/0" },
		)
	}, "sysctl.accept-ra", Warning, "up0 ignores router advertisements"},
	{"IPv6 off in the container", func(s *State, _ *host.Namespace) {
		s.Host.Namespaces[1].Settings["net.ipv6.conf.eth0.disable_ipv6"] = "1"
	}, "sysctl.disable-ipv6", Error, "nsenter --net=/run/netns/web sysctl -w"},
	{"policy of drop", func(_ *State, own *host.Namespace) {
		own.Ruleset.Chains = []nftmsg.ListedChain{filter("filter", "FORWARD", unix.NF_INET_FORWARD)}
	}, "firewall.forward-drop", Error, "the policy of chain FORWARD of iptables"},
	{"policy of drop by Docker", func(_ *State, own *host.Namespace) {
		c := filter("filter", "FORWARD", unix.NF_INET_FORWARD)
		own.Ruleset.Chains = []nftmsg.ListedChain{c, {Table: c.Table, Name: "DOCKER"}}
	}, "firewall.forward-drop", Error, "iptables -I DOCKER-USER -i cni0 -j ACCEPT"},
	{"policy of drop, with a rule that accepts", func(_ *State, own *host.Namespace) {
		c := filter("filter", "FORWARD", unix.NF_INET_FORWARD)
		own.Ruleset.Chains, own.Ruleset.Rules = []nftmsg.ListedChain{
			c,
		}, []nftmsg.ListedRule{
			accepting(c),
		}
	}, "", "", ""},
	{"policy of drop, with a rule that accepts one direction", func(_ *State, own *host.Namespace) {
		c := filter("filter", "FORWARD", unix.NF_INET_FORWARD)
		own.Ruleset.Chains = []nftmsg.ListedChain{c}
		rule := accepting(c)
		rule.Exprs = append([]nftmsg.Raw{
			nftmsg.RawOf(nftmsg.Meta{Key: unix.NFT_META_IIFNAME, Register: unix.NFT_REG_1}),
			nftmsg.RawOf(nftmsg.Cmp{Op: unix.NFT_CMP_EQ, Register: unix.NFT_REG_1, Data: []byte("cni0\x00")}),
		}, rule.Exprs...)
		own.Ruleset.Rules = []nftmsg.ListedRule{rule}
	}, "firewall.forward-drop", Error, "the replies are dropped"},
	{"drop after an accept in another chain", func(_ *State, own *host.Namespace) {
		c, later := filter(
			"filter",
			"FORWARD",
			unix.NF_INET_FORWARD,
		), filter(
			"fw",
			"late",
			unix.NF_INET_FORWARD,
		)
		later.Priority = 10
		own.Ruleset.Chains, own.Ruleset.Rules = []nftmsg.ListedChain{
			c,
			later,
		}, []nftmsg.ListedRule{
			accepting(c),
		}
	}, "firewall.forward-drop", Error, "The accept of rule 1 of chain FORWARD of iptables (table filter) does not help"},
	{"DNS server on the host unreachable", func(s *State, own *host.Namespace) {
		s.Node.Resolver.Nameservers = []string{"192.0.2.1"}
		own.Ruleset.Chains = []nftmsg.ListedChain{filter("filter", "INPUT", unix.NF_INET_LOCAL_IN)}
	}, "firewall.input-drop", Error, "--dport 53 -j ACCEPT"},
	{"input closed without a DNS server", func(_ *State, own *host.Namespace) {
		own.Ruleset.Chains = []nftmsg.ListedChain{filter("filter", "INPUT", unix.NF_INET_LOCAL_IN)}
	}, "", "", ""},
	{"rules in both variants", func(_ *State, own *host.Namespace) {
		c, old := filter(
			"filter",
			"FORWARD",
			unix.NF_INET_FORWARD,
		), filter(
			"filter (legacy)",
			"FORWARD",
			unix.NF_INET_FORWARD,
		)
		own.Ruleset.Rules = []nftmsg.ListedRule{accepting(c), accepting(old)}
	}, "firewall.mixed", Info, "1 rules in nftables and 1 in the legacy tables"},
	{
		"masquerade missing",
		func(s *State, _ *host.Namespace) { masquerade(s) },
		"firewall.masquerade",
		Error,
		"tenon repair pods",
	},
	{"port missing", func(s *State, _ *host.Namespace) {
		s.Networks[0].Plugins = append(
			s.Networks[0].Plugins,
			Plugin{"portmap", json.RawMessage(`{"type":"portmap"}`)},
		)
	}, "firewall.port-missing", Error, "One of them is port 8080/tcp of container web"},
	{"firewalld without the bridge", func(s *State, _ *host.Namespace) {
		s.Node.Firewalld = &Firewalld{
			Default: "public",
			Zones:   map[string]firewalld.Zone{"public": {Interfaces: []string{"up0"}}},
		}
	}, "firewall.firewalld-zone", Info, "--zone=trusted --add-source=10.77.0.0/24"},
	{"firewalld with the subnet", func(s *State, _ *host.Namespace) {
		s.Node.Firewalld = &Firewalld{
			Default: "public",
			Zones:   map[string]firewalld.Zone{"trusted": {Sources: []string{"10.77.0.2/32"}}},
		}
	}, "", "", ""},
	{"XDP program", func(_ *State, own *host.Namespace) { own.Link(upLink).XDP = true },
		"firewall.xdp", Info, "up0"},
	{"filters on the uplink", func(_ *State, own *host.Namespace) { own.Link(upLink).Filters = ingress },
		"firewall.tc", Info, "a tc filter on up0"},
	{"filters elsewhere", func(_ *State, own *host.Namespace) { own.Link(otherLink).Filters = ingress },
		"", "", ""},
	{"route inside the subnet", func(_ *State, own *host.Namespace) {
		own.Routes = append(own.Routes, route("10.77.0.0/25", otherLink, ""))
	}, "routes.overlap", Error, "10.77.0.0/25 to vpn0"},
	{"subnet inside a connected network", func(_ *State, own *host.Namespace) {
		own.Routes = append(own.Routes, route("10.0.0.0/8", otherLink, ""))
	}, "routes.overlap", Warning, "is part of 10.0.0.0/8"},
	{"subnet inside a routed network", func(_ *State, own *host.Namespace) {
		own.Routes = append(own.Routes, route("10.0.0.0/8", otherLink, "198.51.100.1"))
	}, "", "", ""},
	{"two networks, one subnet", func(s *State, _ *host.Namespace) { secondNetwork(s) }, "routes.networks-overlap", Warning, "networks pods (10.77.0.0/24) and web (10.77.0.0/16)"},
	{"two networks with containers, one subnet", func(s *State, _ *host.Namespace) {
		tenants(s)
	}, "routes.networks-overlap", Error, "networks pods (10.77.0.0/24) and web (10.77.0.0/16)"},
	{"two networks with containers in VRFs, one subnet", func(s *State, own *host.Namespace) {
		tenants(s)
		own.Links = append(own.Links, host.Link{Index: 77, Name: "red", Kind: "vrf"},
			host.Link{Index: 78, Name: "br1", Kind: "bridge", Master: 77})
	}, "", "", ""},
	{"two default routes", func(s *State, own *host.Namespace) {
		own.Routes = append(own.Routes, route("0.0.0.0/0", otherLink, "198.51.100.1"))
		masquerade(s)
		own.Ruleset.Chains = []nftmsg.ListedChain{
			{Table: nftmsg.Table{Family: nftmsg.IPv4, Name: "tenon"}, Name: "post",
				Base: true, Hook: unix.NF_INET_POST_ROUTING, Type: "nat"},
			{Table: nftmsg.Table{Family: nftmsg.IPv6, Name: "tenon"}, Name: "post",
				Base: true, Hook: unix.NF_INET_POST_ROUTING, Type: "nat"},
		}
		for _, c := range own.Ruleset.Chains {
			own.Ruleset.Rules = append(
				own.Ruleset.Rules,
				nftmsg.ListedRule{Table: c.Table, Chain: c.Name,
					Exprs: []nftmsg.Raw{{Name: "masq"}}},
			)
		}
	}, "routes.two-defaults", Warning, "the same metric 0, by up0 and vpn0"},
	{"no default route", func(s *State, own *host.Namespace) {
		own.Routes = slices.DeleteFunc(
			own.Routes,
			func(r host.Route) bool { return r.Dst.String() == "0.0.0.0/0" },
		)
		masquerade(s)
		own.Routes = slices.DeleteFunc(
			own.Routes,
			func(r host.Route) bool { return r.Dst.String() == "::/0" },
		)
		own.Settings["net.ipv6.conf.up0.accept_ra"] = "0"
	}, "routes.no-default", Warning, "no IPv4 default route"},
	{"gateway lost", func(_ *State, own *host.Namespace) {
		own.Addrs = slices.DeleteFunc(
			own.Addrs,
			func(a host.Addr) bool { return a.Prefix.String() == "10.77.0.1/24" },
		)
	}, "addresses.gateway", Error, "ip addr add 10.77.0.1/24 dev cni0"},
	{"small uplink", func(_ *State, own *host.Namespace) { own.Link(upLink).MTU = 1400 },
		"mtu.uplink", Warning, "up0 has MTU 1400"},
	{"small route", func(_ *State, own *host.Namespace) { own.Routes[0].MTU = 1300 },
		"mtu.uplink", Warning, "the default route has MTU 1300"},
	{"neighbour entry of another container", func(_ *State, own *host.Namespace) {
		own.Neighbours = []host.Neighbour{{Link: bridgeLink, Addr: netip.MustParseAddr("10.77.0.2"),
			MAC: "02:00:00:00:00:99", State: "stale"}}
	}, "addresses.neighbour", Error, "ip neigh flush 10.77.0.2 dev cni0"},
	{"failed neighbour entry", func(_ *State, own *host.Namespace) {
		own.Neighbours = []host.Neighbour{{Link: bridgeLink, Addr: netip.MustParseAddr("10.77.0.2"),
			MAC: "02:00:00:00:00:99", State: "failed"}}
	}, "", "", ""},
	{
		"large uplink",
		func(_ *State, own *host.Namespace) { own.Link(upLink).MTU = 9000 },
		"",
		"",
		"",
	},
	{"veth ends differ", func(_ *State, own *host.Namespace) { own.Link(vethLink).MTU = 1400 },
		"mtu.ends", Error, "its peer veth1 has 1400"},
	{
		"loopback resolver",
		func(s *State, _ *host.Namespace) { s.Node.Resolver.Nameservers = []string{"127.0.0.53"} },
		"dns.loopback",
		Warning,
		"127.0.0.53",
	},
	{
		"resolver in the subnet",
		func(s *State, _ *host.Namespace) { s.Node.Resolver.Nameservers = []string{"10.77.0.53"} },
		"dns.shadowed",
		Warning,
		"10.77.0.53",
	},
	{
		"many search domains",
		func(s *State, _ *host.Namespace) { s.Node.Resolver.Search = strings.Fields("a b c d e f g") },
		"dns.search",
		Info,
		"7 search domains",
	},
	{"many servers", func(s *State, _ *host.Namespace) {
		s.Node.Resolver.Nameservers = strings.Fields("192.0.2.53 192.0.2.54 192.0.2.55 192.0.2.56")
	}, "dns.servers", Info, "4 DNS servers"},
	{"clock in the past", func(s *State, _ *host.Namespace) { s.Host.Time = time.Unix(0, 0) },
		"clock.past", Warning, "1970-01-01"},
	{
		"clock went back",
		func(s *State, _ *host.Namespace) { s.Records[0].Created = now.Add(time.Hour) },
		"clock.back",
		Warning,
		"1 attachment was created later than now",
	},
	{
		"no boot ID",
		func(s *State, _ *host.Namespace) { s.Host.BootID = "" },
		"clock.boot-id",
		Warning,
		"no boot ID",
	},
	{
		"attachment of an earlier boot",
		func(s *State, _ *host.Namespace) { s.Records[0].BootID = "other" },
		"clock.boot",
		Warning,
		"1 attachment was created in an earlier boot",
	},
}

// masquerade switches masquerading on in the configuration.
func masquerade(s *State) {
	s.Networks[0].Plugins[0].Conf = json.RawMessage(
		strings.Replace(string(s.Networks[0].Plugins[0].Conf),
			`"isGateway"`, `"ipMasq":true,"isGateway"`, 1),
	)
}

// dnat returns a rule that translates the destination to an address.
func dnat(table, to string) []nftmsg.ListedRule {
	return []nftmsg.ListedRule{
		{Table: nftmsg.Table{Family: nftmsg.IPv4, Name: table}, Chain: "pre", Exprs: []nftmsg.Raw{
			nftmsg.RawOf(
				nftmsg.Immediate{
					Register: unix.NFT_REG_1,
					Value:    netip.MustParseAddr(to).AsSlice(),
				},
			),
			nftmsg.RawOf(
				nftmsg.NAT{
					Type:   unix.NFT_NAT_DNAT,
					Family: unix.NFPROTO_IPV4,
					Addr:   unix.NFT_REG_1,
				},
			),
		}},
	}
}

// TestHostChecks breaks the healthy host in one way at a time. Exactly the expected finding appears;
// a state that was stored and read again gives the same one.

// secondNetwork adds network web on br1 with the addresses of network pods.
func secondNetwork(s *State) {
	n := s.Networks[0]
	n.Name, n.Plugins = "web", []Plugin{{"bridge", json.RawMessage(
		`{"type":"bridge","bridge":"br1","isGateway":true,"ipam":{"type":"host-local","subnet":"10.77.0.0/16"}}`,
	)}}
	s.Networks = append(s.Networks, n)
}

// tenants is secondNetwork with a container.
func tenants(s *State) {
	secondNetwork(s)
	s.Records = append(s.Records, network.Record{Attachment: cni.Attachment{Network: "web",
		Container: "tenant", IfName: "eth0"}})
}

func TestHostChecks(t *testing.T) {
	t.Parallel()
	if got := worseThan("", report(t, healthy(), hostChecks())); got != "" {
		t.Fatalf("the healthy host: %s", got)
	}
	for _, x := range faults {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			s := healthy()
			x.damage(s, s.Host.Own())
			examineFault(t, s, hostChecks(), Finding{ID: x.id, Severity: x.severity, Text: x.text})
		})
	}
}

// report runs checks, again if this machine is too busy to end them in time.
func report(t *testing.T, s *State, checks []Check) (r *Report) {
	t.Helper()
	for range 20 {
		r = Run(t.Context(), s, checks, nil)
		if !slices.ContainsFunc(r.Checks, func(c Result) bool { return c.Status == TimedOut }) {
			return r
		}
	}
	return r
}

// examineFault checks that checks report only the wanted finding, or none if its ID is empty, and that
// a stored state gives the same findings. The text of want is a part of the finding.
func examineFault(t *testing.T, s *State, checks []Check, want Finding) {
	t.Helper()
	r := report(t, s, checks)
	i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.ID == want.ID })
	if want.ID != "" && (i < 0 || r.Findings[i].Severity != want.Severity ||
		!strings.Contains(describe(r.Findings[i]), want.Text)) {
		t.Errorf("no finding %s, %s with %q:\n%s", want.ID, want.Severity, want.Text, worseThan("", r))
	}
	if others := worseThan(want.ID, r); others != "" {
		t.Errorf("other findings: %s", others)
	}
	for _, f := range r.Findings {
		for _, fix := range f.Fix {
			if strings.HasPrefix(fix.Effect, "or ") {
				t.Errorf("%s has another way as an effect: %+v", f.ID, fix)
			}
		}
	}
	stored, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	again := new(State)
	if err := json.Unmarshal(stored, again); err != nil {
		t.Fatal(err)
	}
	if a, b := everything(r), everything(report(t, again, checks)); a != b {
		t.Errorf("the stored state has other findings:\n%s\n%s", a, b)
	}
}

func describe(f Finding) string {
	text := f.Title + "\n" + f.Text
	for _, x := range f.Fix {
		text += "\n" + x.Command
	}
	return text
}

// worseThan returns the findings except one with an ID, and the checks that did not end.
func worseThan(id string, r *Report) (text string) {
	for _, f := range r.Findings {
		if f.ID != id {
			text += fmt.Sprintf("%s (%s): %s\n", f.ID, f.Severity, describe(f))
		}
	}
	for _, c := range r.Checks {
		if c.Reason != "" && !c.Unused {
			text += fmt.Sprintf("%s: %s\n", c.ID, c.Reason)
		}
	}
	return text
}

func everything(r *Report) string { return worseThan("none", r) }

// ingress are filters for received packets.
var ingress = []host.Filter{{Hook: "ingress", Text: "bpf"}}
