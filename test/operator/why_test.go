package operator

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/tenon-cni/tenon/internal/ops/why"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// broken are hosts with one fault: its number in our list of misconfigurations, commands on the
// healthy host, a flow, the commands that break it, and a pattern for the text of the first culprit.
var broken = []struct {
	number                     int
	before, flow, create, want string
}{
	{1, ``, `web 203.0.113.9:9000`, `nft 'add table inet fw; add chain inet fw transit { type filter hook forward priority 0; policy drop; }'`, `chain inet fw transit drops`},
	{2, ``, `web 203.0.113.9:9000`, `iptables-legacy -P FORWARD DROP`, `chain FORWARD of iptables-legacy`},
	{3, ``, `web 203.0.113.9:9000`, `iptables -N DOCKER-USER; iptables -A FORWARD -j DOCKER-USER; iptables -P FORWARD DROP`, `FORWARD`},
	{4, ``, `web 203.0.113.9:9000`, `nft 'add table inet firewalld; add chain inet firewalld filter_FORWARD { type filter hook forward priority 10; policy accept; }; add rule inet firewalld filter_FORWARD ct state established,related accept; add rule inet firewalld filter_FORWARD reject with icmpx admin-prohibited'`, `firewalld`},
	{5, ``, `web 10.77.0.1:9100`, `nft 'add table inet fw; add chain inet fw in { type filter hook input priority 0; policy drop; }; add rule inet fw in ct state established accept'`, `inet fw in drops`},
	{6, ``, `outside 192.0.2.1:8080`, `iptables -A FORWARD -d 10.77.0.2 -p tcp --dport 80 -j DROP`, `rule 1 of chain FORWARD.*8080 was translated`},
	{7, ``, `web 10.77.0.3:80`, `sysctl -qw net.bridge.bridge-nf-call-iptables=1; iptables -P FORWARD DROP`, `br_netfilter`},
	{8, ``, `web 203.0.113.9:9000`, `web ip route del default`, `web has no route to 203.0.113.9`},
	{9, ``, `web 203.0.113.9:9000`, `ip route del default`, `host has no route`},
	{10, ``, `web 203.0.113.9:9000`, `ip link add vpn0 type veth peer name vpn1; ip link set vpn1 up; ip link set vpn0 up; ip route add 10.77.0.0/25 dev vpn0`, `10.77.0.0/25`},
	{11, ``, `web 203.0.113.9:9000`, `ip link add docker0 type bridge; ip addr add 203.0.113.1/24 dev docker0; ip link set docker0 up`, `docker0`},
	{12, ``, `web 203.0.113.9:9000`, `ip link add up1 type veth peer name e1 netns $OUTSIDE; ip addr add 198.51.100.1/24 dev up1; ip link set up1 up; outside ip addr add 198.51.100.2/24 dev e1; outside ip link set e1 up; outside ip route add 198.51.100.1/32 via 192.0.2.1; ip route add 203.0.113.9 via 198.51.100.2; sysctl -qw net.ipv4.conf.all.rp_filter=1`, `rp_filter on up0`},
	{13, ``, `web 203.0.113.9:9000`, `ip route add default via 192.0.2.99 table 100; ip rule add from 10.77.0.0/24 lookup 100 priority 50`, `rule 50`},
	{14, ``, `web 203.0.113.9:9000`, `ip route add blackhole 203.0.113.0/24`, `blackhole route 203.0.113.0/24`},
	{15, ``, `web 203.0.113.9:9000`, `ip link set $VETH down`, `host-side veth of web.*is down`},
	{16, ``, `web 203.0.113.9:9000`, `ip link add br1 type bridge; ip link set br1 up; ip link set $VETH master br1`, `is a port of br1`},
	{18, `sysctl -qw net.bridge.bridge-nf-call-iptables=1`, `web 192.0.2.1:8080`, `bridge link set dev $VETH hairpin off`, `hairpin is off`},
	{19, ``, `web 203.0.113.9:9000`, `ip link set cni0 type bridge stp_state 1; ip link set $VETH nomaster; ip link set $VETH master cni0`, `STP keeps`},
	{20, ``, `web 10.77.0.3:80`, `bridge link set dev $VETH isolated on; bridge link set dev $DBVETH isolated on`, `isolated`},
	{21, ``, `web 203.0.113.9:9000`, `bridge fdb replace $(web ip -br link show eth0 | awk '{print $3}') dev $DBVETH master static sticky`, `sticky`},
	{22, ``, `outside 192.0.2.1:8080`, `web sysctl -qw net.ipv4.conf.eth0.arp_notify=0; web ip link set eth0 address 02:00:00:00:00:99`, `02:00:00:00:00:99`},
	{23, ``, `web 203.0.113.9:9000`, `db ip addr add 10.77.0.2/24 dev eth0; sleep 2; db ip neigh flush dev eth0; db ping -c 1 -W 1 -I 10.77.0.2 10.77.0.1 >/dev/null`, `several links`},
	{24, ``, `web [2001:db8::2]:9000`, `web ip -6 addr del fd77::2/64 dev eth0; db ip -6 addr add fd77::2/64 dev eth0 nodad; web sysctl -qw net.ipv6.conf.eth0.accept_dad=1; web ip -6 addr add fd77::2/64 dev eth0; sleep 3`, `dadfailed`},
	{25, ``, `web 10.77.0.3:80`, `web ip addr del 10.77.0.2/24 dev eth0; web ip addr add 10.77.0.2/32 dev eth0`, `/32`},
	{26, ``, `web 203.0.113.9:9000`, `ip addr del 10.77.0.1/24 dev cni0`, `lost 10.77.0.1`},
	{27, ``, `web 203.0.113.9:9000`, `ip link set up0 mtu 1200`, `MTU 1200`},
	{28, ``, `outside 192.0.2.1:8080`, `ip link set up0 mtu 1200; nft 'add table inet fw; add chain inet fw out { type filter hook output priority 0; }; add rule inet fw out icmp type destination-unreachable drop'`, `inet fw out`},
	{29, ``, `web 10.77.0.3:80`, `web ip link set eth0 mtu 9000; db ip link set eth0 mtu 9000`, `MTU 9000`},
	{30, ``, `web 203.0.113.9:9000`, `nft flush ruleset`, `masquerade`},
	{31, ``, `web 203.0.113.9:9000`, `nft 'add table ip vpnnat; add chain ip vpnnat post { type nat hook postrouting priority 90; }; add rule ip vpnnat post ip saddr 10.77.0.0/24 snat to 10.99.99.99'`, `10.99.99.99`},
	{33, ``, `outside 192.0.2.1:8080`, `nft 'add table ip old; add chain ip old pre { type nat hook prerouting priority -110; }; add rule ip old pre tcp dport 8080 dnat to 10.77.0.250:80'`, `10.77.0.250`},
	{35, ``, `web 203.0.113.9:9000`, `sysctl -qw net.ipv4.ip_forward=0`, `ip_forward is 0`},
	{36, ``, `web [2001:db8::2]:9000`, `web sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1`, `disable_ipv6 is 1`},
	{37, `outside ip addr add 2001:db8:9::9/128 dev lo`, `web [2001:db8:9::9]:9000`, `sysctl -qw net.ipv6.conf.up0.accept_ra=1; ip -6 route del default`, `accept_ra is 1`},
	{38, `sysctl -qw net.bridge.bridge-nf-call-iptables=1; nft 'add table ip svc; add chain ip svc pre { type nat hook prerouting priority -100; }; add rule ip svc pre ip daddr 10.96.0.1 tcp dport 80 dnat to 10.77.0.3'`, `web 10.96.0.1:80`, `sysctl -qw net.bridge.bridge-nf-call-iptables=0`, `bridge-nf-call-iptables is 0`},
}

// TestBrokenHosts breaks a host, and checks that only the broken host shows the culprit.
func TestBrokenHosts(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables"), testnet.Tool("ping"))
	for _, row := range broken {
		t.Run(fmt.Sprint(row.number), func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.shell(row.before)
			if r := n.explain(row.flow); r.Verdict != why.Delivered {
				t.Fatalf("the healthy host: %s", describe(r))
			}
			n.connect(row.flow)
			n.shell(row.create)
			r := n.explain(row.flow)
			if r.Culprits == nil || !regexp.MustCompile(row.want).MatchString(r.Culprits[0].Text) {
				t.Errorf("the broken host: %s", describe(r))
			}
		})
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
	return text
}
