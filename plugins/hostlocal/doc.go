// Package hostlocal is the IPAM plugin host-local: it hands out addresses of ranges that belong to this host alone, and keeps who has which in
// files, in the layout of the reference plugin, so that either can take over from the other.
//
// Ranges and the search for an address are in package ipam, the files in ipam/store/file; what is here is the configuration.
package hostlocal

import "github.com/tenon-cni/tenon/plugin"

var examples = []plugin.Example{
	{Name: "a pool of two subnets, and an IPv6 address", Config: `{
  "cniVersion": "1.1.0",
  "name": "pods",
  "type": "bridge",
  "ipam": {
    "type": "host-local",
    "ranges": [
      [
        {"subnet": "10.10.0.0/16", "rangeStart": "10.10.1.20", "rangeEnd": "10.10.3.50", "gateway": "10.10.0.254"},
        {"subnet": "172.16.5.0/24"}
      ],
      [{"subnet": "fd00:10::/64"}]
    ],
    "routes": [{"dst": "0.0.0.0/0"}, {"dst": "192.168.0.0/16", "gw": "10.10.5.1"}, {"dst": "fd00:20::/64"}]
  }
}`},
	{Name: "the short form", Config: `{
  "cniVersion": "1.0.0",
  "name": "lab",
  "type": "macvlan",
  "capabilities": {"ips": true, "ipRanges": true},
  "ipam": {"type": "host-local", "subnet": "10.20.0.0/24"}
}`},
}
