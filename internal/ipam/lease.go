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
	BootForeign        Boot = iota // by an implementation that does not record it
	BootForeignEarlier             // by such a one, and if the clock was right, before the system started
	BootCurrent                    // since the system started
	BootEarlier                    // before it started, so nothing uses the address any more
)

// String is "foreign", "foreign, earlier", "current" or "earlier".
func (b Boot) String() string {
	return [...]string{"foreign", "foreign, earlier", "current", "earlier"}[b]
}

// Lease is one reserved address.
type Lease struct {
	Addr  netip.Addr
	Owner Owner         // the zero Owner: not known
	Since time.Time     // when it was reserved
	Age   time.Duration // how long before it was read that was
	Boot  Boot
}

// String names the address, its holder, and for how long and since when it has been reserved.
func (l Lease) String() string {
	if l.Owner == (Owner{}) {
		return l.Addr.String() + " held by somebody unknown"
	}
	earlier := ""
	if l.Boot == BootEarlier {
		earlier = " (from before the machine was started)"
	}
	return fmt.Sprintf("%s held by %s for %s%s, since %s",
		l.Addr, l.Owner, FormatAge(l.Age), earlier, l.Since.UTC().Format(time.RFC3339))
}
