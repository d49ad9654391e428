package all_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/all"
)

// refusals are calls that fail, with the messages of the upstream plugins, which callers compare.
// Each message was observed with upstream v1.9.1 for the same call. All calls run on one host, with
// a container that has only eth0, a veth with its peer h0 in the host.
var refusals = []struct {
	name   string
	plugin string
	verb   cni.Command
	conf   string // without cniVersion, name and type; cniVersion is 1.1.0 unless it is set here
	args   string // CNI_ARGS
	ifName string // "" is net1, which the container lacks; "own" is net1 of the host, "none" is ""
	msg    string // DIR, BIN, SANDBOX and PEER stand for values that differ in each run
	says   string // in the details
}{
	{"CHECK before 0.4.0", "bridge", cni.Check, `"cniVersion":"0.3.1"`, "", "",
		"config version does not allow CHECK", "0.3.1"},
	{"CHECK of a plugin without that version", "bandwidth", cni.Check, `"cniVersion":"0.2.0"`, "",
		"", "config version does not allow CHECK", "0.2.0"},
	{"GC before 1.1.0", "ptp", cni.GC, `"cniVersion":"1.0.0"`, "", "",
		"config version does not allow GC", "1.0.0"},
	{"STATUS before 1.1.0", "dhcp", cni.Status, `"cniVersion":"1.0.0"`, "", "",
		"config version does not allow STATUS", "1.0.0"},
	{"version the plugin lacks", "bandwidth", cni.Add, `"cniVersion":"0.2.0"`, "", "",
		"incompatible CNI versions",
		`config is "0.2.0", plugin supports ["0.3.0" "0.3.1" "0.4.0" "1.0.0" "1.1.0"]`},
	{"unpublished version", "vrf", cni.Add, `"cniVersion":"9.9.9"`, "", "",
		"incompatible CNI versions",
		`config is "9.9.9", plugin supports ["0.3.1" "0.4.0" "1.0.0" "1.1.0"]`},

	{"interface name too long", "bridge", cni.Add, ``, "", "abcdefghijklmnopq",
		"interface name is too long", "15 bytes"},
	{"interface name that is a path", "tuning", cni.Add, ``, "", "..", "interface name is . or ..",
		`CNI_IFNAME ".."`},
	{"interface name with a space", "ptp", cni.Del, ``, "", "a b",
		"interface name contains / or : or whitespace characters", `CNI_IFNAME "a b"`},
	{"no interface name", "ptp", cni.Del, ``, "", "none",
		"required env variables [CNI_IFNAME] missing", "CNI_IFNAME"},
	{"unknown verb", "ptp", "FOO", ``, "", "", "unknown CNI_COMMAND: FOO", "FOO"},
	{"no network name", "bridge", cni.Add, `"name":""`, "", "", "missing network name", ""},
	{"network name", "vrf", cni.Add, `"name":"a/b"`, "", "",
		"invalid characters found in network name", `"a/b"`},
	{"CNI_ARGS: no pair", "bridge", cni.Add, ``, "FOO=1=2", "", `ARGS: invalid pair "FOO=1=2"`,
		"KEY=VALUE"},
	{"CNI_ARGS: unknown", "host-local", cni.Add, ``, "FOO=1;IP=10.1.2.3;BAR=2", "",
		`ARGS: unknown args ["FOO=1" "BAR=2"]`, "IgnoreUnknown=1"},
	{"CNI_ARGS: IgnoreUnknown", "macvlan", cni.Add, ``, "IgnoreUnknown=maybe", "",
		`ARGS: error parsing value of pair "IgnoreUnknown=maybe": boolean unmarshal error: invalid input maybe`, "IgnoreUnknown"},

	{"no such IPAM plugin", "bridge", cni.Add, `"ipam":{"type":"absent"}`, "", "",
		`failed to find plugin "absent" in path [BIN]`, "CNI_PATH"},
	{"IPAM without addresses", "bridge", cni.Add, `"ipam":{"type":"static"}`, "", "",
		"IPAM plugin returned missing IP config", "static"},
	{"IPAM fails", "bridge", cni.Add,
		`"ipam":{"type":"static","addresses":[{"address":"10.1.2.2"}]}`, "", "",
		"the 'address' field is expected to be in CIDR notation, got: '10.1.2.2'", "static ADD"},
	{"IPAM fails for the version", "macvlan", cni.Add,
		`"cniVersion":"0.2.0","master":"h0","ipam":{"type":"static","addresses":[{"address":"10.1.2.2/24"},{"address":"10.1.3.2/24"}]}`, "", "",
		"CNI version 0.2.0 does not support more than 1 address per family", "0.3.0"},
	{"CHECK of IPAM fails", "bridge", cni.Check,
		`"ipam":{"type":"host-local","subnet":"10.1.2.0/24","dataDir":"DIR"}`, "", "",
		"host-local: Failed to find address added by container c", "host-local CHECK"},
	{"no IPAM before 0.3.0", "bridge", cni.Add, `"cniVersion":"0.2.0"`, "", "",
		"cannot convert: no valid IP addresses", "0.2.0"},
	{"no prevResult", "bridge", cni.Check, ``, "", "", "Required prevResult missing", ""},
	{"no prevResult", "macvlan", cni.Check, `"master":"h0"`, "", "", "required prevResult missing",
		""},
	{"no prevResult", "ptp", cni.Check,
		`"ipam":{"type":"host-local","subnet":"10.1.2.0/24","dataDir":"DIR/held"}`, "", "",
		"ptp: Required prevResult missing", ""},
	{"no interface in prevResult", "ptp", cni.Check,
		`"ipam":{"type":"static"},"prevResult":{"interfaces":[{"name":"net1","sandbox":"/elsewhere"}]}`, "", "",
		"Sandbox in prevResult  doesn't match configured netns: SANDBOX", "/elsewhere"},
	{"no interface in prevResult", "macvlan", cni.Check, `"master":"h0","prevResult":{}`, "", "",
		"sandbox in prevResult  doesn't match configured netns: SANDBOX", "net1"},
	{"interface gone", "ptp", cni.Check,
		`"ipam":{"type":"static"},"prevResult":{"interfaces":[{"name":"net1","sandbox":"SANDBOX"}]}`, "", "",
		"ptp: Container Interface name in prevResult: net1 not found", "net1"},
	{"interface gone", "host-device", cni.Check,
		`"device":"h1","prevResult":{"interfaces":[{"name":"net1","sandbox":"SANDBOX"}]}`, "", "",
		"Container Interface name in prevResult: net1 not found", "net1"},
	{"interface gone", "tap", cni.Check,
		`"prevResult":{"interfaces":[{"name":"net1","sandbox":"SANDBOX"}]}`, "", "",
		"Cannot find container link net1", "net1"},
	{"interface of another kind", "macvlan", cni.Check,
		`"master":"h0","prevResult":{"interfaces":[{"name":"eth0","mac":"c2:01:01:01:01:01","sandbox":"SANDBOX"}],"ips":[{"address":"10.1.2.2/24"}]}`, "", "eth0",
		"error: Container interface eth0 not of type macvlan", "found a veth"},
	{"other MAC", "ptp", cni.Check,
		`"ipam":{"type":"static"},"prevResult":{"interfaces":[{"name":"eth0","mac":"c2:01:01:01:01:01","sandbox":"SANDBOX"}],"ips":[{"address":"10.1.2.2/24"}]}`, "", "eth0",
		"ptp: Interface eth0 Mac c2:01:01:01:01:01 doesn't match container Mac: c2:05:05:05:05:05",
		"c2:01:01:01:01:01"},
	{"other MAC", "host-device", cni.Check,
		`"device":"h1","prevResult":{"interfaces":[{"name":"eth0","mac":"c2:01:01:01:01:01","sandbox":"SANDBOX"}],"ips":[{"address":"10.1.2.2/24"}]}`, "", "eth0",
		"Interface eth0 Mac c2:01:01:01:01:01 doesn't match container Mac: c2:05:05:05:05:05",
		"c2:01:01:01:01:01"},
	{"other address", "ptp", cni.Check,
		`"ipam":{"type":"static"},"prevResult":{"interfaces":[{"name":"eth0","sandbox":"SANDBOX"}],"ips":[{"address":"10.1.2.2/24"}]}`, "", "eth0",
		"Failed to match addr 10.1.2.2/24 on interface eth0", "expected address"},
	{"bridge: not in prevResult", "bridge", cni.Check,
		`"bridge":"b0","prevResult":{"interfaces":[{"name":"eth0","sandbox":"SANDBOX"}]}`, "",
		"eth0",
		"Interface name missing ", "b0"},
	{"bridge: gone", "bridge", cni.Check,
		`"bridge":"absent","prevResult":{"interfaces":[{"name":"absent"},{"name":"eth0","sandbox":"SANDBOX"}]}`, "", "eth0",
		"Interface name absent not found", "absent"},
	{"bridge: in a sandbox", "bridge", cni.Check,
		`"bridge":"b0","prevResult":{"interfaces":[{"name":"b0","sandbox":"SANDBOX"}]}`, "", "eth0",
		"Interface b0 should not be in sandbox", "b0"},
	{"bridge: of another kind", "bridge", cni.Check,
		`"bridge":"h1","prevResult":{"interfaces":[{"name":"h1"}]}`, "", "eth0",
		"Interface h1 does not have link type of bridge", "found a veth"},
	{"bridge: other MAC", "bridge", cni.Check,
		`"bridge":"b0","prevResult":{"interfaces":[{"name":"b0","mac":"c2:01:01:01:01:01"}]}`, "",
		"eth0",
		"Bridge interface b0 Mac doesn't match: c2:01:01:01:01:01", "expected MAC"},
	{"bridge: not promiscuous", "bridge", cni.Check,
		`"bridge":"b0","promiscMode":true,"prevResult":{"interfaces":[{"name":"b0"},{"name":"eth0","sandbox":"SANDBOX"}]}`, "", "eth0",
		"Bridge interface b0 configured Promisc Mode true doesn't match current state: false ",
		"b0"},
	{"bridge: port not in prevResult", "bridge", cni.Check,
		`"bridge":"b0","prevResult":{"interfaces":[{"name":"b0"},{"name":"h1"},{"name":"eth0","sandbox":"SANDBOX"}]}`, "", "eth0",
		"CNI veth created for bridge b0 was not found", "h0"},
	{"bridge: interface of the host gone", "bridge", cni.Check,
		`"bridge":"b0","prevResult":{"interfaces":[{"name":"b0"},{"name":"h9"},{"name":"eth0","sandbox":"SANDBOX"}]}`, "", "eth0",
		"Interface name h9 not found", "h9"},
	{"own namespace", "loopback", cni.Add, ``, "", "own",
		"plugin's netns and netns from CNI_NETNS should not be the same", "CNI_NETNS_OVERRIDE"},

	{"bridge: VLAN", "bridge", cni.Add, `"vlan":4095`, "", "",
		"invalid VLAN ID 4095 (must be between 0 and 4094)", ""},
	{"bridge: trunk minID", "bridge", cni.Add, `"vlanTrunk":[{"minID":0,"maxID":5}]`, "", "",
		"incorrect trunk minID parameter", "vlanTrunk"},
	{"bridge: trunk maxID", "bridge", cni.Add, `"vlanTrunk":[{"minID":1,"maxID":5000}]`, "", "",
		"incorrect trunk maxID parameter", "vlanTrunk"},
	{"bridge: trunk id", "bridge", cni.Add, `"vlanTrunk":[{"id":0}]`, "", "",
		"incorrect trunk id parameter", "vlanTrunk"},
	{"bridge: trunk order", "bridge", cni.Add, `"vlanTrunk":[{"minID":9,"maxID":5}]`, "", "",
		"minID is greater than maxID in trunk parameter", "vlanTrunk"},
	{"bridge: trunk without minID", "bridge", cni.Add, `"vlanTrunk":[{"maxID":5}]`, "", "",
		"minID and maxID should be configured simultaneously, minID is missing", "vlanTrunk"},
	{"bridge: trunk without maxID", "bridge", cni.Add, `"vlanTrunk":[{"minID":5}]`, "", "",
		"minID and maxID should be configured simultaneously, maxID is missing", "vlanTrunk"},
	{"bridge: hairpin", "bridge", cni.Add, `"hairpinMode":true,"promiscMode":true`, "", "",
		"cannot set hairpin mode and promiscuous mode at the same time", "hairpinMode"},
	{"bridge: interface without addresses", "bridge", cni.Add,
		`"disableContainerInterface":true,"ipam":{"type":"static"}`, "", "",
		"cannot use IPAM when DisableContainerInterface flag is set", "disableContainerInterface"},
	{"bridge: backend", "bridge", cni.Add, `"ipMasq":true,"ipMasqBackend":"foo"`, "", "",
		`unknown ipmasq backend "foo"`, "nftables"},
	{"bridge: interface exists", "bridge", cni.Add, `"bridge":"br0"`, "", "eth0",
		`container veth name ("eth0") peer provided ("PEER") already exists`, "eth0"},
	{"ptp: interface exists", "ptp", cni.Add,
		`"ipam":{"type":"static","addresses":[{"address":"10.1.2.2/24","gateway":"10.1.2.1"}]}`, "",
		"eth0",
		`container veth name ("eth0") peer provided ("PEER") already exists`, "eth0"},
	{"ptp: no IPAM", "ptp", cni.Add, ``, "", "", "no plugin name provided", "ipam"},
	{"vlan: no master", "vlan", cni.Add, `"ipam":{"type":"static"}`, "", "",
		`"master" field is required. It specifies the host interface name to create the VLAN for`,
		""},
	{"vlan: ID", "vlan", cni.Add, `"master":"h0","vlanId":4095,"ipam":{"type":"static"}`, "", "",
		"invalid VLAN ID 4095 (must be between 0 and 4095 inclusive)", "4094"},
	{"vlan: MTU", "vlan", cni.Add, `"master":"h0","vlanId":5,"mtu":1600,"ipam":{"type":"static"}`,
		"", "", "invalid MTU 1600, must be [0, master MTU(1500)]", ""},
	{"vlan: negative MTU", "vlan", cni.Add,
		`"master":"h0","vlanId":5,"mtu":-100,"ipam":{"type":"static"}`, "", "",
		"invalid MTU -100, must be [0, master MTU(1500)]", ""},
	{"ipvlan: no IPAM", "ipvlan", cni.Add, `"master":"h0"`, "", "", "no plugin name provided",
		"ipam"},
	{"ipvlan: mode", "ipvlan", cni.Add, `"master":"h0","mode":"foo","ipam":{"type":"static"}`, "",
		"", `unknown ipvlan mode: "foo"`, "l3s"},
	{"dummy: no IPAM", "dummy", cni.Add, ``, "", "",
		"dummy interface requires an IPAM configuration", ""},
	{"macvlan: mode", "macvlan", cni.Add, `"master":"h0","mode":"foo"`, "", "",
		`unknown macvlan mode: "foo"`, "passthru"},
	{"macvlan: no such master", "macvlan", cni.Add, `"master":"absent"`, "", "", "Link not found",
		"absent"},
	{"macvlan: no default route", "macvlan", cni.Add, ``, "", "",
		"no default route interface found", "master"},
	{"macvlan: MTU", "macvlan", cni.Add, `"master":"h0","mtu":1600`, "", "",
		"invalid MTU 1600, must be [0, master MTU(1500)]", ""},
	{"macvlan: negative MTU", "macvlan", cni.Add, `"master":"h0","mtu":-100`, "", "",
		"invalid MTU -100, must be [0, master MTU(1500)]", ""},
	{"macvlan: MAC", "macvlan", cni.Add, `"master":"h0"`, "IgnoreUnknown=1;MAC=zz", "",
		"invalid args zz for MAC addr: address zz: invalid MAC address", ""},
	{"macvlan: interface exists", "macvlan", cni.Add, `"master":"h0"`, "", "eth0",
		`failed to rename macvlan to "eth0": file exists`, "eth0"},
	{"tap: bridge", "tap", cni.Add, `"bridge":"absent"`, "", "",
		"failed to get bridge absent: Link not found", "container"},
	{"host-device: no device", "host-device", cni.Add, ``, "", "",
		`specify either "device", "hwaddr", "kernelpath" or "pciBusID"`, ""},
	{"host-device: CHECK without device", "host-device", cni.Check,
		`"prevResult":{"interfaces":[{"name":"eth0","sandbox":"SANDBOX"}]}`, "", "eth0",
		`specify either "device", "hwaddr", "kernelpath" or "pciBusID"`, ""},
	{"host-device: no such name", "host-device", cni.Add, `"device":"absent"`, "", "",
		"failed to find host device: Link not found", "absent"},
	{"host-device: no such MAC", "host-device", cni.Add, `"hwaddr":"c2:01:01:01:01:01"`, "", "",
		"failed to find host device: failed to find physical interface", "c2:01"},
	{"host-device: MAC", "host-device", cni.Add, `"hwaddr":"zz"`, "", "",
		`failed to find host device: failed to parse MAC address "zz": address zz: invalid MAC address`, "hwaddr"},
	{"host-device: no such path", "host-device", cni.Add, `"kernelpath":"/sys/devices/none"`, "",
		"",
		`failed to find host device: failed to read directory /sys/devices/none/net: "open /sys/devices/none/net: no such file or directory"`, ""},
	{"host-device: path", "host-device", cni.Add, `"kernelpath":"/dev/x"`, "", "",
		`failed to find host device: kernel device path "/dev/x" must be absolute and begin with /sys/devices/`, "kernelpath"},
	{"host-device: no such PCI device", "host-device", cni.Add, `"pciBusID":"0000:00:99.0"`, "", "",
		"error with host device: lstat /sys/bus/pci/devices/0000:00:99.0: no such file or directory", "0000:00:99.0"},
	{"host-device: deviceID", "host-device", cni.Check, `"runtimeConfig":{"deviceID":"none"}`, "",
		"",
		"runtime config DeviceID none not found or unsupported", "runtimeConfig.deviceID"},
	{"host-device: interface exists", "host-device", cni.Add, `"device":"h1","dataDir":"DIR"`, "",
		"eth0",
		`failed to move link failed to move "eth0" (host: "h1") to container NS: file exists`,
		"eth0"},
	{"host-device: alias", "host-device", cni.Del, `"device":"h9","dataDir":"DIR"`, "", "eth0",
		`failed to find original ifname for "eth0" (alias is not set)`, "host-device"},

	{"host-local: no section", "host-local", cni.Add, ``, "", "", "IPAM config missing 'ipam' key",
		""},
	{"host-local: no range", "host-local", cni.Add, `"ipam":{}`, "", "", "no IP ranges specified",
		""},
	{"host-local: host bits", "host-local", cni.Add, `"ipam":{"subnet":"10.1.2.5/24"}`, "", "",
		"invalid range set 0: Network has host bits set. For a subnet mask of length 24 the " +
			"network address is 10.1.2.0", ""},
	{"host-local: small", "host-local", cni.Add, `"ipam":{"subnet":"10.1.2.0/31"}`, "", "",
		"invalid range set 0: Network 10.1.2.0/31 too small to allocate from", ""},
	{"host-local: start", "host-local", cni.Add,
		`"ipam":{"subnet":"10.1.2.0/24","rangeStart":"10.1.3.1"}`, "", "",
		"invalid range set 0: RangeStart 10.1.3.1 not in network 10.1.2.0/24", ""},
	{"host-local: end", "host-local", cni.Add,
		`"ipam":{"subnet":"10.1.2.0/24","rangeEnd":"10.1.3.1"}`, "", "",
		"invalid range set 0: RangeEnd 10.1.3.1 not in network 10.1.2.0/24", ""},
	{"host-local: empty set", "host-local", cni.Add, `"ipam":{"ranges":[[]]}`, "", "",
		"invalid range set 0: empty range set", ""},
	{"host-local: families", "host-local", cni.Add,
		`"ipam":{"ranges":[[{"subnet":"10.1.2.0/24"},{"subnet":"fd00::/64"}]]}`, "", "",
		"invalid range set 0: mixed address families", ""},
	{"host-local: overlap of sets", "host-local", cni.Add,
		`"ipam":{"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"10.1.2.0/25"}]]}`, "", "",
		"range set 0 overlaps with 1", ""},
	{"host-local: version", "host-local", cni.Add,
		`"cniVersion":"0.1.0","ipam":{"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"10.1.3.0/24"}]]}`, "", "",
		"CNI version 0.1.0 does not support more than 1 address per family", ""},
	{"host-local: empty address", "host-local", cni.Add,
		`"ipam":{"subnet":"10.1.2.0/24"},"runtimeConfig":{"ips":[""]}`, "", "",
		"cannot understand ip: IP <nil> not v4 nor v6", ""},
	{"host-local: gateway", "host-local", cni.Add,
		`"ipam":{"subnet":"10.1.2.0/24","dataDir":"DIR"}`, "IP=10.1.2.1", "",
		"failed to allocate for range 0: requested ip 10.1.2.1 is subnet's gateway", ""},
	{"host-local: addresses left", "host-local", cni.Add,
		`"ipam":{"subnet":"10.1.2.0/24","dataDir":"DIR"}`, "IP=10.9.9.9", "",
		"failed to allocate all requested IPs: 10.9.9.9", ""},

	{"static: no section", "static", cni.Add, ``, "IP=10.1.2.3/24", "",
		"IPAM config missing 'ipam' key", ""},
	{"static: configuration", "static", cni.Add, `"ipam":{"addresses":[{"address":"foo"}]}`, "", "",
		"the 'address' field is expected to be in CIDR notation, got: 'foo'", ""},
	{"static: CNI_ARGS", "static", cni.Add, `"ipam":{}`, "IP=10.1.2.3", "",
		"the 'ip' field is expected to be in CIDR notation, got: '10.1.2.3'", ""},
	{"static: args", "static", cni.Add, `"ipam":{},"args":{"cni":{"ips":["10.1.2.3"]}}`, "", "",
		"an entry in the 'ips' field is NOT in CIDR notation, got: '10.1.2.3'", ""},
	{"static: capability", "static", cni.Add, `"ipam":{},"runtimeConfig":{"ips":["10.1.2.3"]}`, "",
		"",
		"an entry in the 'ips' field is NOT in CIDR notation, got: '10.1.2.3'", ""},
	{"static: gateway", "static", cni.Add, `"ipam":{}`, "IP=10.1.2.3/24;GATEWAY=foo", "",
		"invalid gateway address: foo", ""},
	{"static: version", "static", cni.Add,
		`"cniVersion":"0.2.0","ipam":{"addresses":[{"address":"fd00::2/64"},{"address":"fd00::3/64"}]}`, "", "",
		"CNI version 0.2.0 does not support more than 1 address per family", "0.3.0"},
	{"static: gateway in prevResult", "static", cni.Check,
		`"ipam":{"addresses":[{"address":"10.1.2.2/24","gateway":"10.1.2.1"}]},"prevResult":{"ips":[{"address":"10.1.2.2/24"}]}`, "", "",
		"static: Failed to match addr 10.1.2.2 on interface net1", "10.1.2.1"},
	{"static: CHECK", "static", cni.Check, `"ipam":{}`, "", "", "Required prevResult missing", ""},

	{"dhcp: no daemon", "dhcp", cni.Add, `"ipam":{"daemonSocketPath":"DIR/none.sock"}`, "", "",
		"error dialing DHCP daemon: dial unix DIR/none.sock: connect: no such file or directory",
		"start the DHCP daemon"},

	{"bandwidth: no prevResult", "bandwidth", cni.Add, `"ingressRate":8000,"ingressBurst":8000`, "",
		"", "must be called as chained plugin", "prevResult"},
	{"bandwidth: CHECK without prevResult", "bandwidth", cni.Check,
		`"ingressRate":8000,"ingressBurst":8000`, "", "",
		"must be called as a chained plugin", "prevResult"},
	{"bandwidth: burst without rate", "bandwidth", cni.Add, `"ingressBurst":8000`, "", "",
		"if burst is set, rate must also be set", "ingressBurst"},
	{"bandwidth: both bursts without rate", "bandwidth", cni.Add,
		`"runtimeConfig":{"bandwidth":{"ingressBurst":8,"egressBurst":8}}`, "", "",
		"if burst is set, rate must also be set", "egressBurst"},
	{"bandwidth: rate without burst", "bandwidth", cni.Add, `"egressRate":8000,"egressBurst":0`, "",
		"", "if rate is set, burst must also be set", "egressBurst"},
	{"bandwidth: burst", "bandwidth", cni.Add, `"egressRate":8000,"egressBurst":34359738368`, "",
		"", "burst cannot be more than 4GB", "egressBurst"},
	{"bandwidth: other interfaces", "bandwidth", cni.Add,
		`"ingressRate":8000,"ingressBurst":8000,"prevResult":{"interfaces":[{"name":"h9"}]}`, "",
		"eth0",
		"no veth peer of container interface found in host ns", "h0"},
	{"bandwidth: no such interface", "bandwidth", cni.Add,
		`"ingressRate":8000,"ingressBurst":8000,"prevResult":{"interfaces":[{"name":"h0"}]}`, "",
		"",
		`container interface net1 has no veth peer: could not look up "net1": Link not found`, ""},
	{"firewall: no prevResult", "firewall", cni.Add, ``, "", "",
		"missing prevResult from earlier plugin", "prevResult"},
	{"firewall: policy", "firewall", cni.Add, `"ingressPolicy":"foo","prevResult":{}`, "", "",
		`unknown ingress policy: "foo"`, "same-bridge"},
	{"firewall: no bridge", "firewall", cni.Add,
		`"ingressPolicy":"isolated","prevResult":{"ips":[{"address":"10.1.2.2/24"}]}`, "", "",
		`interface needs to be set for ingress policy "isolated", make sure to chain "firewall" plugin with "bridge"`, ""},
	{"tuning: no prevResult", "tuning", cni.Add, `"mtu":1400`, "", "",
		"Required prevResult missing", "prevResult"},
	{"tuning: no interface", "tuning", cni.Add, `"mtu":1400,"dataDir":"DIR","prevResult":{}`, "",
		"", `failed to get "net1": Link not found`, ""},
	{"tuning: sysctl", "tuning", cni.Add, `"sysctl":{"kernel.foo":"1"},"prevResult":{}`, "", "",
		`invalid net sysctl key: "kernel/foo"`, ""},
	{"tuning: duplicate", "tuning", cni.Add,
		`"sysctl":{"net.core.somaxconn":"1","net.core.somaxconn":"1"},"prevResult":{}`, "", "",
		"duplicated sysctl keys are not allowed", "net.core.somaxconn"},
	{"tuning: MAC", "tuning", cni.Add, `"mac":"zz","prevResult":{}`, "", "",
		"invalid args zz for MAC addr: address zz: invalid MAC address", ""},
	{"tuning: CHECK of MTU", "tuning", cni.Check,
		`"mtu":1400,"prevResult":{"interfaces":[{"name":"eth0","sandbox":"SANDBOX"}]}`, "", "eth0",
		"Error: Tuning configured MTU of eth0 is 1400, current value is 1500", "mtu"},
	{"tuning: CHECK of promisc", "tuning", cni.Check,
		`"promisc":true,"prevResult":{"interfaces":[{"name":"eth0","sandbox":"SANDBOX"}]}`, "",
		"eth0",
		"Error: Tuning link eth0 configured promisc is true, current value is 0", "promisc"},
	{"tuning: CHECK of MAC", "tuning", cni.Check,
		`"mac":"c2:01:01:01:01:01","prevResult":{"interfaces":[{"name":"eth0","sandbox":"SANDBOX"}]}`, "", "eth0",
		"Error: Tuning configured Ethernet of eth0 is c2:01:01:01:01:01, current value is " +
			"c2:05:05:05:05:05", "mac"},
	{"tuning: CHECK of allmulti", "tuning", cni.Check,
		`"allmulti":true,"prevResult":{"interfaces":[{"name":"eth0","sandbox":"SANDBOX"}]}`, "",
		"eth0",
		"Error: Tuning configured all-multicast mode of eth0 is true, current value is false",
		"allmulti"},
	{"tuning: CHECK of txQLen", "tuning", cni.Check,
		`"txQLen":20,"prevResult":{"interfaces":[{"name":"eth0","sandbox":"SANDBOX"}]}`, "", "eth0",
		"Error: Tuning configured Transmit Queue Length of eth0 is 20, current value is 1000",
		"txQLen"},
	{"tuning: CHECK of sysctl", "tuning", cni.Check,
		`"sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1"},"prevResult":{"interfaces":[{"name":"eth0","sandbox":"SANDBOX"}]}`, "", "eth0",
		"Error: Tuning configured value of /proc/sys/net/ipv4/conf/eth0/arp_filter is 1, current " +
			"value is 0", "arp_filter"},
	{"tuning: CHECK without interface", "tuning", cni.Check, `"prevResult":{}`, "", "",
		"Cannot find container link net1", "net1"},
	{"sbr: no prevResult", "sbr", cni.Add, ``, "", "",
		"This plugin must be called as chained plugin", "prevResult"},
	{"sbr: no address", "sbr", cni.Add, `"prevResult":{}`, "", "eth0",
		"No IP addresses supplied on interface: eth0", "prevResult"},
	{"sbr: no interface", "sbr", cni.Add, `"prevResult":{"ips":[{"address":"10.1.2.2/24"}]}`, "",
		"", "Cannot find network interface net1: Link not found", ""},
	{"vrf: no name", "vrf", cni.Add, `"prevResult":{}`, "", "",
		"configuration is expected to have a valid vrf name", "vrfname"},
	{"vrf: no prevResult", "vrf", cni.Add, `"vrfname":"v"`, "", "",
		"missing prevResult from earlier plugin", "prevResult"},
	{"vrf: not a VRF", "vrf", cni.Add, `"vrfname":"lo","prevResult":{}`, "", "eth0",
		"cmdAdd failed: Netlink lo is not a VRF", ""},
	{"vrf: no interface", "vrf", cni.Add, `"vrfname":"v","prevResult":{}`, "", "",
		"cmdAdd failed: could not get link by name net1", ""},
	{"portmap: no prevResult", "portmap", cni.Add, ``, "", "", "must be called as chained plugin",
		"prevResult"},
	{"portmap: CHECK without prevResult", "portmap", cni.Check, ``, "", "",
		"Required prevResult missing", "prevResult"},
	{"portmap: backend", "portmap", cni.Add, `"backend":"foo"`, "", "",
		`failed to parse config: unrecognized backend "foo"`, "nftables"},
	{"portmap: host port", "portmap", cni.Add,
		`"runtimeConfig":{"portMappings":[{"hostPort":0,"containerPort":80,"protocol":"tcp"}]}`, "",
		"",
		"failed to parse config: Invalid host port number: 0", "portMappings"},
	{"portmap: container port", "portmap", cni.Add,
		`"runtimeConfig":{"portMappings":[{"hostPort":0,"containerPort":-1,"protocol":"tcp"}]}`, "",
		"",
		"failed to parse config: Invalid container port number: -1", "portMappings"},
	{"portmap: options of iptables", "portmap", cni.Add,
		`"backend":"nftables","externalSetMarkChain":"F","conditionsV4":["!","-s","1.2.3.4"],"conditionsV6":["-s","::1"]`, "", "",
		"failed to parse config: nftables backend was requested but configuration contains " +
			"iptables-specific options [externalSetMarkChain conditionsV4 conditionsV6]", ""},
	{"portmap: options of nftables", "portmap", cni.Check,
		`"backend":"iptables","conditionsV4":["ip","saddr","1.2.3.4"]`, "", "",
		"iptables backend was requested but configuration contains nftables-specific options " +
			"[conditionsV4]", ""},
	{"portmap: mark bit", "portmap", cni.Add, `"backend":"iptables","markMasqBit":32`, "", "",
		"failed to parse config: MasqMarkBit must be between 0 and 31", "32"},
	{"portmap: mark and chain", "portmap", cni.Add,
		`"backend":"iptables","markMasqBit":5,"externalSetMarkChain":"F"`, "", "",
		"failed to parse config: Cannot specify externalSetMarkChain and markMasqBit", ""},
}

