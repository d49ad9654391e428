package linux

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

// RuleSet is a rule set of nftables with one purpose, in the table inet tenon of the host: a set of
// addresses for each family, and a base chain with one rule for each set, such as "ip saddr
// @x-quarantine-4 drop" in the chain x-quarantine. Within a network each address has one owner,
// [Session.Tag]. Containers of several networks can have the same address, and the rule applies to
// all of them until the last one releases it. Give a RuleSet to [DefineChained]; a [Ruler] adds
// addresses to it.
//
// The first ADD creates it. When a new version of the plugin defines it differently, the next ADD
// replaces the chain and keeps the addresses. Until then the old definition is in force. A set
// holds up to 32768 addresses.
type RuleSet struct {
	// Name is 1 to 20 bytes: lower-case letters, digits and '-'. Two plugins on a host that use
	// one name share the rule set, so begin it with the name of the plugin.
	Name string

	Hook Hook // required

	// Priority is the position among the chains of the hook: a chain with a lower one sees a packet
	// first. Filters usually have 0, and masquerading has 100. For [Masquerade] the priority is
	// above -200.
	Priority int32

	Match  Match  // required
	Action Action // required
	Mark   uint32 // the value that [SetMark] sets, 0 for other actions
}

// Hook is the point where a chain sees packets; see nft(8).
type Hook string

// The hooks.
const (
	Prerouting  Hook = "prerouting"  // all packets that the host receives
	Input       Hook = "input"       // packets to the host
	Forward     Hook = "forward"     // packets that the host forwards
	Output      Hook = "output"      // packets from the host
	Postrouting Hook = "postrouting" // all packets that the host sends
)

// Match selects the address of a packet that a set is searched for.
type Match string

// The matches.
const (
	Source      Match = "source"
	Destination Match = "destination"
)

// Action applies to packets with an address in a set. All other packets pass the chain.
type Action string

// The actions.
const (
	Accept     Action = "accept" // in this chain; later chains can drop the packet
	Drop       Action = "drop"
	SetMark    Action = "mark"       // sets the mark of the packet, all 32 bits
	Masquerade Action = "masquerade" // only with [Postrouting]
)

// Rule is an address in a [RuleSet].
type Rule struct {
	RuleSet string // its name

	// Address is an address of the container, as [Session.PrevIPs] has them, or one that it alone
	// answers. IPv4 in IPv6 counts as IPv4; it has no zone.
	Address netip.Addr
}

// Ruler is a [Decorator] with addresses in the rule sets that were given to [DefineChained]. The
// flow applies them in one transaction before Apply, and compares them before Verify. Before
// Remove, DEL and GC remove all addresses of attachments that are gone.
//
// If another attachment holds one of the addresses, the error of ADD names it. But ADD takes the
// address over if the container of that attachment no longer exists: a link with its tag as alias
// proves that it does; without one, the address is free if Prev has it or if nothing answers there.
// ADD also fails if the kernel lacks nftables.
type Ruler interface {
	// Rules returns the addresses of the attachment, each once. ADD and CHECK call it. The result
	// depends on the configuration and Prev only.
	Rules(s *Session) ([]Rule, error)
}

// declare returns rule sets by their names.
func declare(ruleSets []RuleSet) map[string]*kernel.RuleSet {
	declared := map[string]*kernel.RuleSet{}
	for _, r := range ruleSets {
		rs, err := kernel.AddressRules{
			Name: r.Name, Hook: string(r.Hook), Priority: r.Priority,
			Match: string(r.Match), Action: string(r.Action), Mark: r.Mark,
		}.RuleSet()
		if err != nil {
			panic("linux: " + err.Error())
		}
		if declared[r.Name] != nil {
			panic(fmt.Sprintf("linux: two rule sets %q", r.Name))
		}
		declared[r.Name] = rs
	}
	return declared
}

// ruler is a [Ruler] in the terms of the flow.
type ruler struct {
	decorator
	rules    Ruler
	declared map[string]*kernel.RuleSet
}

func (r ruler) Rules(s *chained.Session) (list []kernel.Element, err error) {
	rules, err := r.rules.Rules(newSession(s))
	if err != nil {
		return nil, err
	}
	for _, rule := range rules {
		rs := r.declared[rule.RuleSet]
		if rs == nil {
			return nil, fmt.Errorf("rule set %q is not declared", rule.RuleSet)
		}
		elements, err := kernel.Addresses(rs, rule.Address)
		if err != nil {
			return nil, err
		}
		list = append(list, elements...)
	}
	return list, nil
}

// The rest of the flow concerns plugins that have an upstream counterpart or other backends.

var errNoUpstream = errors.New("the plugin has no upstream counterpart")

func (ruler) VerifyReference(context.Context, *chained.Session) error { return errNoUpstream }

func (ruler) Released(context.Context, *chained.Session, []kernel.Held) error { return nil }

func (ruler) Restore(context.Context, *chained.Session, session.Step) ([]string, error) {
	return nil, nil
}

func (ruler) Move(context.Context, *chained.Session, bool) ([]session.Move, error) {
	return nil, nil
}
