package plugins

import (
	"slices"
	"sync"
)

// builtin are the configurations of the well-known plugins, by name. The first one of a role is
// judged by all cases.
var builtin = sync.OnceValue(func() map[string][]Config {
	return map[string][]Config{
		"bridge": {
			{Role: Interface, ScriptedIPAM: true, Network: map[string]any{
				"bridge": "conform0", "isGateway": true, "ipMasq": true,
			}, Changed: map[string]any{"bridge": "conform9", "isGateway": false, "ipMasq": false}, Drifts: []Drift{
				masquerading,
				{Name: "gateway addresses removed", Shell: "ip address flush dev conform0 scope global", Optional: true},
				{Name: "port left the bridge", Shell: "ip link set $peer nomaster"},
				{Name: "bridge removed", Shell: "ip link del conform0"},
			}},
			{Role: Interface, Name: "vlan", ScriptedIPAM: true, Network: map[string]any{
				"bridge": "conform0", "vlan": 42,
			}, Changed: map[string]any{"vlan": 43}, Drifts: []Drift{
				{Name: "VLAN of the port removed", Shell: "bridge vlan del vid 42 dev $peer", Optional: true},
			}, Needs: "ip link add try0 type bridge vlan_filtering 1\nbridge vlan add vid 5 dev try0 self"},
			{Role: Interface, Name: "layer2", Oldest: "0.3.0", Network: map[string]any{"bridge": "conform0"}},
			{Role: Interface, Name: "macspoofchk", ScriptedIPAM: true, Network: map[string]any{
				"bridge": "conform0", "macspoofchk": true,
			}, Changed: map[string]any{"macspoofchk": false}},
		},
		"ptp": {
			{Role: Interface, ScriptedIPAM: true, Network: map[string]any{"ipMasq": true},
				Changed: map[string]any{"ipMasq": false}, Drifts: []Drift{masquerading, {
					Name:     "routes to the container removed",
					Shell:    "ip route flush dev $peer\nip -6 route flush dev $peer", // the link-local one too
					Optional: true,
				}}},
			{Role: Interface, Name: "nftables", ScriptedIPAM: true, Network: map[string]any{
				"ipMasq": true, "ipMasqBackend": "nftables",
			}, Changed: map[string]any{"ipMasq": false, "ipMasqBackend": "iptables"}},
		},
		"macvlan": {{Role: Interface, ScriptedIPAM: true, Network: map[string]any{"master": "parent0"},
			Needs: tryBelowVeth("macvlan"), Before: parent, Gone: "ip link del parent0",
			Changed: map[string]any{"master": "wire0", "mode": "private"}}},
		"ipvlan": {{Role: Interface, ScriptedIPAM: true, Network: map[string]any{"master": "parent0"},
			Needs: tryBelowVeth("ipvlan"), Before: parent, Gone: "ip link del parent0",
			Changed: map[string]any{"master": "wire0", "mode": "l3"}}},
		"vlan": {{Role: Interface, ScriptedIPAM: true,
			Network: map[string]any{"master": "parent0", "vlanId": "{n+100}"},
			Needs:   tryBelowVeth("vlan id 5"), Before: parent, Gone: "ip link del parent0",
			Changed: map[string]any{"master": "wire0", "vlanId": "{n+200}"}}},
		"host-device": {{Role: Interface, ScriptedIPAM: true, Network: map[string]any{"device": "device{n}"}, Before: `
for i in $(seq $containers); do ip link add device$i type veth peer name wire$i; ip link set wire$i up; done
`, Gone: "ip link del wire2"}},
		"dummy":    {{Role: Interface, ScriptedIPAM: true, Needs: "ip link add try0 type dummy"}},
		"tap":      {{Role: Interface, ScriptedIPAM: true, Needs: "ip tuntap add mode tap name try0"}},
		"loopback": {{Role: Interface, IfName: "lo"}},
		"portmap": {
			{Role: Chained, Capabilities: mappings(), Drifts: []Drift{flush},
				Changed: map[string]any{"snat": false}},
			{Role: Chained, Name: "nftables",
				Network: map[string]any{"backend": "nftables"}, Capabilities: mappings(),
				Drifts: []Drift{flush}},
		},
		"bandwidth": {{Role: Chained, Needs: `ip link add try0 type ifb
tc qdisc add dev try0 root tbf rate 1mbit burst 10000 latency 25ms`, Network: map[string]any{
			"ingressRate": 1000000, "ingressBurst": 80000, "egressRate": 1000000, "egressBurst": 80000,
		}, Changed: map[string]any{"ingressRate": 2000000, "egressRate": 3000000}, Drifts: []Drift{{Name: "limits removed", Shell: "tc qdisc del dev $peer root"}}}},
		"tuning": {
			{Role: Chained, Network: map[string]any{"mtu": 1400, "promisc": true},
				Changed: map[string]any{"mtu": 1300, "promisc": false}},
			{Role: Chained, Name: "mac", Network: map[string]any{"sysctl": map[string]any{
				"net.ipv4.conf.IFNAME.arp_notify": "1",
			}}, Capabilities: map[string]any{"mac": "02:00:00:00:77:01"}, Drifts: []Drift{{Name: "sysctl changed",
				Shell: "ip netns exec $container sh -c 'echo 0 >/proc/sys/net/ipv4/conf/eth0/arp_notify'"}}},
		},
		"firewall": {{Role: Chained, Drifts: []Drift{flush}}},
		"sbr": {{Role: Chained, Drifts: []Drift{{Name: "rules removed",
			Shell: "ip -n $container rule flush; ip -n $container rule add lookup main"}}}},
		"vrf": {{Role: Chained, Needs: "ip link add try0 type vrf table 5",
			Network: map[string]any{"vrfname": "red"}, Changed: map[string]any{"vrfname": "blue"},
			Drifts: []Drift{{Name: "interface left the VRF", Shell: "ip -n $container link set eth0 nomaster"}}}},
		"dhcp":    {dhcp()},
		"cluster": {cluster()},
		"ovs":     ovs(),
		"host-local": {{Role: IPAM, Network: map[string]any{"ipam": map[string]any{
			"type": "host-local", "subnet": "10.78.0.0/24",
		}}, Exhausted: map[string]any{"ipam": map[string]any{
			"type": "host-local", "subnet": "10.78.0.0/24", "rangeStart": "10.78.0.9", "rangeEnd": "10.78.0.9",
		}}, Changed: map[string]any{"ipam": map[string]any{
			"type": "host-local", "subnet": "10.90.0.0/24",
		}}, TwoAddresses: map[string]any{"ipam": map[string]any{"type": "host-local", "ranges": []any{
			[]any{map[string]any{"subnet": "10.78.0.0/24"}}, []any{map[string]any{"subnet": "10.79.0.0/24"}},
		}}}, Requests: []string{"10.78.0.71", "10.78.0.72", "10.78.0.73"}}},
		"static": {{Role: IPAM, Network: map[string]any{"ipam": map[string]any{"type": "static",
			"addresses": []any{map[string]any{"address": "10.78.0.9/24", "gateway": "10.78.0.1"}},
		}}, TwoAddresses: map[string]any{"ipam": map[string]any{"type": "static", "addresses": []any{
			map[string]any{"address": "10.78.0.9/24"}, map[string]any{"address": "10.78.0.10/24"},
		}}}, Requests: []string{"10.78.0.71/24", "10.78.0.72/24", "10.78.0.73/24"},
			Requestable: map[string]any{"ipam": map[string]any{"type": "static"}}}},
	}
})

