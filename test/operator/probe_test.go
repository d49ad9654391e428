package operator

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/host/probe"
	"github.com/tenon-cni/tenon/internal/ops/why"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestProbe sends the packet of a flow on healthy and on broken hosts, and checks what the probe
// sees, how it compares with the evaluation, and that nothing of it remains.
func TestProbe(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables"), testnet.Tool("tc"))
	const (
		drop = `nft 'add table inet fw; add chain inet fw transit { type filter hook forward priority 0; policy drop; }'`
		tbf  = `tc qdisc add dev $VETH root tbf rate 100mbit burst 100k latency 50ms`
	)
	for _, row := range []struct {
		name, flow string
		create     string // before the evaluation
		change     string // between the evaluation and the probe, of which the evaluation does not know
		outcome    probe.Outcome
		evaluated  why.Verdict
		agreement  why.Agreement
		verdict    why.Verdict
		seen       string
		dropped    string // a line of Dropped or Rose
	}{
		{name: "tcp", flow: `web 203.0.113.9:9000`,
			outcome: probe.Answered, evaluated: why.Delivered, agreement: why.Confirms, verdict: why.Delivered,
			seen: "web, host, outside, reply in outside, reply in host, reply in web"},
		{name: "tcp6", flow: `web [2001:db8::2]:9000`,
			outcome: probe.Answered, evaluated: why.Delivered, agreement: why.Confirms, verdict: why.Delivered,
			seen: "web, host, outside, reply in outside, reply in host, reply in web"},
		{name: "ping", flow: `web 203.0.113.9`,
			outcome: probe.Answered, evaluated: why.Delivered, agreement: why.Confirms, verdict: why.Delivered,
			seen: "web, host, outside, reply in outside, reply in host, reply in web"},
		{name: "ping6", flow: `web 2001:db8::2`,
			outcome: probe.Answered, evaluated: why.Delivered, agreement: why.Confirms, verdict: why.Delivered,
			seen: "web, host, outside, reply in outside, reply in host, reply in web"},
		{name: "published port", flow: `outside 192.0.2.1:8080`,
			outcome: probe.Answered, evaluated: why.Delivered, agreement: why.Confirms, verdict: why.Delivered,
			seen: "outside, host, web, reply in web, reply in host, reply in outside"},
		{name: "hairpin", flow: `web 192.0.2.1:8080`,
			outcome: probe.Answered, evaluated: why.Delivered, agreement: why.Confirms, verdict: why.Delivered,
			seen: "web, host, reply in web"}, // on the host, the reply has none of the addresses
		{name: "loopback", flow: `host 127.0.0.1:9100`, create: `ip link set lo up`,
			outcome: probe.Answered, evaluated: why.Delivered, agreement: why.Confirms, verdict: why.Delivered,
			seen: "host, reply in host"},
		{name: "a datagram without an answer", flow: `web 203.0.113.9:9000/udp`,
			create:  `outside nft 'add table inet u; add chain inet u in { type filter hook input priority 0; }; add rule inet u in udp dport 9000 drop'`,
			outcome: probe.Silent, evaluated: why.Stopped, agreement: why.Confirms, verdict: why.Stopped,
			seen:    "web, host, outside",
			dropped: "outside: rule 1 of chain inet u in drops the request"},
		{name: "closed port", flow: `web 203.0.113.9:9001`,
			outcome: probe.Refused, evaluated: why.Stopped, agreement: why.Confirms, verdict: why.Stopped,
			seen: "web, host, outside, reply in outside, reply in host, reply in web"},
		{name: "policy", flow: `web 203.0.113.9:9000`, create: drop,
			outcome: probe.Silent, evaluated: why.Stopped, agreement: why.Confirms, verdict: why.Stopped,
			seen: "web, host", dropped: "host: the policy of chain inet fw transit drops the request"},
		{name: "rule of iptables", flow: `web 203.0.113.9`, create: `iptables -A FORWARD -p icmp -j DROP`,
			outcome: probe.Silent, evaluated: why.Stopped, agreement: why.Confirms, verdict: why.Stopped,
			seen: "web, host", dropped: "host: rule 1 of chain FORWARD of iptables (table filter) drops the request"},
		{name: "rejected", flow: `web 203.0.113.9:9000`,
			create:  `iptables -I FORWARD -s 10.77.0.2 -j REJECT`,
			outcome: probe.Refused, evaluated: why.Stopped, agreement: why.Confirms, verdict: why.Stopped,
			seen: "web, host", dropped: "host: rule 1 of chain FORWARD of iptables (table filter) drops the request"},
		{name: "bridge", flow: `web 10.77.0.3:80`,
			create:  `nft 'add table bridge b; add chain bridge b c { type filter hook forward priority 0; }; add rule bridge b c ip saddr 10.77.0.2 drop'`,
			outcome: probe.Silent, evaluated: why.Stopped, agreement: why.Confirms, verdict: why.Stopped,
			seen: "web, host", dropped: "host: rule 1 of chain bridge b c drops the request"},
		{name: "reply", flow: `web 203.0.113.9:9000`,
			create:  `nft 'add table ip r; add chain ip r c { type filter hook prerouting priority -300; }; add rule ip r c tcp sport 9000 drop'`,
			outcome: probe.Silent, evaluated: why.Stopped, agreement: why.Confirms, verdict: why.Stopped,
			seen:    "web, host, outside, reply in outside, reply in host",
			dropped: "host: rule 1 of chain ip r c drops the reply"},
		{name: "no route", flow: `web 203.0.113.9:9000`, create: `web ip route del default`,
			outcome: probe.NotSent, evaluated: why.Stopped, agreement: why.Confirms, verdict: why.Stopped},
		{name: "reverse path", flow: `web 203.0.113.9`, create: `ip link add up1 type veth peer name e1 netns $OUTSIDE
			ip addr add 198.51.100.1/24 dev up1; ip link set up1 up
			outside ip neigh replace 192.0.2.1 lladdr $(ip -br link show up0 | awk '{print $3}') dev e0
			outside ip addr add 198.51.100.2/24 dev e1; outside ip link set e1 up
			outside ip route add 198.51.100.1/32 via 192.0.2.1
			ip route add 203.0.113.9 via 198.51.100.2; sysctl -qw net.ipv4.conf.all.rp_filter=1`,
			outcome: probe.Silent, evaluated: why.Stopped, agreement: why.Confirms, verdict: why.Stopped,
			seen:    "web, host, outside, reply in outside, reply in host",
			dropped: "host: counter TcpExt.IPReversePathFilter rose by 1"},
		{name: "an answer decides", flow: `web 203.0.113.9:9000`, create: tbf,
			outcome: probe.Answered, evaluated: why.Unknown, agreement: why.Decides, verdict: why.Delivered,
			seen: "web, host, outside, reply in outside, reply in host, reply in web"},
		{name: "a refusal decides", flow: `web 203.0.113.9:9000`, create: tbf,
			change:  `outside nft 'add table inet x; add chain inet x in { type filter hook input priority 0; }; add rule inet x in tcp dport 9000 reject with tcp reset'`,
			outcome: probe.Refused, evaluated: why.Unknown, agreement: why.Decides, verdict: why.Stopped,
			seen:    "web, host, outside, reply in outside, reply in host, reply in web",
			dropped: "outside: the rule with handle 2 of chain inet x in drops the request"},
		{name: "silence decides nothing", flow: `web 203.0.113.9:9000`, create: tbf,
			change:  `outside ip route del 192.0.2.0/24`,
			outcome: probe.Silent, evaluated: why.Unknown, agreement: why.Open, verdict: why.Unknown,
			seen: "web, host, outside"},
		{name: "stopped after all", flow: `web 203.0.113.9:9000`, change: drop,
			outcome: probe.Silent, evaluated: why.Delivered, agreement: why.Differs, verdict: why.Unknown,
			seen: "web, host", dropped: "host: the policy of chain inet fw transit drops the request"},
		{name: "delivered after all", flow: `web 203.0.113.9:9000`, create: drop,
			change:  `nft delete table inet fw`,
			outcome: probe.Answered, evaluated: why.Stopped, agreement: why.Differs, verdict: why.Unknown,
			seen: "web, host, outside, reply in outside, reply in host, reply in web"},
		{name: "stopped by another rule", flow: `web 203.0.113.9:9000`, create: drop,
			change:  `nft 'add table inet fx; add chain inet fx c { type filter hook forward priority -1; policy drop; }'`,
			outcome: probe.Silent, evaluated: why.Stopped, agreement: why.Differs, verdict: why.Unknown,
			seen: "web, host", dropped: "host: the policy of chain inet fx c drops the request"},
		{name: "stopped further on", flow: `web 203.0.113.9:9000`,
			create:  `sysctl -qw net.ipv4.ip_forward=0`,
			change:  `sysctl -qw net.ipv4.ip_forward=1; outside ip route del 192.0.2.0/24`,
			outcome: probe.Silent, evaluated: why.Stopped, agreement: why.Differs, verdict: why.Unknown,
			seen: "web, host, outside"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.shell(row.create)
			places, q := n.question(strings.TrimSuffix(row.flow, "/udp"))
			if strings.HasSuffix(row.flow, "/udp") {
				q.Protocol = unix.IPPROTO_UDP
			}
			r, err := places.Explain(q)
			if err != nil {
				t.Fatal(err)
			}
			n.shell(row.change)
			before := testnet.Snapshot(t, n.Spaces()) // without neighbours and connections
			if err := n.Host.Run(func() error { return places.Probe(t.Context(), q, r) }); err != nil {
				t.Fatal(err)
			}
			if diff := testnet.Diff(before, testnet.Snapshot(t, n.Spaces())); diff != "" {
				t.Errorf("the probe has left:\n%s", diff)
			}
			p := r.Probe
			if p.Outcome != row.outcome || p.Evaluated != row.evaluated || p.Agreement != row.agreement ||
				r.Verdict != row.verdict || strings.Join(p.Way, ", ") != row.seen ||
				row.dropped != "" && !slices.Contains(slices.Concat(p.Dropped, p.Rose), row.dropped) ||
				p.Lost {
				t.Errorf("%s, evaluated %s: %s, %s: %q\nseen in %s\n%q\n%q\n%q\n%s", p.Outcome, p.Evaluated,
					p.Agreement, r.Verdict, p.Conflict, strings.Join(p.Way, ", "), p.Dropped, p.Rose, p.Passed,
					describe(r))
			}
			if (p.Agreement == why.Differs) != (p.Conflict != "") {
				t.Errorf("%s, but the conflict is %q", p.Agreement, p.Conflict)
			}
		})
	}
}

// TestProbeRefused checks that a probe sends nothing to an address that does not name one place.
func TestProbeRefused(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	places, q := n.question(`web 203.0.113.9`)
	for _, to := range []string{"fe80::1", "224.0.0.1", "ff02::1", "255.255.255.255"} {
		q.To = netip.MustParseAddr(to)
		if err := places.Probe(t.Context(), q, &why.Report{}); !errors.Is(err, why.ErrProbe) {
			t.Errorf("%s: %v", to, err)
		}
	}
}
