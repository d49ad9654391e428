package plugins

// dhcp is the configuration of the IPAM plugin for DHCP. The server is dnsmasq, on a bridge that
// connects all containers.
func dhcp() Config {
	return Config{
		Role: IPAM, Network: map[string]any{"ipam": map[string]any{"type": "dhcp"}},
		Programs: []string{"tenon-dhcp"}, // the daemon of Tenon's plugin
		Needs:    "command -v dnsmasq",
		Before: `ip link add lan0 address 02:00:00:78:00:01 type bridge
ip address add 10.78.0.1/24 dev lan0
ip link set lan0 up
`,
		Container: `ip link add wire$n type veth peer name eth0 netns $container
ip link set wire$n master lan0 up
ip -n $container link set eth0 up`,
		Daemon: `dnsmasq --conf-file=/dev/null --port=0 --user=root --group= --pid-file= --no-ping \
	--dhcp-leasefile=/run/conform/leases --interface=lan0 --bind-interfaces --dhcp-authoritative \
	--dhcp-range=10.78.0.100,10.78.0.250,255.255.255.0,1h
exec $plugin daemon`,
		Ready: "test -S /run/cni/dhcp.sock",
	}
}

// cluster is the configuration of Tenon's IPAM plugin for clusters, with the agent of a node and etcd
// with one member.
func cluster() Config {
	return Config{
		Role: IPAM, Network: map[string]any{"ipam": map[string]any{"type": "cluster", "pool": "pods"}},
		Exhausted: map[string]any{"ipam": map[string]any{"type": "cluster", "pool": "one"}},
		Changed:   map[string]any{"ipam": map[string]any{"type": "cluster", "pool": "more"}},
		TwoAddresses: map[string]any{"ipam": map[string]any{
			"type": "cluster", "pools": []any{"pods", "more"},
		}},
		Requests: []string{"10.78.0.71", "10.78.0.72", "10.78.0.73"},
		Programs: []string{"tenon-cluster"},
		Jobs:     8, // the agent gives other nodes 15 s before it claims the first block
		Needs: `command -v etcd
test -x /run/conform/bin/tenon-cluster || {
	echo tenon-cluster is neither beside the plugin nor in PATH
	exit 1
}`,
		Before: `ip link add under0 type veth peer name under1
ip address add 192.0.2.1/24 dev under0
ip link set under0 up
ip link set under1 up
`,
		Daemon: `etcd --data-dir /run/conform/etcd --unsafe-no-fsync \
	--heartbeat-interval 10 --election-timeout 100 \
	--listen-client-urls http://127.0.0.1:2379 \
	--advertise-client-urls http://127.0.0.1:2379 \
	--listen-peer-urls http://127.0.0.1:2380 \
	--initial-advertise-peer-urls http://127.0.0.1:2380 \
	--initial-cluster default=http://127.0.0.1:2380 &
agent=/run/conform/bin/tenon-cluster
export TENON_CLUSTER_ENDPOINTS=http://127.0.0.1:2379
until $agent init; do sleep 0.1; done
$agent pool create pods 10.78.0.0/24 --block-bits 24
$agent pool create more 10.79.0.0/24 --block-bits 24
$agent pool create one 10.80.0.0/30 --block-bits 30
exec $agent agent --this-node conform --addresses 192.0.2.1 --routes off`,
		// The first ADD makes the agent claim a block and create its rules.
		Ready: `request='{"cniVersion":"1.0.0","name":"first","type":"cluster",
	"ipam":{"type":"cluster","pool":"pods"}}'
export CNI_CONTAINERID=first CNI_NETNS=/proc/1/ns/net CNI_NETNS_OVERRIDE=1
export CNI_IFNAME=eth0 CNI_PATH=/
echo "$request" | CNI_COMMAND=ADD $plugin
echo "$request" | CNI_COMMAND=DEL $plugin
nft list set inet tenon cluster4`,
	}
}

// ovs are the configurations of plugins for Open vSwitch. The switch forwards packets in user space.
func ovs() []Config {
	return []Config{
		{Role: Interface, ScriptedIPAM: true, Network: map[string]any{"bridge": "ovs0"},
			Changed: map[string]any{"bridge": "ovs9"}, Needs: ovsNeeds, Daemon: ovsDaemon, Ready: ovsReady,
			Drifts: []Drift{eachPort("port removed from the switch", "del-port $port")}},
		{Role: Interface, Name: "vlan", ScriptedIPAM: true,
			Network: map[string]any{"bridge": "ovs0", "vlan": 42},
			Needs:   ovsNeeds, Daemon: ovsDaemon, Ready: ovsReady,
			Drifts: []Drift{eachPort("VLAN changed", "set port $port tag=43")}},
	}
}

// eachPort returns a drift that changes all ports of the switch with a command of ovs-vsctl(8).
func eachPort(name, command string) Drift {
	return Drift{Name: name, Shell: "for port in $(ovs-vsctl list-ports ovs0); do\n" +
		"\tovs-vsctl --timeout=30 " + command + "\ndone"}
}

const (
	ovsNeeds = "command -v ovsdb-server ovs-vswitchd ovs-vsctl"

	ovsDaemon = `mkdir -p /run/openvswitch /run/conform/switch
export OVS_LOGDIR=/run/conform/switch OVS_DBDIR=/run/conform/switch
ovsdb-tool create /run/conform/switch/conf.db /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server /run/conform/switch/conf.db --remote=punix:/run/openvswitch/db.sock \
	--unixctl=/run/conform/switch/database.ctl --no-chdir -vsyslog:off &
until ovs-vsctl --timeout=1 --no-wait init; do sleep 0.05; done
exec ovs-vswitchd unix:/run/openvswitch/db.sock \
	--unixctl=/run/conform/switch/switch.ctl --no-chdir -vsyslog:off`

	ovsReady = `ovs-vsctl --timeout=5 --may-exist add-br ovs0 -- set bridge ovs0 datapath_type=netdev \
	other_config:hwaddr=02:00:00:78:00:01 -- set interface ovs0 mtu_request=1500
ip link show ovs0`
)
