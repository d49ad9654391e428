package ipam

import (
	"fmt"
	"net/netip"
	"time"
)

// Owner is who holds an address: one interface of one container.
type Owner struct {
	Container string
	IfName    string // empty in records of host-local before 0.7, which knew only the container
}

// String is "container CONTAINER interface IFNAME".
func (o Owner) String() string {
	if o.IfName == "" {
		return "container " + o.Container
	}
	return fmt.Sprintf("container %s interface %s", o.Container, o.IfName)
}

// Boot says when, in relation to the running system, an address was reserved.
type Boot uint8

const (
	BootForeign Boot = iota // by an implementation that does not record it
	BootCurrent             // since the system started
	BootEarlier             // before it started, so nothing uses the address any more
)

// String is "foreign", "current" or "earlier".
func (b Boot) String() string { return [...]string{"foreign", "current", "earlier"}[b] }

// Lease is one reserved address.
type Lease struct {
	Addr  netip.Addr
	Owner Owner
	Since time.Time // when it was reserved
	Boot  Boot
}

// String names the address, its owner and when it was reserved.
func (l Lease) String() string {
	return fmt.Sprintf("%s held by %s since %s", l.Addr, l.Owner, l.Since.UTC().Format(time.RFC3339))
}
