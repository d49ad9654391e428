package cni

import (
	"math"
	"net/netip"
	"slices"
)

// Result is the result of an ADD: the success object of all versions of the specification in one
// type. It has no version itself; [Result.Encode] takes one.
type Result struct {
	Interfaces []Interface // all interfaces that the attachment created, including the host side
	IPs        []IP        // in the order in which they were assigned
	Routes     []Route     // routes of the container
	DNS        DNS         // for the caller; plugins do not use it
}

// Interface is one network interface of a result.
type Interface struct {
	Name       string
	MAC        string // MAC address as text; empty if the interface has none
	MTU        int    // bytes; 0 means unknown. Since 1.1.0
	Sandbox    string // path of the namespace (the value of CNI_NETNS); empty on the host side
	SocketPath string // absolute path of the socket that represents the interface. Since 1.1.0
	PciID      string // PCI address of the device behind the interface. Since 1.1.0
}

// IP is one address of a result.
type IP struct {
	Address   netip.Prefix  // address with prefix length; host bits are kept
	Gateway   netip.Addr    // default gateway of the network; zero means none
	Interface Optional[int] // index into Result.Interfaces
}

// Route is a route of a result or of an IPAM configuration. Its numbers are unsigned 32-bit
// integers.
type Route struct {
	Dst      netip.Prefix  // destination; host bits are kept
	GW       netip.Addr    // zero means none: a gateway of IPs may be used
	MTU      int           // bytes; 0 means none. Since 1.1.0
	AdvMSS   int           // bytes; 0 means none. Since 1.1.0
	Priority int           // lower values take precedence; 0 is the kernel's default. Since 1.1.0
	Table    Optional[int] // absent means the main table. Since 1.1.0
	Scope    Optional[int] // absent is 0, global; 253 is link, 254 host. Since 1.1.0
}

// DNS is the DNS configuration in a result or a network configuration.
type DNS struct {
	Nameservers []string `json:"nameservers,omitempty"` // addresses, in order of priority
	Domain      string   `json:"domain,omitempty"`      // local domain, for short names
	Search      []string `json:"search,omitempty"`      // search domains, in order of priority
	Options     []string `json:"options,omitempty"`     // resolver options
}

// IsZero reports whether d is empty.
func (d DNS) IsZero() bool {
	return len(d.Nameservers) == 0 && d.Domain == "" && len(d.Search) == 0 && len(d.Options) == 0
}

// Optional is a value that may be absent, for members for which absence and zero differ.
type Optional[T any] struct {
	Value T
	Set   bool
}

// Some returns an Optional that holds v.
func Some[T any](v T) Optional[T] { return Optional[T]{Value: v, Set: true} }

// Get returns the value and whether it is present.
func (o Optional[T]) Get() (T, bool) { return o.Value, o.Set }

// Clone returns a deep copy of r.
func (r *Result) Clone() *Result {
	c := *r
	c.Interfaces = slices.Clone(r.Interfaces)
	c.IPs = slices.Clone(r.IPs)
	c.Routes = slices.Clone(r.Routes)
	c.DNS.Nameservers = slices.Clone(r.DNS.Nameservers)
	c.DNS.Search = slices.Clone(r.DNS.Search)
	c.DNS.Options = slices.Clone(r.DNS.Options)
	return &c
}

// Sandboxed returns the index of the interface with this name and sandbox, which must not be empty.
// The last one takes precedence, because a chained plugin may list an interface again.
func (r *Result) Sandboxed(name, sandbox string) (index int, ok bool) {
	for i, x := range slices.Backward(r.Interfaces) {
		if x.Name == name && x.Sandbox == sandbox && sandbox != "" {
			return i, true
		}
	}
	return 0, false
}

// Validate checks the rules that all versions impose on a result: names, addresses and destinations
// are present, addresses have no zone, indexes are within Interfaces and numbers are in range. The
// code is [CodeInvalidConfig].
func (r *Result) Validate() error {
	for n, i := range r.Interfaces {
		if i.Name == "" {
			return Errorf(CodeInvalidConfig, "interfaces[%d] has no name", n)
		}
		if !unsigned32(i.MTU) {
			return Errorf(CodeInvalidConfig,
				"interfaces[%d]: mtu %d is not an unsigned 32-bit number", n, i.MTU)
		}
	}
	for n, ip := range r.IPs {
		if !ip.Address.IsValid() {
			return Errorf(CodeInvalidConfig, "ips[%d] has no address", n)
		}
		if ip.Gateway.Zone() != "" {
			return Errorf(CodeInvalidConfig, "ips[%d]: gateway %s has a zone", n, ip.Gateway)
		}
		if i, ok := ip.Interface.Get(); ok && (i < 0 || i >= len(r.Interfaces)) {
			return Errorf(CodeInvalidConfig, "ips[%d]: interface %d is not one of %d", n, i,
				len(r.Interfaces))
		}
	}
	for n, rt := range r.Routes {
		if err := rt.validate(); err != nil {
			return Errorf(CodeInvalidConfig, "routes[%d]: %w", n, err)
		}
	}
	return nil
}

func (r Route) validate() error {
	if !r.Dst.IsValid() {
		return Errorf(CodeInvalidConfig, "dst is missing")
	}
	if r.GW.Zone() != "" {
		return Errorf(CodeInvalidConfig, "gw %s has a zone", r.GW)
	}
	for _, n := range r.numbers() {
		if !unsigned32(n.value) {
			return Errorf(CodeInvalidConfig,
				"%s %d is not an unsigned 32-bit number", n.key, n.value)
		}
	}
	return nil
}

// number is a numeric member of a route.
type number struct {
	key   string
	value int
	set   bool
}

func (r Route) numbers() [5]number {
	return [...]number{
		{"mtu", r.MTU, r.MTU != 0},
		{"advmss", r.AdvMSS, r.AdvMSS != 0},
		{"priority", r.Priority, r.Priority != 0},
		{"table", r.Table.Value, r.Table.Set},
		{"scope", r.Scope.Value, r.Scope.Set},
	}
}

// clear makes the number with the key absent.
func (r *Route) clear(key string) {
	switch key {
	case "mtu":
		r.MTU = 0
	case "advmss":
		r.AdvMSS = 0
	case "priority":
		r.Priority = 0
	case "table":
		r.Table = Optional[int]{}
	case "scope":
		r.Scope = Optional[int]{}
	}
}

func unsigned32(n int) bool { return n >= 0 && uint64(n) <= math.MaxUint32 }
