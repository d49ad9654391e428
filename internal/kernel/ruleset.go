package kernel

import (
	"errors"
	"net"
	"net/netip"

	"github.com/tenon-cni/tenon/internal/nft"
)

// The rule sets. Package nft documents each of them.
var (
	Masquerading  = nft.Masquerading
	Dropping      = nft.Dropping
	Publishing    = nft.Publishing
	Guarding      = nft.Guarding
	Filtering     = nft.Filtering
	PortIsolation = nft.PortIsolation
)

// OwnedRuleSets returns the rule sets with elements of attachments.
func OwnedRuleSets() []*RuleSet {
	return []*RuleSet{Masquerading, Dropping, Publishing, Guarding, Filtering, PortIsolation}
}

// Types that describe elements of the rule sets.
type (
	PortMapping   = nft.Mapping     // of Publishing
	Publication   = nft.Publication // of Publishing
	Hairpin       = nft.Hairpin     // of Publishing
	PortCondition = nft.Condition   // of Publishing
	Isolation     = nft.Isolation   // of Filtering and PortIsolation
)

// Publish returns the elements of [Publishing] for an owner. The last element is the one of
// [Publisher].
func Publish(tag string, p Publication) ([]Element, error) { return nft.Publish(tag, p) }

// Publisher returns the element that exists if an owner has published any port.
func Publisher(tag string) Element { return nft.Publisher(tag) }

// Published returns the mapping of an element of [Publishing]; ok is false if it has none.
func Published(h Held) (m PortMapping, ok bool) { return nft.Published(h) }

// DistinctMappings removes duplicates. It returns an error if a packet could match two different
// mappings.
func DistinctMappings(list []PortMapping) ([]PortMapping, error) { return nft.Distinct(list) }

// ParsePortCondition parses a condition on packets of a family: see [nft.ParseCondition].
func ParsePortCondition(f Family, words []string) (PortCondition, error) {
	return nft.ParseCondition(tableFamily(f), words)
}

// AddressRules defines a rule set of a plugin outside of this repository.
type AddressRules = nft.AddressRules

// AddressRulesPrefix begins the names of their rule sets in a [Ruleset].
const AddressRulesPrefix = nft.AddressRulesPrefix

// Addresses returns the elements for addresses in a rule set of [AddressRules.RuleSet].
func Addresses(rs *RuleSet, addrs ...netip.Addr) ([]Element, error) {
	return nft.Addresses(rs, addrs...)
}

// Admit returns the elements of [Filtering] that accept packets from addresses and replies to them.
func Admit(addrs ...netip.Addr) []Element { return nft.Admit(addrs...) }

// Guarded reports whether [Rules.Guard] guards a port.
func (s Rules) Guarded(tag string, port Link, mac net.HardwareAddr) (bool, error) {
	elements, err := nft.Guard(port.Name, mac)
	if err != nil {
		return false, err
	}
	missing, err := s.Missing(tag, elements)
	return err == nil && len(missing) == 0, err
}

// Unguard removes the guard of a port, which need not exist, if its owner matches. The error is nil
// if the kernel lacks nftables. Rollback does not restore the guard.
func (s Rules) Unguard(port string, match func(tag string) bool) error {
	_, err := s.RemoveIf(nft.GuardedPort(port), Guarding, match)
	return UnlessNoNFT(err)
}

// Release removes the elements of several rule sets with a matching owner. It continues past errors
// and returns them joined, but none if the kernel lacks nftables. Rollback does not restore the
// elements.
func (s Rules) Release(match func(tag string) bool, ruleSets ...*RuleSet) error {
	var errs []error
	for _, rs := range ruleSets {
		_, err := s.Remove(rs, match)
		errs = append(errs, UnlessNoNFT(err))
	}
	return errors.Join(errs...)
}
