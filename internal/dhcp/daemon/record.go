package daemon

import (
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/dhcp/v4"
	"github.com/tenon-cni/tenon/internal/dhcp/v6"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// Record is an attachment with its lease, as stored in a file.
type Record struct {
	cni.Attachment
	Place Place `json:"place"`

	// Options of the client.
	ClientID   []byte        `json:"clientID"`
	Options    []dhcp.Option `json:"options,omitempty"`
	Parameters []byte        `json:"parameters,omitempty"`
	Broadcast  bool          `json:"broadcast,omitempty"` // ask for answers by broadcast
	Priority   int           `json:"priority,omitempty"`  // metric of the routes

	Lease *v4.Lease `json:"lease,omitempty"` // nil if lost
	Lost  string    `json:"lost,omitempty"`  // the reason
	Last  *v4.Lease `json:"last,omitempty"`  // the last lease

	DHCP6 dhcp.DHCP6 `json:"dhcp6,omitempty"`
	Six   *v6.Lease  `json:"six,omitempty"` // nil if lost or not requested
	Lost6 string     `json:"lost6,omitempty"`
}

// Place locates the interface of a lease. Paths can disappear, and interfaces can be renamed.
type Place struct {
	Path  string             `json:"path"` // path of the namespace, without the host prefix
	NS    kernel.NamespaceID `json:"ns"`
	Index int                `json:"index"`
	MAC   string             `json:"mac"`
}

// Addresses returns the addresses of both leases.
func (l *Record) Addresses() (list []netip.Prefix) {
	if l.Lease != nil {
		list = append(list, l.Lease.Address)
	}
	return append(list, l.Six.Prefixes()...)
}

// DNS returns the current DNS settings of the servers. The runtime gets them only once, in the
// result of ADD.
func (l *Record) DNS() (d cni.DNS) {
	var addresses []netip.Addr
	if l.Lease != nil {
		addresses, d.Domain, d.Search = l.Lease.DNS, l.Lease.Domain, l.Lease.Search
	}
	if l.Six != nil {
		addresses, d.Search = slices.Concat(addresses, l.Six.DNS),
			slices.Concat(d.Search, l.Six.Search)
	}
	for _, a := range addresses {
		d.Nameservers = append(d.Nameservers, a.String())
	}
	return d
}
