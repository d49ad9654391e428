package host

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
	"github.com/tenon-cni/tenon/internal/nft/nfttext"
)

func (n *Namespace) rulesetObjects() (list []object) {
	r := n.Ruleset
	if r == nil {
		return nil
	}
	for _, t := range r.Tables {
		list = append(list, object{kind: KindTable, name: tableName(t.Table),
			properties: []property{{"dormant", on(t.Dormant)}}})
	}
	for _, c := range r.Chains {
		o := object{kind: KindChain, name: tableName(c.Table) + " " + c.Name}
		if c.Base {
			policy := "accept"
			if c.Drops {
				policy = "drop"
			}
			o.properties = []property{{"type", c.Type}, {"hook", fmt.Sprint(c.Hook)},
				{"priority", fmt.Sprint(c.Priority)}, {"policy", policy},
				{"devices", strings.Join(c.Devices, " ")}}
		}
		list = append(list, o)
	}
	for _, s := range r.Sets {
		if s.Flags&unix.NFT_SET_ANONYMOUS != 0 {
			continue // part of a rule
		}
		name := tableName(s.Table) + " " + s.Name
		list = append(list, object{kind: KindSet, name: name, properties: []property{
			{"flags", fmt.Sprintf("%#x", s.Flags)}, {"comment", s.Comment}}})
		elements := s.Elements
		if s.CatchAll != nil {
			elements = append(slices.Clone(elements), *s.CatchAll)
		}
		for _, e := range elements {
			list = append(list, object{kind: KindElement,
				name: name + " { " + nfttext.Key(&s, e) + " }", label: e.Comment,
				properties: []property{{"value", nfttext.Value(&s, e)}, {"comment", e.Comment}}})
		}
	}
	return append(list, ruleObjects(r)...)
}

func tableName(t nftmsg.Table) string { return t.Family.String() + " " + t.Name }

// ruleObjects identifies rules by their chain and expressions. A counter is no difference.
func ruleObjects(r *nftmsg.Ruleset) (list []object) {
	for _, x := range r.Rules {
		var identity strings.Builder
		var words []string
		for _, e := range x.Exprs {
			words = append(words, e.Name)
			if e.Name == "counter" || e.Name == "quota" || e.Name == "limit" {
				continue
			}
			fmt.Fprintf(&identity, "%s\x00%s\x00", e.Name, stable(e))
		}
		text := x.Comment
		if text == "" {
			text = strings.Join(words, " ")
		}
		list = append(list, object{kind: KindRule, name: tableName(x.Table) + " " + x.Chain + " " + text,
			identity: identity.String(), label: x.Comment})
	}
	return list
}

// stable returns the attributes of an expression without the name of an anonymous set, in which the
// kernel numbers these sets.
func stable(e nftmsg.Raw) []byte {
	const lookupSet = 1 // NFTA_LOOKUP_SET
	if e.Name == "lookup" && strings.HasPrefix(netlink.Text(netlink.Find(e.Data, lookupSet)), "__") {
		return nil
	}
	return e.Data
}
