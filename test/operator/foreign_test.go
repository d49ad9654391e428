package operator

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/ops/why"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// Rules of programs that share a host with Tenon, as they make them on a host like node: Kubernetes,
// Docker, firewalld and Calico. Their documentation describes the chains.

// kubeProxy returns commands that add the rules of kube-proxy in mode iptables for services: service
// i has the address 10.96.i.1 to 10.96.i.250 and port 80, and two endpoints, web and db. Service 0 also
// has the port 30080 of the node. The last service has no endpoints.
func kubeProxy(services int) string {
	var filter, nat, rules strings.Builder
	address := func(i int) string { return fmt.Sprintf("10.96.%d.%d", i/250, i%250+1) }
	for i := range services - 1 {
		svc, web, db := fmt.Sprintf("KUBE-SVC-%016d", i), fmt.Sprintf("KUBE-SEP-W%015d", i), fmt.Sprintf("KUBE-SEP-D%015d", i)
		fmt.Fprintf(&nat, ":%s - [0:0]\n:%s - [0:0]\n:%s - [0:0]\n", svc, web, db)
		fmt.Fprintf(&rules, "-A KUBE-SERVICES -d %s/32 -p tcp -m comment --comment \"default/s%d cluster IP\" -m tcp --dport 80 -j %s\n", address(i), i, svc)
		fmt.Fprintf(&rules, "-A %s ! -s 10.77.0.0/24 -d %s/32 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ\n", svc, address(i))
		fmt.Fprintf(&rules, "-A %s -m statistic --mode random --probability 0.5 -j %s\n-A %s -j %s\n", svc, web, svc, db)
		for chain, to := range map[string]string{web: "10.77.0.2", db: "10.77.0.3"} {
			fmt.Fprintf(&rules, "-A %s -s %s/32 -j KUBE-MARK-MASQ\n-A %s -p tcp -m tcp -j DNAT --to-destination %s:80\n", chain, to, chain, to)
		}
	}
	fmt.Fprintf(&filter, "-A KUBE-SERVICES -d %s/32 -p tcp -m comment --comment \"default/empty has no endpoints\" -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable\n", address(services-1))
	return "iptables-restore --noflush <<'RULES'\n" + `*filter
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-FIREWALL - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-SERVICES - [0:0]
-A INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A INPUT -m comment --comment "kubernetes health check service ports" -j KUBE-NODEPORTS
-A INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
-A INPUT -j KUBE-FIREWALL
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
` + filter.String() + `COMMIT
*nat
:KUBE-MARK-MASQ - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-SERVICES - [0:0]
` + nat.String() + `-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
` + rules.String() + `-A KUBE-NODEPORTS -p tcp -m comment --comment "default/s0" -m tcp --dport 30080 -j KUBE-MARK-MASQ
-A KUBE-NODEPORTS -p tcp -m comment --comment "default/s0" -m tcp --dport 30080 -j KUBE-SVC-0000000000000000
-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
COMMIT
RULES`
}

// kubeProxyNFT are the rules of kube-proxy in mode nftables for a service with two endpoints.
const kubeProxyNFT = `nft -f - <<'RULES'
table ip kube-proxy {
	map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
	chain nat-prerouting { type nat hook prerouting priority dstnat; policy accept; jump services; }
	chain nat-output { type nat hook output priority -100; policy accept; jump services; }
	chain nat-postrouting { type nat hook postrouting priority srcnat; policy accept; jump masquerading; }
	chain services { ip daddr . meta l4proto . th dport vmap @service-ips; }
	chain masquerading {
		meta mark & 0x4000 == 0 return
		meta mark set meta mark ^ 0x4000
		masquerade fully-random
	}
	chain mark-for-masquerade { meta mark set meta mark | 0x4000; }
	chain service-a {
		ip daddr 10.96.0.1 tcp dport 80 ip saddr != 10.77.0.0/24 jump mark-for-masquerade
		numgen random mod 2 vmap { 0 : goto endpoint-web, 1 : goto endpoint-db }
	}
	chain endpoint-web {
		ip saddr 10.77.0.2 jump mark-for-masquerade
		meta l4proto tcp dnat to 10.77.0.2:80
	}
	chain endpoint-db {
		ip saddr 10.77.0.3 jump mark-for-masquerade
		meta l4proto tcp dnat to 10.77.0.3:80
	}
}
add element ip kube-proxy service-ips { 10.96.0.1 . tcp . 80 : goto service-a }
RULES`

