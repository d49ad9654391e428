package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Condition is a condition on packets. The zero value is always met.
type Condition struct {
	text  string
	rules [][]nftmsg.Expr // alternatives
}

func (c Condition) always() bool { return c.text == "" }

// then returns the rules that execute do if the condition is met.
func (c Condition) then(do nftmsg.Expr) [][]nftmsg.Expr {
	rules := make([][]nftmsg.Expr, len(c.rules))
	for i, r := range c.rules {
		rules[i] = append(slices.Clone(r), do)
	}
	return rules
}

// maxAlternatives limits the number of rules to which the sets of a condition expand.
const maxAlternatives = 1024

// ParseCondition parses a condition on packets of one version of IP in the syntax of nft(8): one or
// more of
//
//	ip saddr, ip daddr, ip6 saddr, ip6 daddr   address, network or range
//	iifname, oifname                           name, or the beginning of one with a *
//	tcp, udp, sctp, th   sport, dport          port or range
//	meta mark, mark                            number or range
//	meta l4proto                               name or number
//
// each with one value or a set in braces, and an optional == or != before it. The error names the
// word that it cannot parse.
func ParseCondition(family Family, words []string) (Condition, error) {
	p := parser{family: family, words: spread(words)}
	c := Condition{text: strings.Join(p.words, " "),
		rules: [][]nftmsg.Expr{protocolFor(family).rule()}}
	for len(p.words) > 0 {
		alternatives, err := p.match()
		if err != nil {
			return Condition{}, err
		}
		if len(c.rules)*len(alternatives) > maxAlternatives {
			return Condition{}, fmt.Errorf("the sets combine to more than %d alternatives",
				maxAlternatives)
		}
		var rules [][]nftmsg.Expr
		for _, r := range c.rules {
			for _, a := range alternatives {
				rules = append(rules, slices.Concat(r, a))
			}
		}
		c.rules = rules
	}
	return c, nil
}

func protocolFor(f Family) protocol {
	if f == IPv6 {
		return ip6()
	}
	return ip4()
}

// spread splits words at braces, commas and operators.
func spread(words []string) []string {
	var out []string
	for _, w := range words {
		w = strings.NewReplacer(
			"{", " { ", "}", " } ", ",", " , ", "!=", " != ", "==", " == ",
		).Replace(w)
		out = append(out, strings.Fields(w)...)
	}
	return out
}

type parser struct {
	family Family
	words  []string
}

// next consumes a word and returns it, "" at the end.
func (p *parser) next() string {
	if len(p.words) == 0 {
		return ""
	}
	w := p.words[0]
	p.words = p.words[1:]
	return w
}

// accept consumes the next word if it is one of words, and reports whether it was.
func (p *parser) accept(these ...string) bool {
	if len(p.words) == 0 || !slices.Contains(these, p.words[0]) {
		return false
	}
	p.next()
	return true
}

// subject is the field that a match compares.
type subject struct {
	load   []nftmsg.Expr
	native bool // in native byte order
	value  func(word string) (first, last []byte, err error)
}

// match parses one match and returns its alternatives.
func (p *parser) match() ([][]nftmsg.Expr, error) {
	s, err := p.subject()
	if err != nil {
		return nil, err
	}
	not := p.accept("!=")
	if !not {
		p.accept("==", "eq")
	}
	values, err := p.values()
	if err != nil {
		return nil, err
	}
	var all [][]nftmsg.Expr
	for _, v := range values {
		first, last, err := s.value(v)
		if err != nil {
			return nil, err
		}
		all = append(all, slices.Concat(s.load, compared(first, last, s.native, not)))
	}
	if not { // none of them
		return [][]nftmsg.Expr{slices.Concat(all...)}, nil
	}
	return all, nil
}

// values parses a value or a set of values.
func (p *parser) values() (values []string, err error) {
	if !p.accept("{") {
		if v := p.next(); v != "" {
			return []string{v}, nil
		}
		return nil, errors.New("value missing at the end")
	}
	for {
		v := p.next()
		if v == "}" || v == "," {
			return nil, fmt.Errorf("%q instead of a value", v)
		}
		values = append(values, v)
		switch end := p.next(); end {
		case "}":
			return values, nil
		case ",":
		case "":
			return nil, fmt.Errorf("%q is not closed", "{")
		default:
			return nil, fmt.Errorf("%q after a value of a set", end)
		}
	}
}

func compared(first, last []byte, native, not bool) []nftmsg.Expr {
	op := uint32(unix.NFT_CMP_EQ) // and NFT_RANGE_EQ
	if not {
		op = unix.NFT_CMP_NEQ
	}
	if slices.Equal(first, last) {
		return []nftmsg.Expr{nftmsg.Cmp{Op: op, Register: unix.NFT_REG_1, Data: first}}
	}
	var exprs []nftmsg.Expr
	if native { // a range compares bytes
		exprs = append(exprs, nftmsg.NetworkOrder{Register: unix.NFT_REG_1})
		first, last = bigEndian(first), bigEndian(last)
	}
	return append(exprs, nftmsg.Range{Op: op, Register: unix.NFT_REG_1, From: first, To: last})
}

