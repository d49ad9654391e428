// Package topology arranges the state of a host, as package host has read it, and its attachments
// as a graph: namespaces, interfaces, attachments, published ports and masqueraded addresses, and
// how they are connected. It also arranges the graph as a tree for people, in which equal
// attachments fold. It draws nothing; package text does.
package topology

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/ops/why"
	"github.com/tenon-cni/tenon/network"
)

// Map is the graph of a host. Its nodes and edges have the same order for the same state.
type Map struct {
	Version  int            `json:"version"` // of this format: 1
	Time     time.Time      `json:"time"`
	Host     string         `json:"host"`
	Kernel   string         `json:"kernel"`
	Complete bool           `json:"complete"` // everything could be read
	Skipped  []host.Skipped `json:"skipped,omitzero"`
	Nodes    []*Node        `json:"nodes"`
	Edges    []Edge         `json:"edges"`

	byID map[string]*Node
}

// Kind is the kind of a node.
type Kind string

// The kinds of nodes.
const (
	Host       Kind = "host"
	Namespace  Kind = "namespace"
	Interface  Kind = "interface"
	Attachment Kind = "attachment"
	Port       Kind = "port"       // of the host, published
	Masquerade Kind = "masquerade" // of packets from a source
	NextHop    Kind = "next hop"   // on another host
)

// Node is an object. Names are as the kernel or a record has them; a container can choose some of
// them, so they can contain any character.
type Node struct {
	ID   string `json:"id"`
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	// Namespace is device and inode; of an attachment it is empty if the namespace is gone.
	Namespace string `json:"namespace,omitzero"`
	// Owner is the program that made the object, or "unknown"; empty for devices and other hosts.
	// OwnerBy says how it is known: alias, comment, record, table, path, or name, which is a guess.
	Owner   string `json:"owner,omitzero"`
	OwnerBy string `json:"ownerBy,omitzero"`

	Device     *Device     `json:"interface,omitzero"`
	Attached   *Attached   `json:"attachment,omitzero"`
	Translated *Translated `json:"rule,omitzero"`
	Paths      []string    `json:"paths,omitzero"` // of a namespace
	PIDs       []int       `json:"pids,omitzero"`

	Problems []Problem `json:"problems,omitzero"`
}

// AttachmentID returns the ID of the node of an attachment.
func AttachmentID(a cni.Attachment) string {
	return fmt.Sprintf("att:%s/%s/%s", a.Network, a.Container, a.IfName)
}

// InterfaceID returns the ID of the node of an interface of a namespace.
func InterfaceID(namespace string, index int) string {
	return fmt.Sprintf("if:%s:%d", namespace, index)
}

// Device has the attributes of an interface.
type Device struct {
	Kind      string   `json:"kind,omitzero"`
	State     string   `json:"state"` // up, down, no carrier
	MAC       string   `json:"mac,omitzero"`
	MTU       int      `json:"mtu"`
	Addresses []string `json:"addresses,omitzero"`
	VLAN      int      `json:"vlan,omitzero"`  // of a VLAN device
	VLANs     []int    `json:"vlans,omitzero"` // of a port of a bridge that filters
	VNI       int      `json:"vni,omitzero"`
	Mode      string   `json:"mode,omitzero"`
	Alias     string   `json:"alias,omitzero"`
	Networks  []string `json:"networks,omitzero"` // of attachments through this interface
	Uplink    bool     `json:"uplink,omitzero"`   // to another host
}

// Attached has the attributes of an attachment.
type Attached struct {
	Network   string        `json:"network"`
	Container string        `json:"containerID"`
	IfName    string        `json:"ifname"`
	Netns     string        `json:"netns,omitzero"`
	Addresses []string      `json:"addresses,omitzero"` // as recorded
	Runtime   string        `json:"runtime,omitzero"`
	State     network.State `json:"state,omitzero"`
	Source    string        `json:"source,omitzero"` // file of libcni
}

// Translated has the attributes of a published port or of masquerading.
type Translated struct {
	Place    string  `json:"place"` // chain or set
	Comment  string  `json:"comment,omitzero"`
	Protocol string  `json:"protocol,omitzero"`
	Host     string  `json:"host,omitzero"` // address; empty: all
	First    int     `json:"first,omitzero"`
	Last     int     `json:"last,omitzero"`
	To       string  `json:"to,omitzero"`
	Source   string  `json:"source,omitzero"` // empty: any
	Packets  *uint64 `json:"packets,omitzero"`
}

// Relation is the kind of an edge.
type Relation string

// The kinds of edges.
const (
	MemberOf Relation = "port"   // from a port to its bridge, bond or VRF
	PeerOf   Relation = "peer"   // between the ends of a veth pair
	ParentOf Relation = "parent" // from a VLAN, macvlan, ipvlan or VXLAN device to its parent
	Routes   Relation = "route"  // from a host or namespace to an interface or a next hop
	Forwards Relation = "dnat"   // from a published port to an interface or an attachment
	Hides    Relation = "masquerade"
	Owns     Relation = "owner" // from an attachment to an object
)

// Edge connects two nodes.
type Edge struct {
	Kind  Relation `json:"kind"`
	From  string   `json:"from"`
	To    string   `json:"to"`
	Route *Route   `json:"route,omitzero"`
}

// Route has the attributes of a route.
type Route struct {
	Dst    netip.Prefix `json:"dst"`
	Via    netip.Addr   `json:"via,omitzero"`
	Dev    string       `json:"dev,omitzero"`
	Table  int          `json:"table"`
	Metric int          `json:"metric,omitzero"`
}

// Severity says how bad a problem is.
type Severity string

// The severities.
const (
	Warning Severity = "warning"
	Error   Severity = "error"
)

// Problem is something wrong with an object.
type Problem struct {
	ID       string   `json:"id"` // "masquerade.missing"
	Severity Severity `json:"severity"`
	Text     string   `json:"text"`
	Advice   string   `json:"advice,omitzero"`
}

// Version is the version of the format of [Map].
const Version = 1

// Node returns the node with an ID, nil if there is none.
func (m *Map) Node(id string) *Node {
	if m.byID == nil { // decoded from JSON
		m.index()
	}
	return m.byID[id]
}

func (m *Map) index() {
	m.byID = make(map[string]*Node, len(m.Nodes))
	for _, n := range m.Nodes {
		m.byID[n.ID] = n
	}
}

// Mark adds a problem to an object, unless it has one with the same ID and text. It reports whether
// the object exists.
func (m *Map) Mark(object string, p Problem) bool {
	n := m.Node(object)
	if n != nil && !slices.Contains(n.Problems, p) {
		n.Problems = append(n.Problems, p)
	}
	return n != nil
}

// Problems returns the number of errors and of warnings.
func (m *Map) Problems() (errors, warnings int) {
	for _, n := range m.Nodes {
		for _, p := range n.Problems {
			if p.Severity == Error {
				errors++
			} else {
				warnings++
			}
		}
	}
	return errors, warnings
}

// Read reads the state of this host, as far as [Build] needs it.
func Read(ctx context.Context, records []network.Record) (*why.Places, error) {
	o := host.Options{Brief: true}
	for _, rec := range records {
		if rec.Netns != "" {
			o.Paths = append(o.Paths, rec.Netns)
		}
	}
	h, err := host.Read(ctx, o)
	return &why.Places{Host: h, Records: records}, err
}