// docker has a bridge without containers, and published ports of one that has ended.
const docker = `ip link add docker0 type bridge; ip addr add 172.17.0.1/16 dev docker0; ip link set docker0 up
iptables-restore --noflush <<'RULES'
*filter
:FORWARD DROP [0:0]
:DOCKER - [0:0]
:DOCKER-ISOLATION-STAGE-1 - [0:0]
:DOCKER-ISOLATION-STAGE-2 - [0:0]
:DOCKER-USER - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-ISOLATION-STAGE-1
-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -o docker0 -j DOCKER
-A FORWARD -i docker0 ! -o docker0 -j ACCEPT
-A FORWARD -i docker0 -o docker0 -j ACCEPT
-A DOCKER -d 172.17.0.2/32 ! -i docker0 -o docker0 -p tcp -m tcp --dport 80 -j ACCEPT
-A DOCKER-ISOLATION-STAGE-1 -i docker0 ! -o docker0 -j DOCKER-ISOLATION-STAGE-2
-A DOCKER-ISOLATION-STAGE-1 -j RETURN
-A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP
-A DOCKER-ISOLATION-STAGE-2 -j RETURN
-A DOCKER-USER -j RETURN
COMMIT
*nat
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
-A POSTROUTING -s 172.17.0.2/32 -d 172.17.0.2/32 -p tcp -m tcp --dport 80 -j MASQUERADE
-A DOCKER -i docker0 -j RETURN
-A DOCKER ! -i docker0 -p tcp -m tcp --dport 8081 -j DNAT --to-destination 172.17.0.2:80
COMMIT
RULES`

// dockerUser accepts the containers of cni0, as the documentation of Docker advises.
const dockerUser = `iptables -I DOCKER-USER -i cni0 -j ACCEPT; iptables -I DOCKER-USER -o cni0 -j ACCEPT`

// firewalld has the zone public for the uplink, and cni0 in zone ZONE.
const firewalld = `nft -f - <<'RULES'
table inet firewalld {
	chain raw_PREROUTING { type filter hook prerouting priority raw + 10; policy accept;
		icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept
		meta nfproto ipv6 fib saddr . mark . iif oif missing drop
	}
	chain filter_PREROUTING { type filter hook prerouting priority filter + 10; policy accept; }
	chain filter_INPUT { type filter hook input priority filter + 10; policy accept;
		ct state { established, related } accept
		ct status dnat accept
		iifname "lo" accept
		ct state invalid drop
		jump filter_INPUT_ZONES
		reject with icmpx admin-prohibited
	}
	chain filter_FORWARD { type filter hook forward priority filter + 10; policy accept;
		ct state { established, related } accept
		ct status dnat accept
		iifname "lo" accept
		ct state invalid drop
		ip6 daddr { ::/96, ::ffff:0.0.0.0/96, 2002::/24 } reject with icmpv6 addr-unreachable
		jump filter_FORWARD_ZONES
		reject with icmpx admin-prohibited
	}
	chain filter_OUTPUT { type filter hook output priority filter + 10; policy accept;
		ct state { established, related } accept
		oifname "lo" accept
		ip6 daddr { ::/96, ::ffff:0.0.0.0/96, 2002::/24 } reject with icmpv6 addr-unreachable
	}
	chain filter_INPUT_ZONES {
		iifname "cni0" goto filter_IN_ZONE
		iifname "up0" goto filter_IN_public
		goto filter_IN_public
	}
	chain filter_FORWARD_ZONES {
		iifname "cni0" goto filter_FWD_ZONE
		iifname "up0" goto filter_FWD_public
		goto filter_FWD_public
	}
	chain filter_IN_public {
		jump filter_IN_public_deny
		jump filter_IN_public_allow
		meta l4proto { icmp, ipv6-icmp } accept
		reject with icmpx admin-prohibited
	}
	chain filter_IN_public_deny { }
	chain filter_IN_public_allow { tcp dport 22 accept; ip6 daddr fe80::/64 udp dport 546 accept; }
	chain filter_IN_trusted { accept; }
	chain filter_FWD_public {
		jump filter_FWD_public_allow
		reject with icmpx admin-prohibited
	}
	chain filter_FWD_public_allow { oifname "up0" accept; }
	chain filter_FWD_trusted { accept; }
	chain nat_POSTROUTING { type nat hook postrouting priority srcnat + 10; policy accept;
		oifname "up0" goto nat_POST_public
	}
	chain nat_POST_public { }
}
RULES`

func firewalldZone(zone string) string { return strings.ReplaceAll(firewalld, "ZONE", zone) }

