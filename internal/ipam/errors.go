package ipam

import (
	"fmt"
	"net/netip"
	"strings"
)

// ExhaustedError reports that a range set has no free address.
type ExhaustedError struct {
	Set    RangeSet
	Used   uint64  // number of usable addresses that are reserved
	Oldest []Lease // the oldest leases, oldest first
}

func (e *ExhaustedError) Error() string {
	return "no IP addresses available in range set: " + e.Set.String()
}

// Details returns the use of the addresses in the set, and the holders of the oldest leases.
func (e *ExhaustedError) Details() string {
	var gateways []string
	for _, r := range e.Set {
		text := "gateway " + r.Gateway.String()
		if !r.Contains(r.Gateway) {
			text += " is outside"
		}
		gateways = append(gateways, text)
	}
	size, capacity := e.Set.Size(), e.Set.Capacity()
	text := fmt.Sprintf("%d of %d addresses are in use, %d reserved (%s)",
		e.Used, size, size-capacity, strings.Join(gateways, ", "))
	if len(e.Oldest) > 0 {
		text += "; oldest: " + join(e.Oldest, "; ")
	}
	return text
}

// InUseError reports that another owner holds a requested address. A store returns it without Set.
type InUseError struct {
	Set    RangeSet // the set of the request
	Holder Lease
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("requested IP address %s is not available in range set %s", e.Holder.Addr,
		e.Set)
}

// Details returns the holder, the age of the lease, and how to free the address.
func (e *InUseError) Details() string {
	return e.Holder.String() + "; detach the holder, or run GC if it no longer exists"
}

// GatewayError reports that a requested address is the gateway of its range.
type GatewayError struct{ Addr netip.Addr }

func (e *GatewayError) Error() string {
	return fmt.Sprintf("requested ip %s is subnet's gateway", e.Addr)
}

// DuplicateError reports that the owner already holds an address of the set. That address stays
// reserved.
type DuplicateError struct {
	Owner Owner
	Held  Lease // the first lease of the owner
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("%s has been allocated to %s, duplicate allocation is not allowed",
		e.Held.Addr, e.Owner.Container)
}

// Details returns the lease and a hint.
func (e *DuplicateError) Details() string {
	return fmt.Sprintf("%v; run DEL for %s before another ADD", e.Held, e.Owner)
}

// LeftoverError reports requested addresses that lie in no set, or in a set that provides another
// requested address.
type LeftoverError struct{ Addrs []netip.Addr }

func (e *LeftoverError) Error() string {
	return "failed to allocate all requested IPs: " + join(e.Addrs, " ")
}
