//go:build amd64

package faults

import "github.com/tenon-cni/tenon/internal/kernel"

// first creates the interface for the chained plugins.
var first = &scenario{
	plugin: "bridge", ipam: dualStack,
	conf: map[string]any{"cniVersion": "1.1.0", "bridge": "br0", "isGateway": true, "ipMasq": true},
}

// chained lists chained plugins, each after first. tuning and sbr change the container's namespace,
// so only a DEL with that namespace can restore it.
var chained = []scenario{
	{
		name: "portmap", plugin: "portmap", behind: first, sample: 1, host: true, conf: published(nil),
	},
	{
		name: "portmap by iptables", plugin: "portmap", behind: first, sample: 5, host: true, tool: "iptables-restore",
		conf: published(map[string]any{"backend": "iptables"}),
	},
	{
		name: "firewall", plugin: "firewall", behind: first, sample: 1, host: true,
		conf: map[string]any{"cniVersion": "1.1.0", "backend": "nftables", "ingressPolicy": "isolated"},
	},
	{
		name: "firewall by iptables", plugin: "firewall", behind: first, sample: 5, host: true, tool: "iptables-restore",
		conf: map[string]any{"cniVersion": "1.1.0", "backend": "iptables", "ingressPolicy": "isolated"},
	},
	{
		name: "bandwidth", plugin: "bandwidth", behind: first, sample: 1, host: true, needs: kernel.FeatureIFB, conf: limited,
	},
	{
		name: "tuning", plugin: "tuning", behind: first, sample: 1, conf: tuned,
	},
	{
		name: "sbr", plugin: "sbr", behind: first, sample: 1, conf: map[string]any{"cniVersion": "1.1.0"},
	},
}

var limited = map[string]any{
	"cniVersion": "1.1.0", "ingressRate": 8000000, "ingressBurst": 1600000, "egressRate": 4000000, "egressBurst": 1600000,
}

var tuned = map[string]any{
	"cniVersion": "1.1.0", "mac": "02:00:00:aa:bb:cc", "mtu": 1400, "promisc": true, "allmulti": true, "txQLen": 2000,
	"sysctl": map[string]any{"net.core.somaxconn": "500", "net.ipv4.conf.IFNAME.arp_notify": "1"},
}

// published returns a configuration of portmap with each kind of mapping and additional keys.
func published(more map[string]any) map[string]any {
	conf := map[string]any{
		"cniVersion": "1.1.0", "snat": true, "capabilities": map[string]any{"portMappings": true},
		"runtimeConfig": map[string]any{"portMappings": []any{
			map[string]any{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
			map[string]any{"hostPort": 8053, "containerPort": 53, "protocol": "udp", "hostIP": "127.0.0.1"},
			map[string]any{"hostPort": 40000, "containerPort": 40000, "range": 10, "protocol": "udp"},
		}},
	}
	for key, value := range more {
		conf[key] = value
	}
	return conf
}
