package operator

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/ops/doctor"
	"github.com/tenon-cni/tenon/internal/ops/why"
	"github.com/tenon-cni/tenon/internal/testnet"
)

var (
	hosts = flag.Int("hosts", 0, "send packets on `N` random hosts; 0: 20 with -short, otherwise 200")
	seed  = flag.Uint64("seed", 0, "of the random hosts; 0: 1 with -short, otherwise another one in each run")
)

// flows are the questions on random hosts.
var flows = []string{
	`web 203.0.113.9:9000`, `web 10.77.0.3:80`, `db 10.77.0.2:80`, `outside 192.0.2.1:8080`,
	`host 10.77.0.2:80`, `host 127.0.0.1:8080`, `host 203.0.113.9:9000`, `web 10.77.0.1:9100`,
	`web 192.0.2.1:8080`, `db 192.0.2.1:8080`, `host [2001:db8::2]:9000`, `web [2001:db8::2]:9000`,
	`web [fd77::3]:80`, `host [fd77::2]:80`, `outside [fd77::2]:80`, `db 203.0.113.9:9000`,
	`web 10.96.0.1:80`, `host 10.96.0.2:80`, `outside 192.0.2.1:30080`,
}

// changes are what random hosts have in addition to the usual host; $T is the name of a table that no
// other change has. Some harm some flows, some none.
var changes = []string{
	// rules of nftables
	`nft "add table inet $T; add chain inet $T c { type filter hook forward priority 0; policy drop; }"`,
	`nft "add table inet $T; add chain inet $T c { type filter hook forward priority 5; policy drop; };
		add rule inet $T c ct state established,related accept; add rule inet $T c ip saddr 10.77.0.0/24 accept"`,
	`nft "add table inet $T; add chain inet $T c { type filter hook forward priority -5; };
		add rule inet $T c tcp dport { 80, 9000-9100 } drop"`,
	`nft "add table inet $T; add chain inet $T c { type filter hook forward priority 1; };
		add rule inet $T c ip daddr 10.77.0.3 reject"`,
	`nft "add table inet $T; add chain inet $T c { type filter hook input priority 0; };
		add rule inet $T c iifname cni0 tcp dport 9100 drop"`,
	`nft "add table inet $T; add chain inet $T c { type filter hook output priority 0; };
		add rule inet $T c ip daddr 10.77.0.2 drop"`,
	`nft "add table ip $T; add chain ip $T c { type filter hook prerouting priority -300; };
		add rule ip $T c ip saddr 10.77.0.3 drop"`,
	`nft "add table ip $T; add chain ip $T c { type filter hook prerouting priority -300; };
		add rule ip $T c tcp sport 9000 drop"`,
	`nft "add table inet $T; add map inet $T m { type inet_service : verdict; elements = { 80 : drop, 443 : accept }; };
		add chain inet $T c { type filter hook forward priority 0; }; add rule inet $T c tcp dport vmap @m"`,
	`nft "add table inet $T; add set inet $T s { type ipv4_addr; flags interval; elements = { 203.0.113.0/28 }; };
		add chain inet $T c { type filter hook forward priority 0; }; add rule inet $T c ip daddr @s drop"`,
	`nft "add table inet $T; add chain inet $T c { type filter hook forward priority 0; };
		add rule inet $T c ct state new limit rate 1000/second accept; add rule inet $T c ct state invalid drop"`,
	`nft "add table ip $T; add chain ip $T c { type nat hook prerouting priority -100; };
		add rule ip $T c tcp dport 9000 redirect to :9100"`,
	`nft "add table ip $T; add chain ip $T c { type nat hook prerouting priority -110; };
		add rule ip $T c tcp dport 9000 dnat to 10.77.0.3:80"`,
	`nft "add table ip $T; add chain ip $T c { type nat hook output priority -110; };
		add rule ip $T c ip daddr 203.0.113.9 tcp dport 9000 dnat to 10.77.0.3:80"`,
	`nft "add table bridge $T; add chain bridge $T c { type filter hook forward priority 0; };
		add rule bridge $T c ip saddr 10.77.0.2 drop"`,
	`web nft "add table inet $T; add chain inet $T c { type filter hook input priority 0; policy drop; };
		add rule inet $T c ct state established accept; add rule inet $T c meta l4proto ipv6-icmp accept"`,
	`web nft "add table inet $T; add chain inet $T c { type filter hook output priority 0; };
		add rule inet $T c tcp dport 9000 reject with tcp reset"`,
	`db nft "add table inet $T; add chain inet $T c { type filter hook input priority 0; };
		add rule inet $T c ip saddr 10.77.0.2 drop"`,
	`nft "add table inet $T; add chain inet $T c { type filter hook prerouting priority -150; };
		add rule inet $T c iifname cni0 meta mark set 7"; ip rule add fwmark 7 prohibit priority 90`,
	`nft "add table inet $T; add chain inet $T c { type filter hook prerouting priority -150; };
		add rule inet $T c fib saddr . iif oif missing drop"`,
	// rules of iptables
	`iptables -I FORWARD -s 10.77.0.2 -j REJECT`,
	`iptables -I FORWARD -p tcp -m multiport --dports 80,9000 -j DROP`,
	`iptables -I FORWARD -m conntrack --ctstate NEW -i up0 -j DROP`,
	`iptables -I INPUT -i cni0 -p tcp --dport 9100 -j DROP`,
	`iptables -P FORWARD DROP; iptables -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
		iptables -A FORWARD -s 10.77.0.0/24 -j ACCEPT`,
	`ip6tables -I FORWARD -d fd77::/64 -j DROP`,
	`iptables -t nat -I PREROUTING -p tcp --dport 9000 -j REDIRECT --to-ports 9100`,
	`iptables -t nat -I OUTPUT -d 203.0.113.9 -p tcp -j DNAT --to-destination 10.77.0.3:80`,
	`iptables -t raw -I PREROUTING -s 10.77.0.3 -j DROP`,
	// rules of other programs
	kubeProxy(5), "sysctl -qw net.bridge.bridge-nf-call-iptables=1; " + kubeProxy(5), kubeProxyNFT, docker,
	docker + "\n" + dockerUser, firewalldZone("public"), firewalldZone("trusted"), calico,
	// routes, addresses, neighbours
	`ip route add blackhole 203.0.113.0/24`,
	`web ip route add unreachable 203.0.113.9/32`,
	`web ip route del default`,
	`ip route add 203.0.113.9/32 dev cni0`,
	`ip rule add from 10.77.0.2 prohibit priority 80`,
	`ip rule add to 203.0.113.0/24 lookup 77 priority 81; ip route add default via 192.0.2.2 table 77`,
	`outside ip route add 10.77.0.0/24 via 192.0.2.1`,
	`outside ip route del fd77::/64`,
	`ip addr del 10.77.0.1/24 dev cni0`,
	`ip addr add 10.77.0.9/24 dev cni0`,
	`db ip addr add 10.77.0.2/24 dev eth0`,
	`ip neigh replace 10.77.0.2 lladdr 02:00:00:00:00:99 dev cni0 nud permanent`,
	`web ip neigh replace 10.77.0.1 lladdr 02:00:00:00:00:99 dev eth0 nud permanent`,
	// links and settings
	`ip link set $VETH down`, `ip link set up0 down`, `web ip link set lo up`,
	`ip link set $DBVETH type bridge_slave isolated on; ip link set $VETH type bridge_slave isolated on`,
	`ip link set $VETH type bridge_slave hairpin off`,
	`ip link add br$T type bridge; ip link set br$T up; ip link set $DBVETH master br$T`,
	`ip link add p$T type veth peer name q$T; ip addr add 10.77.0.1/32 dev p$T; ip link set p$T up`,
	`web ip link set eth0 mtu 1400`,
	`sysctl -qw net.ipv4.ip_forward=0`, `sysctl -qw net.ipv4.conf.cni0.forwarding=0`,
	`sysctl -qw net.ipv4.conf.all.rp_filter=1`, `sysctl -qw net.ipv4.conf.cni0.arp_ignore=1`,
	`sysctl -qw net.ipv6.conf.all.forwarding=0`, `sysctl -qw net.ipv4.conf.cni0.route_localnet=0`,
	`sysctl -qw net.bridge.bridge-nf-call-iptables=0`, `sysctl -qw net.bridge.bridge-nf-call-iptables=1`,
	`web sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1`,
	// what cannot be evaluated
	`tc qdisc add dev $VETH root tbf rate 1mbit burst 10k latency 50ms`,
	`nft "add table netdev $T; add chain netdev $T c { type filter hook ingress device $VETH priority 0; };
		add rule netdev $T c tcp dport 9000 drop"`,
	`ip xfrm policy add src 10.77.0.0/24 dst 203.0.113.0/24 dir fwd action block`,
	`web ip link set eth0 arp off`,
}