// TestMessages: the message of these mistakes equals upstream's, and Tenon's additions are in the
// details (ERR-03).
func TestMessages(t *testing.T) {
	t.Parallel()
	n := testnet.New(t, "c")
	c := n.Container("c")
	c.Batch("link add eth0 address c2:05:05:05:05:05 type veth peer name h0 netns "+n.Host.Path(),
		"link set eth0 up")
	n.Host.Batch("link add h1 type veth peer name h2", // for host-device
		"link add b0 type bridge", "link set h0 up")
	dir := t.TempDir()
	// reserved by the container, for the IPAM of a CHECK
	held := filepath.Join(dir, "held", "net", "10.1.2.2")
	if err := errors.Join(os.MkdirAll(filepath.Dir(held), 0o755),
		os.WriteFile(held, []byte("c\r\nnet1"), 0o644)); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all.Plugins { // they run in this process
		if err := os.Symlink(self, filepath.Join(bin, d.Name)); err != nil {
			t.Fatal(err)
		}
	}
	in := strings.NewReplacer("DIR", dir, "BIN", bin, "SANDBOX", c.Path()).Replace
	for _, row := range refusals {
		t.Run(row.name, func(t *testing.T) {
			env := cni.Env{Command: row.verb, ContainerID: "c", Netns: c.Path(), IfName: "net1",
				Args: row.args, Path: bin}
			if row.ifName == "own" {
				env.Netns = "/proc/thread-self/ns/net"
			} else if row.ifName == "none" {
				env.IfName = ""
			} else if row.ifName != "" {
				env.IfName = row.ifName
			}
			conf := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"net","type":%q,%s}`, row.plugin,
				in(row.conf))
			conf = strings.Replace(conf, ",}", "}", 1)
			var err error
			n.Host.Do(func() { err = call(t.Context(), row.plugin, env, conf) })
			e := cni.AsError(err)
			if e == nil {
				t.Fatal("succeeded")
			}
			want := strings.ReplaceAll(in(row.msg), "PEER", hostName(e.Msg))
			if e.Msg != want || !strings.Contains(e.Details, row.says) {
				t.Errorf("message %q, want %q; details %q, want %q in them", e.Msg, want, e.Details,
					row.says)
			}
		})
	}
}

// call runs a verb of a plugin in this process.
func call(ctx context.Context, name string, env cni.Env, conf string) error {
	i := slices.IndexFunc(all.Plugins, func(d plugin.Definition) bool { return d.Name == name })
	if i < 0 || !json.Valid([]byte(conf)) {
		return errors.New("no such plugin, or no JSON: " + conf)
	}
	_, err := all.Plugins[i].Serve(ctx, env, []byte(conf), plugin.Caller(all.Plugins, false))
	return err
}

// hostName returns the name of the host-side veth in a message, which has no fixed text.
func hostName(message string) string {
	for _, word := range strings.FieldsFunc(message, func(r rune) bool { return r == '"' }) {
		if strings.HasPrefix(word, "veth") {
			return word
		}
	}
	return "veth…"
}
