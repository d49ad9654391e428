package kernel

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/nft"
)

// NodeProtocol marks the routes between nodes of a cluster (RTA_PROTOCOL).
const NodeProtocol = netlink.NodeProtocol

// KindVXLAN is the kind of VXLAN devices.
const KindVXLAN = netlink.KindVXLAN

// Types for routes between nodes, and for the entries of a VXLAN device.
type (
	NodeRoute = netlink.NodeRoute
	Neighbour = netlink.Neighbour // of a neighbour table or a forwarding database
	Proxy     = netlink.Proxy     // an address for which the host answers on a link
	VXLAN     = netlink.VXLAN
	LinkAddr  = netlink.LinkAddr
	Hop       = netlink.Hop
	RouteType = netlink.RouteType

	// Change is a change of a route, a neighbour or a forwarding entry.
	Change = netlink.Change
	// Monitor receives the changes in a namespace.
	Monitor = netlink.Monitor
	// Event is a change that a [Monitor] has received.
	Event = netlink.Event
)

// The types of routes between nodes.
const (
	RouteUnicast     = netlink.RouteUnicast
	RouteBlackhole   = netlink.RouteBlackhole
	RouteUnreachable = netlink.RouteUnreachable
)

// AddNodeRoute returns the change that adds a route. Its error satisfies [Taken] if any route has
// the same destination and metric.
func AddNodeRoute(r NodeRoute) Change { return netlink.AddNodeRoute(r) }

// ReplaceNodeRoute returns the change that replaces an own route with the same destination and
// metric.
func ReplaceNodeRoute(r NodeRoute) Change { return netlink.ReplaceNodeRoute(r) }

// DeleteNodeRoute returns the change that deletes an own route.
func DeleteNodeRoute(r NodeRoute) Change { return netlink.DeleteNodeRoute(r) }

// SetNeighbour returns the change that adds or replaces a permanent neighbour entry.
func SetNeighbour(n Neighbour) Change { return netlink.SetNeighbour(n) }

// DeleteNeighbour returns the change that deletes a neighbour entry.
func DeleteNeighbour(n Neighbour) Change { return netlink.DeleteNeighbour(n) }

// SetForwarding returns the change that adds or replaces an entry in the forwarding database of a
// VXLAN device.
func SetForwarding(n Neighbour) Change { return netlink.SetForwarding(n) }

// DeleteForwarding returns the change that deletes all entries of a MAC address in the forwarding
// database of a VXLAN device.
func DeleteForwarding(n Neighbour) Change { return netlink.DeleteForwarding(n) }

// SetProxy returns the change that adds a proxy entry.
func SetProxy(p Proxy) Change { return netlink.SetProxy(p) }

// DeleteProxy returns the change that deletes a proxy entry.
func DeleteProxy(p Proxy) Change { return netlink.DeleteProxy(p) }

// Taken reports whether a change failed because another program has an object with the same key.
func Taken(err error) bool { return netlink.ErrTaken(err) }

// MaxChanges is the number of changes that [Space.Make] makes together at most.
const MaxChanges = 64

// Make makes up to [MaxChanges] independent changes in their order, and continues past errors. Each
// error names its change; deleting an object that does not exist succeeds. Rollback reverts
// nothing, because these objects belong to no attachment.
func (s *Space) Make(changes ...Change) (errs []error) {
	if len(changes) == 0 {
		return nil
	}
	op := changes[0].Text
	if n := len(changes) - 1; n > 0 {
		op += fmt.Sprintf(" and %d more", n)
	}
	err := s.tx.Do(op, func() error {
		errs = s.rt.Make(changes)
		return nil
	}, nil)
	if err != nil {
		return []error{err}
	}
	return errs
}

// OfNodes lists the routes between nodes, in both families.
func (s Routes) OfNodes() ([]NodeRoute, error) { return s.space.rt.Routes.NodeRoutes() }

