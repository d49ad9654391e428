package operator

import (
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/ops/why"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// broken are hosts with one fault: its number in our list of misconfigurations, commands on the
// healthy host, a flow, the commands that break and repair the host, and a pattern for the text of
// the only culprit.
var broken = []struct {
	number                             int
	before, flow, create, repair, want string
	needs                              kernel.Feature
	gone                               string // a container without its namespace
}{
	{number: 1, flow: `web 203.0.113.9:9000`,
		create: `nft 'add table inet fw; add chain inet fw transit { type filter hook forward priority 0; policy drop; }'`,
		repair: `nft delete table inet fw`,
		want:   `chain inet fw transit drops`},
	{number: 2, flow: `web 203.0.113.9:9000`,
		create: `iptables-legacy -P FORWARD DROP`,
		repair: `iptables-legacy -P FORWARD ACCEPT`,
		want:   `chain FORWARD of iptables-legacy`},
	{number: 3, flow: `web 203.0.113.9:9000`,
		create: `iptables -N DOCKER-USER; iptables -A FORWARD -j DOCKER-USER; iptables -P FORWARD DROP`,
		repair: `iptables -P FORWARD ACCEPT`,
		want:   `FORWARD`},
	{number: 4, flow: `web 203.0.113.9:9000`,
		create: `nft 'add table inet firewalld; add chain inet firewalld filter_FORWARD { type filter hook forward priority 10; policy accept; }; add rule inet firewalld filter_FORWARD ct state established,related accept; add rule inet firewalld filter_FORWARD reject with icmpx admin-prohibited'`,
		repair: `nft delete table inet firewalld`,
		want:   `firewalld`},
	{number: 5, flow: `web 10.77.0.1:9100`,
		create: `nft 'add table inet fw; add chain inet fw in { type filter hook input priority 0; policy drop; }; add rule inet fw in ct state established accept'`,
		repair: `nft delete table inet fw`,
		want:   `inet fw in drops`},
	{number: 6, flow: `outside 192.0.2.1:8080`,
		create: `iptables -A FORWARD -d 10.77.0.2 -p tcp --dport 80 -j DROP`,
		repair: `iptables -D FORWARD 1`,
		want:   `rule 1 of chain FORWARD.*8080 was translated`},
	{number: 7, flow: `web 10.77.0.3:80`,
		create: `sysctl -qw net.bridge.bridge-nf-call-iptables=1; iptables -P FORWARD DROP`,
		repair: `iptables -P FORWARD ACCEPT`,
		want:   `br_netfilter`},
	{number: 8, flow: `web 203.0.113.9:9000`,
		create: `web ip route del default`,
		repair: `web ip route add default via 10.77.0.1`,
		want:   `web has no route to 203.0.113.9`},
	{number: 9, flow: `web 203.0.113.9:9000`,
		create: `ip route del default`,
		repair: `ip route add default via 192.0.2.2`,
		want:   `host has no route`},
	{number: 10, flow: `web 203.0.113.9:9000`,
		create: `ip link add vpn0 type veth peer name vpn1; ip link set vpn1 up; ip link set vpn0 up; ip route add 10.77.0.0/25 dev vpn0`,
		repair: `ip route del 10.77.0.0/25`,
		want:   `10.77.0.0/25`},
	{number: 11, flow: `web 203.0.113.9:9000`,
		create: `ip link add docker0 type bridge; ip addr add 203.0.113.1/24 dev docker0; ip link set docker0 up`,
		repair: `ip link del docker0`,
		want:   `docker0`},
	{number: 12, flow: `web 203.0.113.9:9000`,
		create: `ip link add up1 type veth peer name e1 netns $OUTSIDE; ip addr add 198.51.100.1/24 dev up1; ip link set up1 up; outside ip addr add 198.51.100.2/24 dev e1; outside ip link set e1 up; outside ip route add 198.51.100.1/32 via 192.0.2.1; ip route add 203.0.113.9 via 198.51.100.2; sysctl -qw net.ipv4.conf.all.rp_filter=1`,
		repair: `sysctl -qw net.ipv4.conf.all.rp_filter=2`,
		want:   `rp_filter on up0`},
	{number: 13, flow: `web 203.0.113.9:9000`,
		create: `ip route add default via 192.0.2.99 table 100; ip rule add from 10.77.0.0/24 lookup 100 priority 50`,
		repair: `ip rule del priority 50`,
		want:   `rule 50`},
	{number: 14, flow: `web 203.0.113.9:9000`,
		create: `ip route add blackhole 203.0.113.0/24`,
		repair: `ip route del blackhole 203.0.113.0/24`,
		want:   `blackhole route 203.0.113.0/24`},
	{number: 15, flow: `web 203.0.113.9:9000`,
		create: `ip link set $VETH down`,
		repair: `ip link set $VETH up`,
		want:   `host-side veth of web.*is down`},
	{number: 16, flow: `web 203.0.113.9:9000`,
		create: `ip link add br1 type bridge; ip link set br1 up; ip link set $VETH master br1`,
		repair: `ip link set $VETH master cni0`,
		want:   `is a port of br1`},
	{number: 17, flow: `web 203.0.113.9:9000`, needs: kernel.FeatureVLANFiltering,
		create: `ip link set cni0 type bridge vlan_filtering 1; bridge vlan del dev $VETH vid 1; bridge vlan add dev $VETH vid 20 pvid untagged`,
		repair: `bridge vlan del dev $VETH vid 20; bridge vlan add dev $VETH vid 1 pvid untagged`,
		want:   `has PVID 20; cni0 is not in VLAN 20`},
	{number: 18, flow: `web 192.0.2.1:8080`,
		before: `sysctl -qw net.bridge.bridge-nf-call-iptables=1`,
		create: `bridge link set dev $VETH hairpin off`,
		repair: `bridge link set dev $VETH hairpin on`,
		want:   `hairpin is off`},
	{number: 19, flow: `web 203.0.113.9:9000`,
		create: `ip link set cni0 type bridge stp_state 1; ip link set $VETH nomaster; ip link set $VETH master cni0`,
		repair: `ip link set cni0 type bridge stp_state 0; ip link set $VETH nomaster; ip link set $VETH master cni0`,
		want:   `STP keeps`},
	{number: 20, flow: `web 10.77.0.3:80`,
		create: `bridge link set dev $VETH isolated on; bridge link set dev $DBVETH isolated on`,
		repair: `bridge link set dev $VETH isolated off`,
		want:   `isolated`},
	{number: 21, flow: `web 203.0.113.9:9000`,
		create: `bridge fdb replace $(web ip -br link show eth0 | awk '{print $3}') dev $DBVETH master static sticky`,
		repair: `bridge fdb del $(web ip -br link show eth0 | awk '{print $3}') dev $DBVETH master`,
		want:   `sticky`},
	{number: 22, flow: `outside 192.0.2.1:8080`,
		create: `web sysctl -qw net.ipv4.conf.eth0.arp_notify=0; web ip link set eth0 address 02:00:00:00:00:99; ip neigh change 10.77.0.2 dev cni0 nud stale`,
		repair: `ip neigh flush dev cni0`,
		want:   `02:00:00:00:00:99`},
	{number: 23, flow: `web 203.0.113.9:9000`,
		create: `db ip addr add 10.77.0.2/24 dev eth0; sleep 2; db ip neigh flush dev eth0; db ping -c 1 -W 1 -I 10.77.0.2 10.77.0.1 >/dev/null`,
		repair: `db ip addr del 10.77.0.2/24 dev eth0; ip neigh flush dev cni0`,
		want:   `several links`},
	{number: 24, flow: `web [2001:db8::2]:9000`,
		create: `web ip -6 addr del fd77::2/64 dev eth0; db ip -6 addr add fd77::2/64 dev eth0 nodad; web sysctl -qw net.ipv6.conf.eth0.accept_dad=1; web ip -6 addr add fd77::2/64 dev eth0; sleep 3`,
		repair: `db ip -6 addr del fd77::2/64 dev eth0; ip -6 neigh flush dev cni0; web ip -6 addr del fd77::2/64 dev eth0; web ip -6 addr add fd77::2/64 dev eth0 nodad`,
		want:   `dadfailed`},
	{number: 25, flow: `web 10.77.0.3:80`,
		create: `web ip addr del 10.77.0.2/24 dev eth0; web ip addr add 10.77.0.2/32 dev eth0`,
		repair: `web ip addr del 10.77.0.2/32 dev eth0; web ip addr add 10.77.0.2/24 dev eth0; web ip route add default via 10.77.0.1`,
		want:   `/32`},
	{number: 26, flow: `web 203.0.113.9:9000`,
		create: `ip addr del 10.77.0.1/24 dev cni0`,
		repair: `ip addr add 10.77.0.1/24 dev cni0`,
		want:   `lost 10.77.0.1`},
	{number: 27, flow: `web 203.0.113.9:9000`,
		create: `ip link set up0 mtu 1200`,
		repair: `ip link set up0 mtu 1500`,
		want:   `MTU 1200`},
	{number: 28, flow: `outside 192.0.2.1:8080`,
		create: `ip link set up0 mtu 1200; nft 'add table inet fw; add chain inet fw out { type filter hook output priority 0; }; add rule inet fw out icmp type destination-unreachable drop'`,
		repair: `nft delete table inet fw; ip link set up0 mtu 1500`,
		want:   `inet fw out`},
	{number: 29, flow: `web 10.77.0.3:80`,
		create: `web ip link set eth0 mtu 9000; db ip link set eth0 mtu 9000`,
		repair: `web ip link set eth0 mtu 1500; db ip link set eth0 mtu 1500`,
		want:   `MTU 9000`},
	{number: 30, flow: `web 203.0.113.9:9000`,
		before: `nft list ruleset >$DIR/rules`,
		create: `nft flush ruleset`,
		repair: `nft -f $DIR/rules`,
		want:   `masquerade`},
	{number: 31, flow: `web 203.0.113.9:9000`,
		create: `nft 'add table ip vpnnat; add chain ip vpnnat post { type nat hook postrouting priority 90; }; add rule ip vpnnat post ip saddr 10.77.0.0/24 snat to 10.99.99.99'`,
		repair: `nft delete table ip vpnnat`,
		want:   `10.99.99.99`},
	{number: 33, flow: `outside 192.0.2.1:8080`,
		create: `nft 'add table ip old; add chain ip old pre { type nat hook prerouting priority -110; }; add rule ip old pre tcp dport 8080 dnat to 10.77.0.250:80'`,
		repair: `nft delete table ip old`,
		want:   `10.77.0.250`},
	{number: 35, flow: `web 203.0.113.9:9000`,
		create: `sysctl -qw net.ipv4.ip_forward=0`,
		repair: `sysctl -qw net.ipv4.ip_forward=1`,
		want:   `ip_forward is 0`},
	{number: 36, flow: `web [2001:db8::2]:9000`,
		create: `web sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1`,
		repair: `web sysctl -qw net.ipv6.conf.eth0.disable_ipv6=0; web ip -6 addr add fd77::2/64 dev eth0 nodad; web ip -6 route add default via fd77::1`,
		want:   `disable_ipv6 is 1`},
	{number: 37, flow: `web [2001:db8:9::9]:9000`,
		before: `outside ip addr add 2001:db8:9::9/128 dev lo`,
		create: `sysctl -qw net.ipv6.conf.up0.accept_ra=1; ip -6 route del default`,
		repair: `ip -6 route add default via 2001:db8::2`,
		want:   `accept_ra is 1`},
	{number: 38, flow: `web 10.96.0.1:80`,
		before: `sysctl -qw net.bridge.bridge-nf-call-iptables=1; nft 'add table ip svc; add chain ip svc pre { type nat hook prerouting priority -100; }; add rule ip svc pre ip daddr 10.96.0.1 tcp dport 80 dnat to 10.77.0.3'`,
		create: `sysctl -qw net.bridge.bridge-nf-call-iptables=0`,
		repair: `sysctl -qw net.bridge.bridge-nf-call-iptables=1`,
		want:   `bridge-nf-call-iptables is 0`},
	{number: 39, flow: `web 10.77.0.3:80`,
		create: `db ip link del eth0`, // as the kernel does with the namespace
		gone:   "db",
		want:   `the network namespace of db no longer exists; its attachment still has 10.77.0.3`},
	{number: 51, flow: `db 203.0.113.9:9000`, // two networks with one subnet
		create: `ip link add br9 type bridge; ip link set br9 up; ip addr add 10.77.0.1/24 dev br9; ip link set $DBVETH master br9; db ip addr flush dev eth0 scope global; db ip addr add 10.77.0.2/24 dev eth0; db ip route add default via 10.77.0.1; db ip neigh flush dev eth0`,
		repair: `ip link set $DBVETH master cni0; db ip addr del 10.77.0.2/24 dev eth0; db ip addr add 10.77.0.3/24 dev eth0; db ip route add default via 10.77.0.1; ip link del br9`,
		want:   `the reply to 10.77.0.2 arrives in web, which has that address, too`},
}

// TestBrokenHosts breaks a host, and checks that only the broken host shows the culprit,
// not the healthy and not the repaired one.
func TestBrokenHosts(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables"), testnet.Tool("ping"))
	for _, row := range broken {
		t.Run(fmt.Sprint(row.number), func(t *testing.T) {
			t.Parallel()
			if row.needs != "" {
				testnet.Require(t, testnet.Kernel(row.needs))
			}
			n := newNode(t)
			n.shell(row.before)
			if r := n.explain(row.flow); r.Verdict != why.Delivered {
				t.Fatalf("the healthy host: %s", describe(r))
			}
			want, known := examined[row.number]
			if known {
				n.isHealthy()
			}
			n.connect(row.flow)
			n.shell(row.create)
			n.gone = row.gone
			r := n.explain(row.flow)
			if r.Culprits == nil || !regexp.MustCompile(row.want).MatchString(r.Culprits[0].Text) {
				t.Errorf("the broken host: %s", describe(r))
			}
			if len(r.Culprits) != 1 {
				t.Errorf("%d culprits: %s", len(r.Culprits), describe(r))
			}
			if known {
				n.finds(want)
			}
			if row.gone != "" {
				return
			}
			n.shell(row.repair)
			r = n.explain(row.flow)
			// The kernel changes the state of a port some time after its link.
			limit := time.Now().Add(testnet.Patience)
			for r.Verdict != why.Delivered && time.Now().Before(limit) {
				r = n.explain(row.flow)
			}
			if r.Verdict != why.Delivered {
				t.Errorf("the repaired host: %s", describe(r))
			}
		})
	}
}

// TestSeveralCauses breaks a host twice: one cause hides the other.
func TestSeveralCauses(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	const flow = `web 203.0.113.9:9000`
	n.shell(`nft 'add table inet fw; add chain inet fw one { type filter hook forward priority 5; policy drop; }
		add chain inet fw two { type filter hook forward priority 6; }; add rule inet fw two counter reject'
		sysctl -qw net.ipv4.ip_forward=0`)
	var ids []string
	for _, c := range n.explain(flow).Culprits {
		ids = append(ids, c.ID)
	}
	want := []string{"sysctl.forwarding", "firewall.policy", "firewall.rule"}
	if !slices.Equal(ids, want) {
		t.Errorf("%v, want %v", ids, want)
	}
}

// TestSeveralQuestions asks twice with the same preparation: what the first answer assumes to be
// repaired does not count for the second.
func TestSeveralQuestions(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.shell(`nft 'add table inet fw; add chain inet fw one { type filter hook forward priority 5; policy drop; }'`)
	places, q := n.question(`web 203.0.113.9:9000`)
	explain := places.Explainer()
	for range 2 {
		if r, err := explain(q); err != nil || r.Verdict != why.Stopped {
			t.Errorf("%v: %s", err, describe(r))
		}
	}
}

// TestOwn follows packets of a namespace to itself.
func TestOwn(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.Host.Batch("link set lo up")
	const (
		input  = `nft 'add table inet fw; add chain inet fw in { type filter hook input priority 0; policy drop; }'`
		output = `nft 'add table inet fw; add chain inet fw out { type filter hook output priority 0; policy drop; }'`
		post   = `nft 'add table inet fw; add chain inet fw post { type filter hook postrouting priority 0; policy drop; }'`
		pre    = `nft 'add table inet fw; add chain inet fw pre { type filter hook prerouting priority 0; policy drop; }'`
		away   = `nft delete table inet fw`
	)
	for _, row := range []struct {
		create, flow, repair string
		want                 why.Verdict
	}{
		{``, `host 127.0.0.1:9100`, ``, why.Delivered},
		{``, `host 192.0.2.1:9100`, ``, why.Delivered},
		{``, `host [fd77::1]:9100`, ``, why.Delivered},
		{``, `host 192.0.2.1:8080`, ``, why.Delivered}, // published by web
		{``, `host 192.0.2.1:9101`, ``, why.Stopped},
		{input, `host 192.0.2.1:9100`, away, why.Stopped},
		{output, `host 127.0.0.1:9100`, away, why.Stopped},
		{post, `host 127.0.0.1:9100`, away, why.Stopped},
		{pre, `host 127.0.0.1:9100`, away, why.Stopped},
		{`ip link set lo down`, `host 192.0.2.1:9100`, `ip link set lo up`, why.Stopped},
	} {
		n.shell(row.create)
		if r := n.explain(row.flow); r.Verdict != row.want {
			t.Errorf("%s, %s: %s", row.create, row.flow, describe(r))
		}
		if connects := n.connects(row.flow); connects != (row.want == why.Delivered) {
			t.Errorf("%s, %s: the connection succeeds: %t", row.create, row.flow, connects)
		}
		n.shell(row.repair)
	}
}

// TestConnections reports a full connection table, the number of its entries, and packets that met a
// rule.
func TestConnections(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.shell(`iptables -A FORWARD -p tcp --dport 9000 -j DROP`)
	n.shell(`web timeout 0.2 bash -c 'echo >/dev/tcp/203.0.113.9/9000' || true`)
	places, q := n.question(`web 203.0.113.9:9000`)
	// Only the initial namespace can change the limit (row 32 of the list).
	settings := places.Host.Own().Settings
	settings["net.netfilter.nf_conntrack_count"], settings["net.netfilter.nf_conntrack_max"] = "10", "10"
	r, err := places.Explain(q)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Culprits) != 2 || r.Culprits[0].ID != "conntrack.full" || r.Culprits[1].Packets == 0 {
		t.Errorf("%+v", r.Culprits)
	}
}

func describe(r *why.Report) (text string) {
	text = fmt.Sprintf("%s: %s\n", r.Title, r.Verdict)
	for _, s := range r.Steps {
		text += fmt.Sprintf("%s %s: %s\n", s.Name, s.Where, s.Text)
	}
	for _, c := range r.Culprits {
		text += fmt.Sprintf("culprit %s: %s\n", c.ID, c.Text)
	}
	for _, d := range r.Doubts {
		text += fmt.Sprintf("? %s\n", d)
	}
	return text
}
