package host

import (
	"net/netip"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Link is a network interface.
type Link struct {
	Index     int      `json:"index"`
	Name      string   `json:"name"`
	AltNames  []string `json:"altNames,omitzero"`
	Kind      string   `json:"kind,omitzero"` // "veth", "bridge", …; "" if rtnetlink reports none
	Alias     string   `json:"alias,omitzero"`
	MAC       string   `json:"mac,omitzero"`
	MTU       int      `json:"mtu"` // bytes
	Flags     []string `json:"flags,omitzero"`
	OperState string   `json:"operState"`
	Master    int      `json:"master,omitzero"` // index of the bridge, bond or VRF
	// Lower is the index of the peer of a veth device, or of the parent of a VLAN, macvlan or
	// ipvlan device. LowerNSID is nil if it is in the same namespace.
	Lower     int     `json:"lower,omitzero"`
	LowerNSID *int    `json:"lowerNSID,omitzero"`
	Qdisc     string  `json:"qdisc,omitzero"` // kind of the root qdisc
	XDP       bool    `json:"xdp,omitzero"`   // a program is attached
	VLAN      int     `json:"vlan,omitzero"`  // ID of a VLAN device
	Mode      string  `json:"mode,omitzero"`  // macvlan, ipvlan
	VRF       int     `json:"vrf,omitzero"`   // table of a VRF
	VNI       int     `json:"vni,omitzero"`   // of a VXLAN device
	Bridge    *Bridge `json:"bridge,omitzero"`
	Port      *Port   `json:"port,omitzero"` // of a bridge
	// Filters see the packets of the link.
	Filters []Filter `json:"filters,omitzero"`
}

// Up reports the administrative state.
func (l *Link) Up() bool { return l.flag("up") }

// Running reports whether the link is up and its lower layer, too (IFF_RUNNING, IFF_LOWER_UP).
func (l *Link) Running() bool { return l.flag("up") && l.flag("lower-up") }

func (l *Link) flag(name string) bool {
	for _, f := range l.Flags {
		if f == name {
			return true
		}
	}
	return false
}

// Bridge is the configuration of a bridge.
type Bridge struct {
	VLANFiltering bool `json:"vlanFiltering,omitzero"`
	STP           bool `json:"stp,omitzero"`
	ForwardDelay  int  `json:"forwardDelay,omitzero"` // hundredths of a second
	// Call reports whether iptables sees the frames of this bridge even if br_netfilter is off for
	// the others.
	Call bool `json:"callIPTables,omitzero"`
	// VLANs of the bridge itself, as a port.
	VLANs []VLAN `json:"vlans,omitzero"`
}

// Port is the state of a bridge port.
type Port struct {
	State    string `json:"state"` // disabled, listening, learning, forwarding, blocking
	Hairpin  bool   `json:"hairpin,omitzero"`
	Isolated bool   `json:"isolated,omitzero"`
	Learning bool   `json:"learning,omitzero"`
	Flood    bool   `json:"flood,omitzero"` // unknown unicast
	VLANs    []VLAN `json:"vlans,omitzero"`
}

// VLAN is an entry in the VLAN table of a port.
type VLAN struct {
	ID       int  `json:"id"`
	PVID     bool `json:"pvid,omitzero"`
	Untagged bool `json:"untagged,omitzero"`
}

// PVID returns the VLAN of untagged received frames, 0 if they are dropped.
func PVID(list []VLAN) int {
	for _, v := range list {
		if v.PVID {
			return v.ID
		}
	}
	return 0
}

// Addr is an address of a link.
type Addr struct {
	Link   int          `json:"link"`
	Prefix netip.Prefix `json:"prefix"`
	Peer   netip.Prefix `json:"peer,omitzero"` // of a point-to-point address
	Scope  string       `json:"scope"`         // global, link, host, or a number
	Flags  []string     `json:"flags,omitzero"`
}

// Failed reports whether duplicate address detection found the address elsewhere.
func (a Addr) Failed() bool {
	for _, f := range a.Flags {
		if f == "dadfailed" {
			return true
		}
	}
	return false
}

// Route is a route of any type.
type Route struct {
	Type     string       `json:"type"` // unicast, local, blackhole, …
	Dst      netip.Prefix `json:"dst"`
	Src      netip.Prefix `json:"src,omitzero"`
	Table    int          `json:"table"`
	Protocol int          `json:"protocol"` // RTPROT_…
	Scope    string       `json:"scope"`
	Metric   int          `json:"metric,omitzero"`
	PrefSrc  netip.Addr   `json:"prefsrc,omitzero"`
	MTU      int          `json:"mtu,omitzero"`
	Hops     []Hop        `json:"hops,omitzero"`
	Expires  int          `json:"expires,omitzero"` // seconds
}

// Hop is a next hop of a route.
type Hop struct {
	Link   int        `json:"link,omitzero"`
	Via    netip.Addr `json:"via,omitzero"`
	Weight int        `json:"weight,omitzero"` // of several hops
	Flags  []string   `json:"flags,omitzero"`  // dead, linkdown, onlink
}

// Rule selects a routing table (ip-rule(8)).
type Rule struct {
	Family   string       `json:"family"` // ipv4, ipv6
	Priority int          `json:"priority"`
	Src      netip.Prefix `json:"src,omitzero"`
	Dst      netip.Prefix `json:"dst,omitzero"`
	IIF      string       `json:"iif,omitzero"`
	OIF      string       `json:"oif,omitzero"`
	Mark     uint32       `json:"mark,omitzero"`
	Mask     uint32       `json:"mask,omitzero"`
	Invert   bool         `json:"invert,omitzero"`
	Action   string       `json:"action"` // lookup, goto, nop, blackhole, unreachable, prohibit
	Table    int          `json:"table,omitzero"`
	Protocol int          `json:"protocol,omitzero"`
	// Suppress is the longest prefix that the rule ignores in its table, -1 if it ignores none.
	Suppress int `json:"suppress"`
	// Other reports conditions without a field here.
	Other bool `json:"other,omitzero"`
}

// Neighbour is an entry of the neighbour table.
type Neighbour struct {
	Link  int        `json:"link"`
	Addr  netip.Addr `json:"address"`
	MAC   string     `json:"mac,omitzero"`
	State string     `json:"state"` // reachable, stale, failed, permanent, …
	Proxy bool       `json:"proxy,omitzero"`
}

// Forwarding is an entry in the forwarding database of a bridge port or a VXLAN device.
type Forwarding struct {
	Link   int        `json:"link"` // the port
	MAC    string     `json:"mac"`
	VLAN   int        `json:"vlan,omitzero"`
	Remote netip.Addr `json:"remote,omitzero"` // of a VXLAN device
	Local  bool       `json:"local,omitzero"`  // the port's own address
	Static bool       `json:"static,omitzero"` // does not age
	Sticky bool       `json:"sticky,omitzero"` // does not move to another port
}

// Listener is a socket that accepts connections or datagrams.
type Listener struct {
	Protocol string         `json:"protocol"`         // tcp, udp
	Addr     netip.AddrPort `json:"address"`          // unspecified: all addresses
	Waiting  int            `json:"waiting,omitzero"` // connections that no program has accepted
	// Backlog is how many connections can wait: see listen(2). It is known only if some wait.
	Backlog int `json:"backlog,omitzero"`
}

// Full reports whether the socket can take no connection: as many wait as its backlog allows, or the
// backlog is not known.
func (l Listener) Full() bool { return l.Waiting > 0 && l.Waiting >= l.Backlog }

// Table is a table of nftables.
type Table = nftmsg.TableState