// Hop returns the next hop of packets to an address; ok is false if they cannot leave.
func (s Routes) Hop(dst netip.Addr) (hop Hop, ok bool, err error) {
	return s.space.rt.Routes.Lookup(dst)
}

// Everywhere lists the addresses of all links, in both families.
func (s Addrs) Everywhere() ([]LinkAddr, error) { return s.space.rt.Addrs.All() }

// Neighbours lists the neighbour entries of a link, except entries of multicast addresses.
func (s Addrs) Neighbours(l Link) ([]Neighbour, error) { return s.space.rt.Addrs.Neighbours(l) }

// Forwarding lists the entries in the forwarding database of a VXLAN device.
func (s Addrs) Forwarding(l Link) ([]Neighbour, error) { return s.space.rt.Addrs.Forwarding(l) }

// Proxies lists the proxy entries for addresses of other nodes, of all links.
func (s Addrs) Proxies() ([]Proxy, error) { return s.space.rt.Addrs.Proxies() }

// Monitor opens a monitor of the namespace, which outlives the space. The caller must close it.
func (s *Space) Monitor() (*Monitor, error) { return s.rt.Monitor() }

// EnsureTxChecksum turns the offload of the checksums of packets sent by a link on or off, unless
// it already is. Rollback does not revert it.
func (s Links) EnsureTxChecksum(l Link, on bool) (changed bool, err error) {
	now, err := s.space.rt.Links.TxChecksum(l)
	if now == on || err != nil {
		return false, err
	}
	err = s.space.tx.Do(fmt.Sprintf("tx checksum offload %t dev %s", on, l.Name),
		func() error { return s.space.rt.Links.SetTxChecksum(l, on) }, nil)
	return err == nil, err
}

// ClusterPools returns the pools that [Rules.SetClusterPools] has set, none if the kernel lacks
// nftables.
func (s Rules) ClusterPools() ([]netip.Prefix, error) {
	pools, err := ask(s, func(c *nft.Conn) ([]netip.Prefix, error) {
		pools, _, err := c.ClusterPools()
		return pools, err
	})
	return pools, UnlessNoNFT(err)
}

// SetClusterPools keeps the source of packets between pools of a cluster: nothing masquerades them.
// It replaces the pools in one transaction, and reports whether they or the rules differed. Without
// pools it removes the rules. Rollback does not revert it. The error wraps [ErrNoNFT] if there are
// pools and the kernel lacks nftables.
func (s Rules) SetClusterPools(pools []netip.Prefix) (changed bool, err error) {
	c, err := s.space.rules()
	if err != nil {
		return false, withoutPools(err, pools)
	}
	have, complete, err := c.ClusterPools()
	if err != nil || complete && nft.SamePools(have, pools) {
		return false, withoutPools(err, pools)
	}
	err = s.space.tx.Do(fmt.Sprintf("cluster pools %v", pools), func() error {
		return c.SetClusterPools(s.space.tx.ctx, pools)
	}, nil)
	return err == nil, withoutPools(err, pools)
}

// withoutPools ignores a kernel without nftables if there are no pools.
func withoutPools(err error, pools []netip.Prefix) error {
	if len(pools) == 0 {
		return UnlessNoNFT(err)
	}
	return err
}

// SetHolds makes the kernel drop forwarded packets from blocks of this node when their durations
// have elapsed, even if this program no longer runs; at once if a duration is not positive. It
// replaces all blocks in one transaction. Rollback does not revert it. The error wraps [ErrNoNFT] if
// there are blocks and the kernel lacks nftables.
func (s *Space) SetHolds(left map[netip.Prefix]time.Duration) error {
	c, err := s.rules()
	if err == nil {
		err = s.tx.Do(fmt.Sprintf("hold of %d blocks", len(left)), func() error {
			return c.SetHolds(s.tx.ctx, left)
		}, nil)
	}
	if len(left) == 0 {
		return UnlessNoNFT(err)
	}
	return err
}
