package ovs

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/tenon-cni/tenon/cni"
)

// Errors of a [Switch].
var (
	// ErrUnreachable reports that the database does not answer.
	ErrUnreachable = errors.New("the Open vSwitch database does not answer")
	// ErrNoBridge reports that a bridge does not exist.
	ErrNoBridge = errors.New("bridge not found")
)

// Switch is the Open vSwitch of the host. Each change is one transaction of its database. If the
// connection breaks, the methods connect again and repeat their work, which is harmless if the
// database had already made the change. Errors wrap [ErrUnreachable] if the database stays away.
type Switch interface {
	// HasBridge reports whether a bridge exists.
	HasBridge(ctx context.Context, name string) (bool, error)

	// CreateBridge creates a bridge if it does not exist, and waits until ovs-vswitchd has done so.
	CreateBridge(ctx context.Context, name string, datapath Datapath) error

	// Attach adds a port and, with a segment, its tag and its missing tunnels. A port with the same
	// owner is replaced. Attach then waits until ovs-vswitchd has applied the change. If it fails,
	// the caller must call Detach. The error wraps [ErrNoBridge] if there is no bridge, and has
	// [cni.CodeInvalidConfig] if the segment contradicts the database, or if a container outside a
	// segment would carry its tag. Attach only lists such ports of other programs.
	Attach(ctx context.Context, p Port) (Exposure, error)

	// WaitUp waits until ovs-vswitchd reports the link of a port as up. It returns an error after
	// the limit.
	WaitUp(ctx context.Context, port string, limit time.Duration) error

	// Detach removes the ports that match selects, and the tags and tunnels of segments without a
	// container port. It waits shortly until ovs-vswitchd has applied the change. It returns the
	// names of the removed ports.
	Detach(ctx context.Context, match func(Attached) bool) (removed []string, err error)

	// Find returns the ports that match selects.
	Find(ctx context.Context, match func(Attached) bool) ([]Attached, error)

	// SegmentOf returns a segment of a bridge, with Tag 0 if there is none.
	SegmentOf(ctx context.Context, bridge string, vni int) (Segment, error)

	// Close closes the connection.
	Close()
}

// Dialer connects to the switch with a database at an endpoint: unix:PATH, tcp:ADDRESS:PORT or
// ssl:ADDRESS:PORT. It tries until the patience is over, because the database may be restarting.
// The error wraps [ErrUnreachable].
type Dialer func(ctx context.Context, endpoint string, patience time.Duration) (Switch, error)

// Datapath is a type of a bridge.
type Datapath string

// The types of bridges.
const (
	DatapathSystem Datapath = "system" // the kernel forwards packets
	DatapathNetdev Datapath = "netdev" // ovs-vswitchd forwards packets
)

// Port describes the port of a container.
type Port struct {
	Name   string // of the host-side veth
	Bridge string
	Owner  Owner

	Tag     int      // VLAN of an access port; 0 makes the port a trunk unless there is a segment
	Trunks  []int    // VLANs of a trunk; nil stands for all
	Segment *Segment // makes the port an access port with the tag of the segment

	Protected     bool   // exchanges no frames with other protected ports
	OpenFlow      int    // requested OpenFlow port number; 0 lets the switch choose
	InterfaceType string // type in the database; "" is a link of the kernel
	InterfaceID   string // the port in OVN, or ""
}

// Owner identifies the attachment of a port in the database.
type Owner struct {
	cni.Attachment
	Netns string // CNI_NETNS of ADD
}

// Segment is a VXLAN segment on one bridge.
type Segment struct {
	VNI     int
	Tag     int // the VLAN that represents the segment on this bridge; 0 lets the switch choose
	Tunnels []Tunnel
}

// Tunnel is a tunnel of a segment to another node.
type Tunnel struct {
	Remote netip.Addr
	Local  netip.Addr // the zero value lets the node choose
	Port   int        // UDP port of the remote node
}

// Exposure lists the ports of other programs, ordered by name, through which the frames of a
// segment leave the bridge with the tag of the segment.
type Exposure struct {
	VLAN  int // the tag
	Ports []string
}

// Attached is a port of a container in the database.
type Attached struct {
	Name   string
	Bridge string
	Owner  Owner
	VNI    int // of the segment, or 0

	// Foreign is true for a port of the plugin ovs-cni. Its owner has neither container nor
	// network.
	Foreign bool

	Mode      string // vlan_mode: "access", "trunk" or ""
	Tag       int
	Trunks    []int
	Protected bool
	Error     string // of the interface, as ovs-vswitchd reports it
	NoLink    bool   // ovs-vswitchd finds no link of this name
}