// calico has no workloads of its own; packets of others pass with a mark.
const calico = `iptables-restore --noflush <<'RULES'
*filter
:cali-FORWARD - [0:0]
:cali-INPUT - [0:0]
:cali-OUTPUT - [0:0]
:cali-cidr-block - [0:0]
:cali-from-hep-forward - [0:0]
:cali-from-wl-dispatch - [0:0]
:cali-to-hep-forward - [0:0]
:cali-to-wl-dispatch - [0:0]
:cali-wl-to-host - [0:0]
-I INPUT -m comment --comment "cali:Cz_u1IQiXIMmKD4c" -j cali-INPUT
-I FORWARD -m comment --comment "cali:wUHhoiAYhphO9Mso" -j cali-FORWARD
-A FORWARD -m comment --comment "cali:S93hcgKJrXEqnTfs" -m mark --mark 0x10000/0x10000 -j ACCEPT
-A FORWARD -m comment --comment "cali:mp77cMpurHhyjLrM" -j MARK --set-xmark 0x10000/0x10000
-I OUTPUT -m comment --comment "cali:tVnHkvAo15HuiPy0" -j cali-OUTPUT
-A cali-FORWARD -j MARK --set-xmark 0x0/0xe0000
-A cali-FORWARD -m mark --mark 0x0/0x10000 -j cali-from-hep-forward
-A cali-FORWARD -i cali+ -j cali-from-wl-dispatch
-A cali-FORWARD -o cali+ -j cali-to-wl-dispatch
-A cali-FORWARD -j cali-to-hep-forward
-A cali-FORWARD -j cali-cidr-block
-A cali-INPUT -i cali+ -g cali-wl-to-host
-A cali-INPUT -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-INPUT -j MARK --set-xmark 0x0/0xf0000
-A cali-INPUT -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-OUTPUT -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-OUTPUT -o cali+ -j RETURN
-A cali-OUTPUT -j MARK --set-xmark 0x0/0xf0000
-A cali-from-wl-dispatch -m comment --comment "Unknown interface" -j DROP
-A cali-to-wl-dispatch -m comment --comment "Unknown interface" -j DROP
-A cali-wl-to-host -j cali-from-wl-dispatch
COMMIT
*nat
:cali-OUTPUT - [0:0]
:cali-POSTROUTING - [0:0]
:cali-PREROUTING - [0:0]
:cali-fip-dnat - [0:0]
:cali-fip-snat - [0:0]
:cali-nat-outgoing - [0:0]
-I PREROUTING -j cali-PREROUTING
-I OUTPUT -j cali-OUTPUT
-I POSTROUTING -j cali-POSTROUTING
-A cali-OUTPUT -j cali-fip-dnat
-A cali-POSTROUTING -j cali-fip-snat
-A cali-POSTROUTING -j cali-nat-outgoing
-A cali-POSTROUTING -o tunl0 -m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL -j MASQUERADE --random-fully
-A cali-PREROUTING -j cali-fip-dnat
COMMIT
RULES`

// TestForeignRules asks about all flows while other programs have rules, and compares each answer
// with a real packet.
func TestForeignRules(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("iptables"))
	const bridged = `sysctl -qw net.bridge.bridge-nf-call-iptables=1; `
	services := []string{`outside 192.0.2.1:30080`, `host 10.96.0.1:80`, `host 10.96.0.10:80`,
		`web 10.96.0.2:80`, `web 192.0.2.1:30080`}
	for _, row := range []struct {
		name, create string
		more         []string
		unknown      string // flows for which why may not know the answer, as a pattern
		chains       int    // with more chains than these, why reads rules when it needs them
	}{
		{"kube-proxy", kubeProxy(10), services, "", 20},
		{"kube-proxy with br_netfilter", bridged + kubeProxy(10), services, "", 0},
		{"kube-proxy in mode nftables", kubeProxyNFT, []string{`host 10.96.0.1:80`}, "", 0},
		{"Docker", docker, nil, "", 0},
		{"Docker that lets containers pass", docker + "\n" + dockerUser, nil, "", 0},
		{"firewalld, default zone", firewalldZone("public"), nil, "", 0},
		{"firewalld, zone trusted", firewalldZone("trusted"), nil, "", 0},
		{"Calico", calico, nil, "", 0},
		{"Calico, kube-proxy and Docker", docker + "\n" + kubeProxy(10) + "\n" + calico, services,
			// One endpoint is db, and Docker drops packets between containers.
			`^web 10\.96\.`, 20},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.shell(row.create)
			n.chains = row.chains
			for _, flow := range slices.Concat(flows, row.more) {
				var report *why.Report
				arrives := false
				patience := 1500 * time.Millisecond
				for range 2 {
					arrives, report = n.dial(flow, patience) == nil, n.explain(flow)
					says := report.Verdict == why.Delivered || report.Verdict == why.Limited
					if report.Verdict == why.Unknown || arrives == says {
						break
					}
					patience = testnet.Patience
				}
				says := report.Verdict == why.Delivered || report.Verdict == why.Limited
				switch {
				case report.Verdict == why.Unknown:
					if row.unknown == "" || !regexp.MustCompile(row.unknown).MatchString(flow) {
						t.Errorf("%s: packets arrive: %t: %s", flow, arrives, describe(report))
					}
				case arrives != says:
					t.Errorf("%s: packets arrive: %t, but %s", flow, arrives, describe(report))
				}
			}
		})
	}
}
