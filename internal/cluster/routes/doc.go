// Package routes connects the containers of a cluster's nodes: it programs routes from this node to
// the address blocks of the others, through their addresses on a shared link (host-gw) or through a
// VXLAN device, and keeps the pools of the cluster from being masqueraded. It maintains what
// [Router.Apply] is given, and does not know where that comes from: the agent reads it from etcd.
//
// # Ownership
//
// The routes have protocol 117 ([kernel.NodeProtocol]) in the table main. Routes to other nodes
// have metric 2000, and routes that drop packets 1000000. The alias of a VXLAN device begins with
// tenon-cluster:, and everything on the device belongs to this package. It changes no route of
// another protocol and no other device. A namespace has one [Router] at a time.
//
// # Next hops
//
// No address of a pool is used for the tunnel. The next hop of IPv4 is the IPv4 address of the
// other node, which the route declares to be on the device (onlink); the next hop of IPv6, and of
// IPv4 if the nodes have only IPv6 addresses in common, is the link-local address that belongs to
// the MAC address of the other node's device. Permanent neighbour entries and static forwarding
// entries make every resolution and all flooding unnecessary.
package routes
