package host

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
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
		for i := range elements {
			e := &elements[i]
			list = append(list, object{kind: KindElement,
				name: name + " { " + keyText(&s, e) + " }", label: e.Comment,
				properties: []property{{"", valueText(&s, e)}, {"comment", e.Comment}}})
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

// keyText writes the key of an element.
func keyText(s *nftmsg.ListedSet, e *nftmsg.Element) string {
	if len(e.Key) == 0 {
		return "*"
	}
	from := dataTexts(s.KeyType, e.Key)
	if len(e.KeyEnd) == 0 {
		return strings.Join(from, " . ")
	}
	to := dataTexts(s.KeyType, e.KeyEnd)
	for i := range min(len(from), len(to)) {
		if from[i] != to[i] {
			from[i] += "-" + to[i]
		}
	}
	return strings.Join(from, " . ")
}

func valueText(s *nftmsg.ListedSet, e *nftmsg.Element) string {
	switch {
	case e.Verdict != nil:
		return fmt.Sprintf("verdict %v", *e.Verdict)
	case e.Value != nil:
		return "value " + dataText(s.DataType, e.Value)
	}
	return ""
}

func dataText(of uint32, data []byte) string { return strings.Join(dataTexts(of, data), " . ") }

// dataTexts writes data of a type as nft(8) numbers it, which can be several concatenated.
func dataTexts(of uint32, data []byte) (words []string) {
	const bits, mask = 6, 1<<6 - 1
	var types []nftmsg.Type
	for t := of; t != 0; t >>= bits {
		types = append([]nftmsg.Type{nftmsg.Type(t & mask)}, types...)
	}
	if len(types) < 2 {
		return []string{valueOf(of, data)}
	}
	for _, t := range types {
		size := map[nftmsg.Type]int{nftmsg.TypeIPv4Addr: 4, nftmsg.TypeIPv6Addr: 16, nftmsg.TypeEtherAddr: 6,
			nftmsg.TypeInetProto: 1, nftmsg.TypeInetService: 2, nftmsg.TypeIfName: 16}[t]
		if size == 0 || size > len(data) {
			return []string{fmt.Sprintf("%x", data)}
		}
		words = append(words, valueOf(uint32(t), data[:size]))
		data = data[min(netlink.Align(size), len(data)):]
	}
	return words
}

func valueOf(of uint32, data []byte) string {
	switch t := nftmsg.Type(of); {
	case t == nftmsg.TypeIPv4Addr || t == nftmsg.TypeIPv6Addr:
		if a, ok := netip.AddrFromSlice(data); ok {
			return a.String()
		}
	case t == nftmsg.TypeEtherAddr && len(data) >= 6:
		return net.HardwareAddr(data[:6]).String()
	case t == nftmsg.TypeInetService && len(data) >= 2:
		return fmt.Sprint(int(data[0])<<8 | int(data[1]))
	case t == nftmsg.TypeInetProto && len(data) >= 1:
		switch data[0] {
		case unix.IPPROTO_TCP:
			return "tcp"
		case unix.IPPROTO_UDP:
			return "udp"
		case unix.IPPROTO_SCTP:
			return "sctp"
		}
		return fmt.Sprint(data[0])
	case t == nftmsg.TypeIfName:
		return netlink.Text(data)
	}
	return fmt.Sprintf("%x", data)
}
