package ipam

import (
	"fmt"
	"net/netip"
	"strings"
)

// ExhaustedError says that no address of a range set is free.
type ExhaustedError struct {
	Set    RangeSet
	Used   uint64  // how many of the addresses that may be handed out are taken
	Oldest []Lease // those taken for the longest time, oldest first
}

func (e *ExhaustedError) Error() string {
	return "no IP addresses available in range set: " + e.Set.String()
}

// Details says what the addresses of the set are used for, and who has held some for the longest time.
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
	text := fmt.Sprintf("of %d addresses %d are used and %d reserved (%s)",
		size, e.Used, size-capacity, strings.Join(gateways, ", "))
	if len(e.Oldest) > 0 {
		text += "; oldest: " + join(e.Oldest, "; ")
	}
	return text
}

// InUseError reports that another owner holds a requested address. A store returns it without Set.
type InUseError struct {
	Set    RangeSet // where the address was requested from
	Holder Lease
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("requested IP address %s is not available in range set %s", e.Holder.Addr, e.Set)
}

// Details says since when the address has been held, and how it gets free.
func (e *InUseError) Details() string {
	return e.Holder.String() + "; DEL of the holder frees it, or GC if the holder is gone"
}

// GatewayError says that a requested address is the gateway of its range.
type GatewayError struct{ Addr netip.Addr }

func (e *GatewayError) Error() string {
	return fmt.Sprintf("requested ip %s is subnet's gateway", e.Addr)
}

// DuplicateError says that the owner already holds an address of the set. That address stays reserved.
type DuplicateError struct {
	Owner Owner
	Held  Lease // the first it holds
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("%s has been allocated to %s, duplicate allocation is not allowed", e.Held.Addr, e.Owner.Container)
}

// Details says since when the owner has held the address, and what helps.
func (e *DuplicateError) Details() string {
	return fmt.Sprintf("%v; DEL %s before ADD", e.Held, e.Owner)
}

// LeftoverError says that requested addresses lie in no set, or in one from which another requested address is taken.
type LeftoverError struct{ Addrs []netip.Addr }

func (e *LeftoverError) Error() string {
	return "failed to allocate all requested IPs: " + join(e.Addrs, " ")
}
