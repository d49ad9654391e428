package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// AddressRules defines a rule set of a plugin outside of this repository: a set of addresses for
// each family, and a base chain with one rule for each set.
type AddressRules struct {
	Name     string // 1 to 20 lower-case letters, digits and '-'; unique on the host
	Hook     string // "prerouting", "input", "forward", "output" or "postrouting"
	Priority int32  // of the chain
	Match    string // "source" or "destination": the address of the packet to look up
	Action   string // "accept", "drop", "mark", or "masquerade" at the hook postrouting
	Mark     uint32 // the value that "mark" sets
}

// AddressRulesPrefix is the prefix of the sets and chains of [AddressRules]; no other rule set uses
// it.
const AddressRulesPrefix = "x-"

const (
	actionMark = "mark"
	actionMasq = "masquerade"

	// priorityConntrack is NF_IP_PRI_CONNTRACK; chains of type nat need a higher priority.
	priorityConntrack = -200
)

var addressHooks = map[string]uint32{
	"prerouting":  unix.NF_INET_PRE_ROUTING,
	"input":       unix.NF_INET_LOCAL_IN,
	"forward":     unix.NF_INET_FORWARD,
	"output":      unix.NF_INET_LOCAL_OUT,
	"postrouting": unix.NF_INET_POST_ROUTING,
}

// RuleSet returns the rule set. Requests, and calls about the same elements, need the same pointer.
// Within a network an address has one owner: a request of another owner causes a [ConflictError]. A
// changed definition replaces the chain and keeps the elements.
func (a AddressRules) RuleSet() (*RuleSet, error) {
	if err := a.check(); err != nil {
		return nil, fmt.Errorf("rule set %q: %w", a.Name, err)
	}
	rs := &RuleSet{name: AddressRulesPrefix + a.Name, skeleton: a.skeleton}
	rs.resolve = func(have *state, requests []Request, i int) ([]Element, error) {
		return requests[i].Elements, a.conflict(rs, have, requests, i)
	}
	return rs, nil
}

func (a AddressRules) check() error {
	odd := strings.ContainsFunc(a.Name, func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
	})
	if odd || a.Name == "" || len(a.Name) > 20 {
		return errors.New("the name must be 1 to 20 lower-case letters, digits and '-'")
	}
	if _, ok := addressHooks[a.Hook]; !ok {
		return fmt.Errorf("unknown hook %q", a.Hook)
	}
	if a.Match != "source" && a.Match != "destination" {
		return fmt.Errorf("unknown match %q", a.Match)
	}
	return a.checkAction()
}

func (a AddressRules) checkAction() error {
	if a.Mark != 0 && a.Action != actionMark {
		return fmt.Errorf("action %q sets no mark", a.Action)
	}
	switch a.Action {
	case "accept", "drop", actionMark:
		return nil
	case actionMasq:
		if a.Hook != "postrouting" {
			return fmt.Errorf("action %q needs the hook postrouting", a.Action)
		}
		if a.Priority <= priorityConntrack {
			return fmt.Errorf("action %q needs a priority above %d", a.Action, priorityConntrack)
		}
		return nil
	}
	return fmt.Errorf("unknown action %q", a.Action)
}

// Addresses returns the elements for addresses in a rule set of [AddressRules.RuleSet].
func Addresses(rs *RuleSet, addrs ...netip.Addr) (list []Element, err error) {
	name := strings.TrimPrefix(rs.name, AddressRulesPrefix)
	for _, a := range addrs {
		if !a.IsValid() || a.Zone() != "" {
			return nil, fmt.Errorf("rule set %s: %q is not an address without a zone", name, a)
		}
		a = a.Unmap()
		list = append(list, keyElement(rs, protocolOf(a).external(name), a.AsSlice()))
	}
	return list, nil
}

// external returns the set of the addresses of a family in a rule set of [AddressRules].
func (p protocol) external(name string) *set { return p.addrSet(AddressRulesPrefix + name + "-") }

