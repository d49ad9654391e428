package operator

import (
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/ops/why"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestFixes runs the commands that why prints for broken hosts, as an operator would: the connection
// then succeeds, and a rule accepts nothing but this flow.
func TestFixes(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables"))
	const policy = `add chain inet fw c { type filter hook forward priority 0; policy drop; }`
	for _, row := range []struct{ name, flow, create, fix string }{
		{"policy of nftables", `web 203.0.113.9:9000`, `nft 'add table inet fw; ` + policy + `'`,
			"nft insert rule inet fw c ip saddr 10.77.0.2 ip daddr 203.0.113.9 tcp dport 9000 accept\n" +
				"nft insert rule inet fw c ct state established,related accept"},
		{"rule in a chain below", `outside 192.0.2.1:8080`,
			`nft 'add table inet fw; add chain inet fw c { type filter hook forward priority 0; };
				add chain inet fw below; add rule inet fw below tcp dport 80 drop; add rule inet fw c jump below'`,
			"nft insert rule inet fw c ip saddr 192.0.2.2 ip daddr 10.77.0.2 tcp dport 80 accept\n" +
				"nft insert rule inet fw c ct state established,related accept"},
		{"rule of iptables", `web 203.0.113.9:9000`, `iptables -I FORWARD -p tcp --dport 9000 -j REJECT`,
			"iptables -t filter -I FORWARD -s 10.77.0.2 -d 203.0.113.9 -p tcp --dport 9000 -j ACCEPT\n" +
				"iptables -t filter -I FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT"},
		{"rule in the container", `host 10.77.0.2:80`,
			`web nft 'add table inet own; add chain inet own in { type filter hook input priority 0; policy drop; }'`,
			"nsenter --net=$WEB nft insert rule inet own in ip saddr 10.77.0.1 ip daddr 10.77.0.2 tcp dport 80 accept\n" +
				"nsenter --net=$WEB nft insert rule inet own in ct state established,related accept"},
		{"the reply", `web 203.0.113.9:9000`, `nft 'add table inet fw; add chain inet fw c { type filter hook forward priority 0; };
				add rule inet fw c tcp sport 9000 drop'`, "nft insert rule inet fw c ct state established,related accept"},
		{"forwarding", `web 203.0.113.9:9000`, `sysctl -qw net.ipv4.ip_forward=0`, "sysctl -w net.ipv4.ip_forward=1"},
		{"a link", `web 10.77.0.3:80`, `ip link set $DBVETH down`, "ip link set $DBVETH up"},
		{"a bridge", `web 10.77.0.3:80`, `ip link set cni0 down`, "ip link set cni0 up"},
		{"a neighbour", `host 10.77.0.2:80`,
			`ip neigh replace 10.77.0.2 lladdr 02:00:00:00:00:99 dev cni0 nud permanent`,
			"ip neigh del 10.77.0.2 dev cni0"},
		{"two causes", `web 203.0.113.9:9000`,
			`sysctl -qw net.ipv4.ip_forward=0; ip link set up0 down`, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.connect(row.flow)
			n.shell(row.create)
			if n.connects(row.flow) {
				t.Fatal("the broken host connects")
			}
			r := n.explain(row.flow)
			var fixes []string
			for _, c := range r.Culprits {
				if c.Fix != "" {
					fixes = append(fixes, c.Fix)
				}
			}
			got := strings.NewReplacer(n.Container("web").Path(), "$WEB", n.veths["db"], "$DBVETH").
				Replace(strings.Join(fixes, "\n"))
			if row.fix != "" && got != row.fix {
				t.Fatalf("fix %q, want %q; %s", got, row.fix, describe(r))
			}
			n.shell(strings.Join(fixes, "\n"))
			if row.fix != "" {
				n.connect(row.flow)
			}
		})
	}
}

// TestAdvice: what why cannot evaluate, and what is the business of another program, is advice.
func TestAdvice(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, flow, create, advice string }{
		{"no service", `web 10.77.0.3:81`, ``, ""},
		{"lo is down", `web 127.0.0.1:80`, ``, "ip link set lo up"},
		{"a martian destination", `outside 192.0.2.1:9100`, `nft 'add table ip own;
			add chain ip own c { type nat hook prerouting priority -100; };
			add rule ip own c tcp dport 9100 dnat to 127.0.0.1:9100'`, "let the service listen on an address of up0"},
		{"a table of firewalld", `web 203.0.113.9:9000`, `nft 'add table inet firewalld;
			add chain inet firewalld f { type filter hook forward priority 0; policy drop; }'`, "firewall-cmd "},
		{"a route in another table", `web 203.0.113.9:9000`, `ip route add blackhole 203.0.113.0/24 table 77
			ip rule add to 203.0.113.0/24 lookup 77`, "ip route del blackhole 203.0.113.0/24 table 77"},
		{"a route of the cluster's agent", `web 203.0.113.9:9000`,
			`ip route add blackhole 203.0.113.0/24 proto 117`, "tenon-cluster status"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.shell(row.create)
			if n.connects(row.flow) {
				t.Error("the broken host connects")
			}
			r := n.explain(row.flow)
			if r.Verdict != why.Stopped || r.Culprits[0].Fix != "" ||
				!strings.Contains(r.Culprits[0].Advice, row.advice) {
				t.Errorf("%+v; %s", r.Culprits, describe(r))
			}
		})
	}
}

// TestHealthyHosts: packets arrive, and why says so, where a host differs from the usual one.
func TestHealthyHosts(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables"))
	for _, row := range []struct{ name, flow, create string }{
		{"a published port at the loopback address", `host 127.0.0.1:8080`, ``},
		{"an own service", `web 10.77.0.2:80`, `web ip link set lo up`},
		{"a service of the host", `host 127.0.0.1:9100`, ``},
		{"a service of the host, IPv6", `host [::1]:9100`, ``},
		{"a destination without masquerading", `web 203.0.113.9:9000`,
			`nft add element inet tenon nomasq4 '{ 10.77.0.2 . 203.0.113.0-203.0.113.255 }'
			outside ip route add 10.77.0.0/24 via 192.0.2.1`},
		{"redirect in the container", `web 203.0.113.9:9000`,
			`web ip link set lo up; web nft 'add table ip own; add chain ip own out { type nat hook output priority -100; };
				add rule ip own out tcp dport 9000 redirect to :80'`},
		{"redirect on the host", `web 203.0.113.9:9000`, `nft 'add table ip own;
			add chain ip own pre { type nat hook prerouting priority -100; };
			add rule ip own pre tcp dport 9000 redirect to :9100'`},
		{"two links with the gateway", `web 203.0.113.9:9000`, `ip link add p0 type veth peer name p1
			ip addr add 10.77.0.1/32 dev p0; ip link set p0 up; web ping -c1 -W5 10.77.0.1`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.shell(row.create)
			n.connect(row.flow)
			if r := n.explain(row.flow); r.Verdict != why.Delivered {
				t.Error(describe(r))
			}
		})
	}
}
