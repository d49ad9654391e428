package ipam

import (
	"fmt"
	"net/netip"
	"strings"
)

// ExhaustedError says that no address of a range set is free.
type ExhaustedError struct {
	Set      RangeSet
	Capacity uint64  // addresses that may be handed out
	Used     uint64  // how many of them are taken
	Oldest   []Lease // those taken for the longest time, oldest first
}

func (e *ExhaustedError) Error() string {
	return "no IP addresses available in range set: " + e.Set.String()
}

// Details says how full the set is and who has held addresses for the longest time.
func (e *ExhaustedError) Details() string {
	text := fmt.Sprintf("%d of %d addresses are taken", e.Used, e.Capacity)
	for i, l := range e.Oldest {
		separator := "; "
		if i == 0 {
			separator = "; oldest: "
		}
		text += separator + l.String()
	}
	return text
}

// TakenError says that somebody else holds a requested address. A store returns it without Set.
type TakenError struct {
	Set    RangeSet // where the address was requested from
	Holder Lease    // the zero Owner: not known
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("requested IP address %s is not available in range set %s", e.Holder.Addr, e.Set)
}

// Details says who holds the address and since when.
func (e *TakenError) Details() string {
	if e.Holder.Owner == (Owner{}) {
		return fmt.Sprintf("the holder of %s is not known", e.Holder.Addr)
	}
	return e.Holder.String()
}

// GatewayError says that a requested address is the gateway of its range.
type GatewayError struct{ Addr netip.Addr }

func (e *GatewayError) Error() string {
	return fmt.Sprintf("requested ip %s is subnet's gateway", e.Addr)
}

// DuplicateError says that the owner already holds an address of the set. That address stays reserved.
type DuplicateError struct {
	Addr  netip.Addr // the first it holds
	Owner Owner
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("%s has been allocated to %s, duplicate allocation is not allowed", e.Addr, e.Owner.Container)
}

// LeftoverError says that requested addresses lie in no set, or in one from which another requested address is taken.
type LeftoverError struct{ Addrs []netip.Addr }

func (e *LeftoverError) Error() string {
	texts := make([]string, len(e.Addrs))
	for i, a := range e.Addrs {
		texts[i] = a.String()
	}
	return "failed to allocate all requested IPs: " + strings.Join(texts, " ")
}
