package routes

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Mode selects how packets reach other nodes.
type Mode string

// The modes.
const (
	ModeOff    Mode = "off"     // another program maintains the routes
	ModeHostGW Mode = "host-gw" // through the address of the node, which must share a link
	ModeVXLAN  Mode = "vxlan"   // through a VXLAN device
	ModeAuto   Mode = "auto"    // host-gw to nodes that share a link, VXLAN to the others
)

// Defaults of [Options].
const (
	DefaultDevice = "tenon-vx"
	// DefaultVNI is "ten" in ASCII. Network identifiers in use by others on the same node and port
	// must differ: Calico's default is 4096, Docker counts from 4097, flannel uses 1.
	DefaultVNI = 0x74656e
	// DefaultPort is the port that IANA assigned to VXLAN. The kernel's own default is 8472.
	DefaultPort = 4789
)

// Options configure a [Router].
type Options struct {
	Mode    Mode         // "" is [ModeAuto]
	Cluster string       // the name of the cluster, part of the alias of the devices
	Nodes   []netip.Addr // own addresses that other nodes use, at most one of each family

	Device string // of the tunnel over IPv4, at most 14 bytes; over IPv6 with a 6 behind it
	VNI    int    // 1 to 16777215; 0 is [DefaultVNI]
	Port   uint16 // UDP; 0 is [DefaultPort]

	// NoChecksumOffload makes the kernel compute the checksums of packets before it sends them into
	// the tunnel. Kernels up to 5.7 send wrong checksums of masqueraded packets without it; it
	// costs throughput.
	NoChecksumOffload bool

	Log *slog.Logger // nil discards
}

func (o *Options) complete() error {
	if o.Mode == "" {
		o.Mode = ModeAuto
	}
	if o.Device == "" {
		o.Device = DefaultDevice
	}
	if o.VNI == 0 {
		o.VNI = DefaultVNI
	}
	if o.Port == 0 {
		o.Port = DefaultPort
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o.check()
}

func (o *Options) check() error {
	if !slices.Contains([]Mode{ModeOff, ModeHostGW, ModeVXLAN, ModeAuto}, o.Mode) {
		return fmt.Errorf("unknown mode %q", o.Mode)
	}
	if o.VNI < 1 || o.VNI >= 1<<24 {
		return fmt.Errorf("VNI %d is not between 1 and 16777215", o.VNI)
	}
	if len(o.Device)+len("6") >= unix.IFNAMSIZ {
		return fmt.Errorf("device name %q is longer than 14 bytes", o.Device)
	}
	if len(alias(o.Cluster)) > 255 {
		return fmt.Errorf("cluster name %q is too long", o.Cluster)
	}
	for i, a := range o.Nodes {
		if err := usable(a); err != nil {
			return err
		}
		if slices.ContainsFunc(o.Nodes[:i], func(b netip.Addr) bool { return a.Is4() == b.Is4() }) {
			return fmt.Errorf("addresses %v: more than one of a family", o.Nodes)
		}
	}
	if len(o.Nodes) == 0 && o.Mode != ModeOff {
		return errors.New("the node has no address")
	}
	return nil
}

// usable checks the address of a node. Link-local addresses change with the MAC address.
func usable(a netip.Addr) error {
	if !a.IsGlobalUnicast() || a.Is4In6() || a.Zone() != "" {
		return fmt.Errorf("address %s cannot identify a node", a)
	}
	return nil
}

// own returns the own address of a family, or an invalid address.
func (o *Options) own(f family) netip.Addr { return f.of(o.Nodes) }

// aliasPrefix begins the aliases of all devices of this package.
const aliasPrefix = "tenon-cluster:"

func alias(cluster string) string { return aliasPrefix + cluster }

// VTEPMAC returns the MAC address of the VXLAN device of a node, from the identity of the node. It
// is stable and locally administered.
func VTEPMAC(identity string) net.HardwareAddr {
	sum := sha256.Sum256([]byte("tenon vtep\x00" + identity))
	mac := net.HardwareAddr(sum[:6])
	mac[0] = mac[0]&^1 | 2 // unicast, locally administered
	return mac
}

// linkLocal returns the link-local address of a MAC address (RFC 4291 appendix A).
func linkLocal(mac net.HardwareAddr) netip.Addr {
	a := [16]byte{0xfe, 0x80}
	copy(a[8:], []byte{mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
	return netip.AddrFrom16(a)
}

// family is IPv4 or IPv6.
type family int

const (
	ip4 family = 4
	ip6 family = 6
)

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return ip4
	}
	return ip6
}

// of returns the first address of the family, or an invalid address.
func (f family) of(list []netip.Addr) netip.Addr {
	i := slices.IndexFunc(list, func(a netip.Addr) bool { return familyOf(a) == f })
	if i < 0 {
		return netip.Addr{}
	}
	return list[i]
}

// overhead returns the bytes that VXLAN adds to a packet: the outer IP header, UDP, VXLAN, and the
// inner Ethernet header.
func (f family) overhead() int {
	if f == ip4 {
		return 50
	}
	return 70
}

// The metrics of routes. Routes of the kernel to the same network, which have 0 or 256, win: while
// a block moves to this node, its containers are reachable before the route to the former owner is
// gone.
const (
	metric    = 2000
	metricEnd = 1_000_000 // of routes that end packets
)

// Peer is a node.
type Peer struct {
	Name  string
	Addrs []netip.Addr     // for other nodes, at most one of each family
	MAC   net.HardwareAddr // see [VTEPMAC]; needed for VXLAN
	MTU   int              // bytes, of the link with Addrs: [Report.Underlay]; 0: unknown
	// Blocks are the networks of its containers, and the shared addresses that it holds.
	Blocks []netip.Prefix
}

// Want is the state that [Router.Apply] establishes.
type Want struct {
	Own   Peer   // its blocks get blackhole routes, against loops through the default route
	Peers []Peer // without this node

	// Pools are the networks of all nodes. They get unreachable routes, and packets between them
	// are not masqueraded.
	Pools []netip.Prefix
}

// Report is the result of [Router.Apply].
type Report struct {
	// MTU is the size in bytes of the largest packet that a container can send to every node, for
	// the interfaces of containers. In [ModeAuto] it allows for VXLAN even if no node needs it, so
	// that it stays the same when one joins. It is 0 if no link is known.
	MTU      int
	Underlay int    // MTU of the link with the own address, in bytes, or 0; see [Peer.MTU]
	Paths    []Path // sorted by name and family
	Changes  int    // the number of changes in the kernel

	// Problems are the reasons why blocks are not reachable or not as configured: peers without a
	// shared link, conflicting blocks, routes of other programs. Each names its peer or block.
	Problems []error
}

// Path describes how blocks of a family of a peer are reached.
type Path struct {
	Peer string
	IPv6 bool       // the family of the blocks
	Mode Mode       // [ModeHostGW] or [ModeVXLAN]
	Via  netip.Addr // the address of the node
	MTU  int        // bytes; 0: unknown
}
