// Package host reads the state of a host's networking into one value, for commands that explain it:
// namespaces with their links, addresses, routes, rules, neighbours, settings, listeners and rule
// sets. All commands work on one such value, so that their answers agree, and a value stored as
// JSON gives the same answers elsewhere. The package changes nothing, and knows nothing of CNI.
package host

import (
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Host is the state of a host when it was read.
type Host struct {
	Version    int               `json:"version"` // of this format: 1
	Time       time.Time         `json:"time"`
	Name       string            `json:"host"`
	Kernel     string            `json:"kernel"` // uname -r
	BootID     string            `json:"bootID,omitzero"`
	Namespaces []Namespace       `json:"namespaces"`       // the first is the host's own
	Settings   map[string]string `json:"settings"`         // sysctls of all namespaces: "fs.file-max"
	Skipped    []Skipped         `json:"skipped,omitzero"` // could not be read
}

// Skipped is something that could not be read, with the reason.
type Skipped struct {
	What   string `json:"what"`
	Reason string `json:"reason"`
}

// Version is the version of the format of [Host].
const Version = 1

// Namespace is a network namespace.
type Namespace struct {
	ID    string   `json:"id"`             // device and inode of its nsfs file, "4:4026531840"
	Paths []string `json:"paths,omitzero"` // bind mounts that lead to it
	PIDs  []int    `json:"pids,omitzero"`  // some of its processes, at most 8
	Peers []Peer   `json:"peers,omitzero"` // identifiers of other namespaces in this one

	Links      []Link            `json:"links"`
	Addrs      []Addr            `json:"addresses"`
	Routes     []Route           `json:"routes"`
	Rules      []Rule            `json:"rules"`
	Neighbours []Neighbour       `json:"neighbours"`
	Forwarding []Forwarding      `json:"fdb,omitzero"`       // of bridges and VXLAN devices
	Listeners  []Listener        `json:"listeners,omitzero"` // nil until [Namespace.ReadListeners]
	Policies   []Policy          `json:"policies,omitzero"`  // of IPsec
	Settings   map[string]string `json:"settings"`           // sysctls of the namespace, "net.ipv4.ip_forward"
	Ruleset    *nftmsg.Ruleset   `json:"nftables"`           // with the tables of legacy iptables
	Missing    []Skipped         `json:"missing,omitzero"`   // not permitted, see [Options.Partial]
}

// Peer is the identifier of a namespace in another one (ip-netns(8), NETNSA_NSID).
type Peer struct {
	NSID int    `json:"nsid"`
	ID   string `json:"id"`
}

// Own returns the namespace of the host.
func (h *Host) Own() *Namespace { return &h.Namespaces[0] }

// Namespace returns the namespace with an identifier, nil if there is none.
func (h *Host) Namespace(id string) *Namespace {
	for i := range h.Namespaces {
		if h.Namespaces[i].ID == id {
			return &h.Namespaces[i]
		}
	}
	return nil
}

// At returns the namespace that a path led to when the host was read, nil if there is none.
func (h *Host) At(path string) *Namespace {
	for i := range h.Namespaces {
		if slices.Contains(h.Namespaces[i].Paths, path) {
			return &h.Namespaces[i]
		}
	}
	return nil
}

// Open opens a namespace of this host. The error wraps [fs.ErrNotExist] if it no longer exists.
func (n *Namespace) Open() (*netns.NS, error) {
	paths := slices.Clone(n.Paths)
	for _, pid := range n.PIDs {
		paths = append(paths, fmt.Sprintf("/proc/%d/ns/net", pid))
	}
	for _, path := range append(paths, "/proc/thread-self/ns/net") {
		ns, err := netns.Open(path)
		if err != nil {
			continue
		}
		if idOf(ns.ID()) == n.ID {
			return ns, nil
		}
		_ = ns.Close() // another namespace has taken the path
	}
	return nil, fmt.Errorf("network namespace %s: %w", n.ID, fs.ErrNotExist)
}

// Link returns the link with an index, nil if there is none.
func (n *Namespace) Link(index int) *Link {
	for i := range n.Links {
		if n.Links[i].Index == index {
			return &n.Links[i]
		}
	}
	return nil
}

// LinkByName returns the link with a name or an alternative name, nil if there is none.
func (n *Namespace) LinkByName(name string) *Link {
	for i := range n.Links {
		if l := &n.Links[i]; l.Name == name || slices.Contains(l.AltNames, name) {
			return l
		}
	}
	return nil
}

// Of returns the addresses of a link.
func (n *Namespace) Of(link int) (list []Addr) {
	for _, a := range n.Addrs {
		if a.Link == link {
			list = append(list, a)
		}
	}
	return list
}

// Holder returns the link that has an address, nil if there is none.
func (n *Namespace) Holder(a netip.Addr) *Link {
	for _, x := range n.Addrs {
		if x.Prefix.Addr() == a {
			return n.Link(x.Link)
		}
	}
	return nil
}

// Holds reports whether a link has an address, which other links can have too.
func (n *Namespace) Holds(link int, a netip.Addr) bool {
	return slices.ContainsFunc(n.Of(link), func(x Addr) bool { return x.Prefix.Addr() == a })
}

// Peer returns the namespace and the link at the other end of a veth pair, or the parent of a VLAN,
// macvlan or ipvlan device; nil if it is not known.
func (h *Host) Peer(n *Namespace, l *Link) (*Namespace, *Link) {
	other := n
	if l.LowerNSID != nil {
		i := slices.IndexFunc(n.Peers, func(p Peer) bool { return p.NSID == *l.LowerNSID })
		if i < 0 {
			return nil, nil
		}
		other = h.Namespace(n.Peers[i].ID)
	}
	if other == nil || l.Lower == 0 {
		return nil, nil
	}
	return other, other.Link(l.Lower)
}
