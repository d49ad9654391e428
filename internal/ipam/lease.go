package ipam

import (
	"fmt"
	"net/netip"
	"time"
)

// Owner is the holder of an address: one interface of one container.
type Owner struct {
	Container string
	IfName    string // empty in records of host-local before 0.7, which contain only the container
	// Network is the name of the network if several networks share the reservations, otherwise
	// empty.
	Network string
	// Namespace is the namespace of the pod if the address counts against its quota, otherwise
	// empty. It does not identify the owner: a search for the owner ignores it.
	Namespace string
}

// Is reports whether both are the same interface of a container in the same network.
func (o Owner) Is(other Owner) bool {
	o.Namespace, other.Namespace = "", ""
	return o == other
}

// String returns "container CONTAINER interface IFNAME".
func (o Owner) String() string {
	if o.IfName == "" {
		return "container " + o.Container
	}
	return fmt.Sprintf("container %s interface %s", o.Container, o.IfName)
}

// Boot classifies the time of a reservation relative to the boot of the system.
type Boot uint8

const (
	BootForeign        Boot = iota // by an implementation that does not record the boot
	BootForeignEarlier             // likewise, and before the last boot if the clock was right
	BootCurrent                    // since the last boot
	BootEarlier                    // before the last boot, so nothing uses the address
)

// String returns "foreign", "foreign, earlier", "current" or "earlier".
func (b Boot) String() string {
	return [...]string{"foreign", "foreign, earlier", "current", "earlier"}[b]
}

// Lease is one reserved address.
type Lease struct {
	Addr  netip.Addr
	Owner Owner         // the zero Owner if it is not known
	Since time.Time     // the time of the reservation
	Age   time.Duration // the age of the reservation when it was read
	Boot  Boot
}

// String returns the address, its holder, the age and the time of the reservation.
func (l Lease) String() string {
	if l.Owner == (Owner{}) {
		return l.Addr.String() + " held by an unknown owner"
	}
	earlier := ""
	if l.Boot == BootEarlier {
		earlier = " (reserved before the last boot)"
	}
	age := ""
	if l.Age >= time.Second {
		age = fmt.Sprintf(" for %s%s,", FormatAge(l.Age), earlier)
	}
	return fmt.Sprintf("%s held by %s%s since %s", l.Addr, l.Owner, age, l.Since.UTC().Format(time.RFC3339))
}
