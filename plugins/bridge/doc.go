// Package bridge connects containers to a Linux bridge of the host, each by a pair of veth interfaces. The bridge is made on first use and never removed. It can be the
// gateway of the containers' networks, hide them behind the host, or just be a switch.
//
// Address management, addresses, routes, DEL, GC and most of CHECK are those of package attach; what is here is the bridge.
package bridge

import "github.com/tenon-cni/tenon/plugin"

var examples = []plugin.Example{
	{Name: "gateway of a dual-stack network with masquerading", Config: `{
  "cniVersion": "1.1.0",
  "name": "pods",
  "type": "bridge",
  "bridge": "cni0",
  "isDefaultGateway": true,
  "ipMasq": true,
  "ipam": {
    "type": "host-local",
    "ranges": [
      [{"subnet": "10.88.0.0/16"}],
      [{"subnet": "fd00:88::/64"}]
    ]
  }
}`},
	{Name: "a switch without addresses", Config: `{
  "cniVersion": "1.0.0",
  "name": "lab",
  "type": "bridge",
  "bridge": "lab0",
  "mtu": 1400
}`},
	{Name: "the specification's own", Config: `{
  "cniVersion": "1.1.0",
  "name": "dbnet",
  "type": "bridge",
  "bridge": "cni0",
  "keyA": ["some more", "plugin specific", "configuration"],
  "capabilities": {"mac": true},
  "ipam": {
    "type": "host-local",
    "subnet": "10.1.0.0/16",
    "gateway": "10.1.0.1",
    "routes": [{"dst": "0.0.0.0/0"}]
  },
  "dns": {"nameservers": ["10.1.0.1"]}
}`},
}