func bigEndian(native []byte) []byte {
	return binary.BigEndian.AppendUint32(nil, binary.NativeEndian.Uint32(native))
}

// subject parses the field of a match.
func (p *parser) subject() (subject, error) {
	header, field := p.next(), ""
	switch header {
	case "iifname", "oifname", "mark", "l4proto":
		header, field = "meta", header
	case "meta", "tcp", "udp", "sctp", "th":
		field = p.next()
	case "ip", "ip6":
		if header != p.family.String() {
			return subject{}, fmt.Errorf("%q does not apply to %s", header, p.family)
		}
		field = p.next()
	default:
		return subject{}, fmt.Errorf("%q is not supported", header)
	}
	s, ok := metaSubject(field)
	switch header {
	case "ip", "ip6":
		s, ok = p.address(field)
	case "tcp", "udp", "sctp", "th":
		s, ok = portSubject(header, field)
	}
	if !ok {
		return subject{}, fmt.Errorf("%q is not supported", header+" "+field)
	}
	return s, nil
}

func metaSubject(field string) (s subject, ok bool) {
	load := func(key uint32) []nftmsg.Expr { return []nftmsg.Expr{meta(key)} }
	switch field {
	case "iifname":
		return subject{load(unix.NFT_META_IIFNAME), false, interfaceName}, true
	case "oifname":
		return subject{load(unix.NFT_META_OIFNAME), false, interfaceName}, true
	case "mark":
		return subject{load(unix.NFT_META_MARK), true, numbers(32)}, true
	case "l4proto":
		return subject{load(unix.NFT_META_L4PROTO), false, protocolValue}, true
	}
	return subject{}, false
}

func (p *parser) address(field string) (s subject, ok bool) {
	proto := protocolFor(p.family)
	load, ok := map[string]nftmsg.Payload{"saddr": proto.saddr, "daddr": proto.daddr}[field]
	value := func(word string) (first, last []byte, err error) {
		return addresses(word, p.family == IPv4)
	}
	return subject{[]nftmsg.Expr{into(unix.NFT_REG_1, load)}, false, value}, ok
}

// addresses parses an address, a network or a range.
func addresses(word string, is4 bool) (from, to []byte, err error) {
	first, second, ok := strings.Cut(word, "-")
	a, err := netip.ParseAddr(first)
	b := a
	if ok && err == nil {
		b, err = netip.ParseAddr(second)
	}
	if n, wrong := netip.ParsePrefix(word); wrong == nil {
		a, b, err = n.Masked().Addr(), last(n), nil
	}
	if err != nil || a.Is4() != is4 || b.Is4() != is4 || a.Zone() != "" || b.Less(a) {
		return nil, nil, fmt.Errorf("%q is not an address, network or range of the family", word)
	}
	return a.AsSlice(), b.AsSlice(), nil
}

func portSubject(protocol, field string) (s subject, ok bool) {
	offset, ok := map[string]uint32{"sport": 0, "dport": 2}[field]
	if number, _, err := protocolValue(protocol); err == nil { // except for th
		s.load = []nftmsg.Expr{meta(unix.NFT_META_L4PROTO), equals(number)}
	}
	s.load = append(s.load, nftmsg.Payload{
		Base: unix.NFT_PAYLOAD_TRANSPORT_HEADER, Offset: offset, Len: 2, Register: unix.NFT_REG_1,
	})
	s.value = numbers(16)
	return s, ok
}

// numbers parses a number or a range: of 16 bits in network order, or of 32 bits in native order.
func numbers(bits int) func(string) (first, last []byte, err error) {
	bytes := func(n uint64) []byte {
		if bits == 16 {
			return binary.BigEndian.AppendUint16(nil, uint16(n))
		}
		return binary.NativeEndian.AppendUint32(nil, uint32(n))
	}
	return func(word string) (first, last []byte, err error) {
		from, to, ok := strings.Cut(word, "-")
		if !ok {
			to = from
		}
		a, err := strconv.ParseUint(from, 0, bits)
		b, err2 := strconv.ParseUint(to, 0, bits)
		if err != nil || err2 != nil || a > b {
			return nil, nil, fmt.Errorf("%q is not a number or range", word)
		}
		return bytes(a), bytes(b), nil
	}
}

func protocolValue(word string) (first, last []byte, err error) {
	for _, p := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
		if protocolName(p) == word || strconv.Itoa(int(p)) == word {
			return []byte{p}, []byte{p}, nil
		}
	}
	return nil, nil, fmt.Errorf("%q is not tcp, udp or sctp", word)
}

// interfaceName parses the name of an interface, or the common beginning of several names.
func interfaceName(word string) (first, last []byte, err error) {
	word = strings.Trim(word, `"`)
	begin, wild := strings.CutSuffix(word, "*")
	if begin == "" || len(begin) >= unix.IFNAMSIZ {
		return nil, nil, fmt.Errorf("%q is not an interface name", word)
	}
	name := ifName(begin)
	if wild {
		name = name[:len(begin)]
	}
	return name, name, nil
}