// WellKnown returns the configurations of a well-known plugin, none for other names.
func WellKnown(name string) []Config {
	list := slices.Clone(builtin()[name])
	for i := range list {
		list[i].Like = name
	}
	return list
}

// parent creates the parent of interfaces in containers.
const parent = `ip link add parent0 type veth peer name wire0
ip link set parent0 up
ip link set wire0 up
`

// tryBelowVeth returns a text for sh(1) that fails if the kernel does not know a kind of links that
// have a parent.
func tryBelowVeth(kind string) string {
	return "ip link add try0 type veth peer name try1\nip link add link try0 name try2 type " + kind
}

// mappings are the ports of container n.
func mappings() map[string]any {
	return map[string]any{"portMappings": []any{
		map[string]any{"hostPort": "{n+8000}", "containerPort": 80, "protocol": "tcp"},
		map[string]any{"hostPort": "{n+9000}", "containerPort": 53, "protocol": "udp"},
	}}
}

// flush removes the rules of the host.
var flush = Drift{Name: "rules flushed", Shell: `nft flush ruleset 2>/dev/null || :
for c in iptables ip6tables; do for t in filter nat; do $c -t $t -F 2>/dev/null || :; done; done`}

// masquerading is [flush] where CHECK need not look at the rules.
var masquerading = Drift{Name: "masquerading rules flushed", Shell: flush.Shell, Optional: true}