// TestRandomHosts sends real packets on hosts made at random: why says "stopped" only if no packet
// arrives, and "delivered" only if one does, also with a probe; after the printed fix, one does. No
// check of doctor crashes.
func TestRandomHosts(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables"), testnet.Tool("tc"))
	number, from := *hosts, *seed
	if number == 0 {
		number = 200
		if testing.Short() {
			number = 20
		}
	}
	if from == 0 {
		from = rand.Uint64()
		if testing.Short() {
			from = 1
		}
	}
	var mu sync.Mutex
	rates := map[string]int{}
	limit := make(chan struct{}, 4)
	t.Run("hosts", func(t *testing.T) {
		for i := range number {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				limit <- struct{}{}
				defer func() { <-limit }()
				outcome := randomHost(t, rand.New(rand.NewPCG(from, uint64(i))))
				mu.Lock()
				defer mu.Unlock()
				rates[outcome]++
			})
		}
	})
	t.Logf("%d hosts with -seed %d: %v", number, from, rates)
}

// randomHost makes a host, asks a question, and returns how the answer compares with real packets.
func randomHost(t *testing.T, r *rand.Rand) string {
	n := newNode(t)
	var made []string
	for i := range 1 + r.IntN(3) {
		change := strings.ReplaceAll(changes[r.IntN(len(changes))], "$T", fmt.Sprint("t", i))
		n.shell("{ " + change + "\n} 2>/dev/null || true") // two changes may exclude each other
		made = append(made, change)
	}
	for _, c := range n.examine().Checks {
		if c.Status == doctor.Crashed {
			t.Errorf("doctor: check %s: %s\nchanges:\n%s", c.ID, c.Reason, strings.Join(made, "\n"))
		}
	}
	flow := flows[r.IntN(len(flows))]
	var report *why.Report
	arrives := false
	says := func() bool { return report.Verdict == why.Delivered || report.Verdict == why.Limited }
	patience := 1500 * time.Millisecond
	for range 3 { // the kernel may still be busy with the changes, and the host with other tests
		arrives = n.dial(flow, patience) == nil
		report = n.explain(flow)
		if report.Verdict == why.Unknown || arrives == says() {
			break
		}
		time.Sleep(time.Second)
		patience = testnet.Patience
	}
	probed := n.probe(flow)
	if v := probed.Verdict; arrives && v == why.Stopped || !arrives && v == why.Delivered {
		t.Errorf("packets arrive: %t, but with a probe: %s\n%+v\n%s\nchanges:\n%s", arrives, v,
			probed.Probe, describe(probed), strings.Join(made, "\n"))
	}
	switch {
	case report.Verdict == why.Unknown && arrives:
		return "arrives, not known"
	case report.Verdict == why.Unknown:
		return "stopped, not known"
	case arrives != says():
		t.Errorf("packets arrive: %t\n%s\nchanges:\n%s", arrives, describe(report), strings.Join(made, "\n"))
		return "wrong"
	case arrives:
		return "arrives"
	}
	var fixes []string
	for _, c := range report.Culprits {
		fixes = append(fixes, c.Fix)
	}
	commands := strings.Trim(strings.Join(fixes, "\n"), "\n")
	if commands == "" {
		return "stopped, advice"
	}
	n.shell(commands)
	// The kernel may still report that the packets before the fix found no neighbour.
	connect := func() error { return n.dial(flow, testnet.Patience) }
	if err := testnet.Try(connect); err != nil {
		t.Errorf("after the fix:\n%s\n%v; %s\nchanges:\n%s", commands, err, describe(report),
			strings.Join(made, "\n"))
		return "wrong fix"
	}
	return "stopped, fixed"
}