func (a AddressRules) skeleton() skeleton {
	ch := chain{Chain: nftmsg.Chain{
		Table: table, Name: AddressRulesPrefix + a.Name, Type: nftmsg.ChainFilter,
		Hook: addressHooks[a.Hook], Priority: a.Priority,
	}}
	if a.Action == actionMasq {
		ch.Type = nftmsg.ChainNAT
	}
	s := skeleton{version: a.version(), table: table, replace: true}
	for _, p := range families() {
		set := p.external(a.Name)
		field := p.saddr
		if a.Match == "destination" {
			field = p.daddr
		}
		ch.add(append(p.rule(field, set.has(field.Register)), a.action()...))
		s.sets = append(s.sets, set)
	}
	s.chains = []chain{ch}
	return s
}

func (a AddressRules) version() string {
	v := fmt.Sprintf("rules 1: %s %d %s %s", a.Hook, a.Priority, a.Match, a.Action)
	if a.Action == actionMark {
		v += fmt.Sprintf(" %#x", a.Mark)
	}
	return v
}

func (a AddressRules) action() []nftmsg.Expr {
	switch a.Action {
	case "accept":
		return []nftmsg.Expr{verdict(nftmsg.Accept)}
	case actionMark:
		value := binary.NativeEndian.AppendUint32(nil, a.Mark)
		return []nftmsg.Expr{
			nftmsg.Immediate{Register: unix.NFT_REG_1, Value: value},
			nftmsg.SetMeta{Key: unix.NFT_META_MARK, Register: unix.NFT_REG_1},
		}
	case actionMasq:
		return []nftmsg.Expr{nftmsg.Masq{}}
	}
	return []nftmsg.Expr{verdict(nftmsg.Drop)}
}

// conflict returns an error if another owner holds an address of requests[i], or an earlier request
// of another owner contains it.
func (a AddressRules) conflict(rs *RuleSet, have *state, requests []Request, i int) error {
	owners := map[netip.Addr]string{}
	for _, r := range requests[:i] {
		for _, e := range r.Elements {
			if e.ruleSet == rs {
				owners[address(e.raw.Key)] = r.Owner
			}
		}
	}
	for _, e := range requests[i].Elements {
		if e.ruleSet != rs {
			continue
		}
		addr := address(e.raw.Key)
		for _, h := range a.holders(have, e.raw.Key, owners[addr]) {
			if h != "" && h != requests[i].Owner && requests[i].replaces(h) {
				what := fmt.Sprintf("address %s in rule set %s", addr, a.Name)
				return &ConflictError{What: what, Holder: h, To: addr}
			}
		}
	}
	return nil
}

// holders returns the owners of an address: earlier, or if that is empty the present owner, and the
// owners that wait for the address.
func (a AddressRules) holders(have *state, key []byte, earlier string) []string {
	set := protocolOf(address(key)).external(a.Name)
	list := []string{earlier}
	x := have.lookup(set, key)
	if x == nil {
		return list
	}
	if earlier == "" {
		list[0] = x.Comment
	}
	for _, x := range have.elements(set.waiting()) {
		if set.subjectOf(x) == string(key) {
			list = append(list, x.Comment)
		}
	}
	return list
}

// addressElements returns the elements of all rule sets of [AddressRules] in the namespace, by the
// name of the rule set. It does not need their definitions.
func (c *Conn) addressElements() (map[string][]Held, error) {
	all := map[string][]Held{}
	names, err := c.messages.Sets(table)
	if errors.Is(err, unix.ENOENT) { // no table
		return all, nil
	}
	if err != nil {
		return nil, fmt.Errorf("nft sets: %w", explain(err, lackingQuestion))
	}
	for _, name := range names {
		for _, p := range families() {
			shared, waiting := strings.CutSuffix(name, waitingSuffix)
			ruleSet, ok := strings.CutSuffix(shared, "-"+p.suffix)
			if !ok || !strings.HasPrefix(ruleSet, AddressRulesPrefix) {
				continue
			}
			set := p.external(strings.TrimPrefix(ruleSet, AddressRulesPrefix))
			if waiting {
				set = set.waiting()
			}
			found, err := c.contents(set)
			if err != nil {
				return nil, err
			}
			for _, x := range found.elements {
				all[ruleSet] = append(all[ruleSet], set.held(x))
			}
		}
	}
	return all, nil
}
