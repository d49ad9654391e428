package nft

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Publishing leads what comes in for ports of the host to containers. Of several mappings of a port that exclude each other
// only one owner can have one: the others are refused with a [ConflictError].
var Publishing = &RuleSet{name: "host ports", skeleton: publishSkeleton, resolve: resolvePorts}

// Mapping leads ports of the host to a container.
type Mapping struct {
	Protocol    byte       // IPPROTO_TCP, _UDP or _SCTP
	Host        netip.Addr // the host's address; not valid: any of its family
	First, Last uint16     // the host's ports
	To          netip.AddrPort
}

// Publication is what an owner wants to be published.
type Publication struct {
	Mappings []Mapping // to the port of To leads First, to the one behind it the next, and so on

	// Hairpins say whose connections to an address of the container come to it from an address of the host: from where it
	// could not answer otherwise, because it is in the same network, or because it is a loopback address.
	Hairpins []Hairpin

	// Kin says by its tag whose mapping of the same ports will do, because it leads to the same container through another
	// network. Who comes first has them, until it is gone; then the second has them. A third gets nothing until it is put
	// again. It says nothing where there are conditions. nil: nobody's.
	Kin func(tag string) bool

	// When are the conditions under which the mappings hold. The zero value: always.
	When4, When6 Condition
}

// Hairpin is an address of a container and a network of clients.
type Hairpin struct {
	To   netip.Addr
	From netip.Prefix
}

// String says what is mapped: tcp 192.0.2.1:8080 to 10.1.2.3:80.
func (m Mapping) String() string {
	host, last := "*", ""
	if m.Host.IsValid() {
		host = m.Host.String()
		if m.Host.Is6() {
			host = "[" + host + "]"
		}
	}
	if m.Last != m.First {
		last = fmt.Sprintf("-%d", m.Last)
	}
	return fmt.Sprintf("%s %s:%d%s to %s%s", protocolName(m.Protocol), host, m.First, last, m.To, last)
}

// Overlaps reports whether a packet can be for both.
func (m Mapping) Overlaps(o Mapping) bool {
	return m.Protocol == o.Protocol && m.First <= o.Last && o.First <= m.Last && m.To.Addr().Is4() == o.To.Addr().Is4() &&
		(m.Host == o.Host || !m.Host.IsValid() || !o.Host.IsValid())
}

// samePorts reports whether both lead the same ports of the host to the same ports of a container.
func (m Mapping) samePorts(o Mapping) bool {
	o.To = netip.AddrPortFrom(m.To.Addr(), o.To.Port())
	return m == o
}

func protocolName(p byte) string {
	switch p {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_SCTP:
		return "sctp"
	}
	return fmt.Sprintf("protocol %d", p)
}

// Publish returns the entries of an owner, by its tag. Consecutive ports that keep their number are one entry.
func Publish(tag string, p Publication) ([]Element, error) {
	if len(p.Mappings) == 0 {
		return nil, nil
	}
	var entries []Element
	for _, m := range p.Mappings {
		if m.First == 0 || m.Last < m.First || m.To.Port() == 0 || int(m.To.Port())+int(m.Last-m.First) > 0xffff || !m.To.IsValid() ||
			m.Host.IsValid() && m.Host.Is4() != m.To.Addr().Is4() {
			return nil, fmt.Errorf("mapping %s: not of ports of one family", m)
		}
	}
	for _, m := range merged(p.Mappings) {
		e := portsOf(m.To.Addr()).mapping(m)
		if p.When4.always() && p.When6.always() {
			e.shares = p.Kin
		}
		entries = append(entries, e)
	}
	for _, m := range spans(p.Mappings) {
		when := p.When4
		if m.To.Addr().Is6() {
			when = p.When6
		}
		if !when.always() {
			entries = append(entries, portsOf(m.To.Addr()).gate(m, gateOf(tag, when)))
		}
	}
	for _, h := range p.Hairpins {
		entries = append(entries, portsOf(h.To).hairpin(h))
	}
	return append(entries, Publisher(tag)), nil // last: of what is missing the first is told
}

// Distinct leaves one of mappings that say the same, and refuses those of which a packet could be for two.
func Distinct(list []Mapping) ([]Mapping, error) {
	out := make([]Mapping, 0, len(list))
	seen := mappings{single: map[portKey][]Mapping{}}
	for _, m := range list {
		if slices.Contains(seen.candidates(m), m) {
			continue
		}
		if o, ok := seen.overlapping(m); ok {
			return nil, fmt.Errorf("%s and %s exclude each other", o, m)
		}
		seen.add(m)
		out = append(out, m)
	}
	return out, nil
}

// Published returns what an entry of [Publishing] maps; ok is false for those that map nothing.
func Published(h Held) (m Mapping, ok bool) {
	for _, p := range []ports{ports4(), ports6()} {
		for _, set := range p.maps() {
			if set.Name == h.Set {
				return mappingOf(set, nftmsg.Element{Key: h.Key, KeyEnd: h.KeyEnd, Value: h.Value}), true
			}
		}
	}
	return Mapping{}, false
}

// merged joins mappings whose ports keep their number, and takes others apart.
func merged(list []Mapping) (out []Mapping) {
	keeps := func(m Mapping) bool { return m.First == m.To.Port() }
	for _, m := range list {
		if keeps(m) {
			out = appendSpan(out, m, keeps)
			continue
		}
		for i := range int(m.Last-m.First) + 1 {
			one := m
			one.First += uint16(i)
			one.Last, one.To = one.First, netip.AddrPortFrom(m.To.Addr(), m.To.Port()+uint16(i))
			out = append(out, one)
		}
	}
	return out
}

// spans joins mappings of ports of the host that follow one another, wherever in the container they lead.
func spans(list []Mapping) (out []Mapping) {
	for _, m := range list {
		out = appendSpan(out, m, func(Mapping) bool { return true })
	}
	return out
}

// appendSpan appends a mapping to a list, as part of the one before if its ports follow, both lead to the same address, and
// that may be joined.
func appendSpan(list []Mapping, m Mapping, joins func(before Mapping) bool) []Mapping {
	if n := len(list); n > 0 {
		before := &list[n-1]
		follows := before.Last < m.First && before.Last+1 == m.First
		if follows && before.Protocol == m.Protocol && before.Host == m.Host && before.To.Addr() == m.To.Addr() && joins(*before) {
			before.Last = m.Last
			return list
		}
	}
	return append(list, m)
}

// gateOf is the chain in which an owner's conditions are, before what is mapped.
func gateOf(tag string, when Condition) *chain {
	digest := sha256.Sum256([]byte(tag + "\x00" + when.text))
	return &chain{
		Chain: nftmsg.Chain{Table: table, Name: "hostports_" + hex.EncodeToString(digest[:8])},
		rules: when.then(forward()),
	}
}

const (
	addrLen4, addrLen6 = 4, 16
	wordLen            = 4 // keys are made of 4 bytes
)

// ports is what publishing has for one version of IP. What is wanted for a single port is in a hash table, so that it
// takes the same time however many there are.
type ports struct {
	protocol
	first    portMaps
	second   portMaps // looked at after the first: of kin of who has the ports there, who have them when those are gone
	gates    *set     // where conditions have to be met before
	hairpins *set
}

// portMaps say where ports lead.
type portMaps struct {
	single, singleAt *set // by port, and by address and port
	ranges, rangesAt *set // the same for several ports that keep their number
}

// all are in the same order for each.
func (m portMaps) all() []*set { return []*set{m.single, m.singleAt, m.ranges, m.rangesAt} }

func ports4() ports { return portsFor(ip4(), "4", nftmsg.TypeIPv4Addr) }
func ports6() ports { return portsFor(ip6(), "6", nftmsg.TypeIPv6Addr) }

func portsOf(a netip.Addr) ports {
	if a.Is4() {
		return ports4()
	}
	return ports6()
}

// maxSingle is how many single ports can be published for an address family; see maxAddrs for why there is a limit.
const maxSingle = 1 << 16

func portsFor(p protocol, suffix string, addr nftmsg.Type) ports {
	port := []nftmsg.Type{nftmsg.TypeInetProto, nftmsg.TypeInetService}
	at := append([]nftmsg.Type{addr}, port...)
	one, several := []nftmsg.Type{addr, nftmsg.TypeInetService}, []nftmsg.Type{addr}
	of := func(name string, size uint32, key, data []nftmsg.Type) *set {
		s := &set{Set: nftmsg.Set{Table: table, Name: name + suffix, Key: key, Data: data, Interval: size == 0, Size: size}}
		s.text = func(x nftmsg.Element) string { return mappingOf(s, x).String() }
		return s
	}
	maps := func(prefix string) portMaps {
		return portMaps{
			single: of(prefix+"dnat", maxSingle, port, one), singleAt: of(prefix+"dnatat", maxSingle, at, one),
			ranges: of(prefix+"ranges", 0, port, several), rangesAt: of(prefix+"rangesat", 0, at, several),
		}
	}
	ports := ports{
		protocol: p,
		first:    maps(""),
		second:   maps("second"),
		gates:    of("gates", 0, at, []nftmsg.Type{nftmsg.TypeVerdict}),
		hairpins: netSet("hairpin"+suffix, addr),
	}
	ports.gates.text = func(x nftmsg.Element) string { return fmt.Sprintf("conditions in chain %s", chainOf(x)) }
	ports.hairpins.text = func(x nftmsg.Element) string {
		half := len(x.Key) / 2
		return fmt.Sprintf("%s from %s", address(x.Key[:half]), network(x.Key[half:], lastKey(x)[half:]))
	}
	return ports
}

// maps are those that say where ports lead, in the order in which they are looked at.
func (p ports) maps() []*set { return append(p.first.all(), p.second.all()...) }

// isSecond reports whether a map is one of the second ones.
func (p ports) isSecond(name string) bool {
	return slices.ContainsFunc(p.second.all(), func(s *set) bool { return s.Name == name })
}

// inSecond is an entry of a first map in the second one.
func (p ports) inSecond(e Element) Element {
	for i, s := range p.first.all() {
		if s.Name == e.set {
			e.set = p.second.all()[i].Name
		}
	}
	return e
}

// publishers has an element for each owner: that it has nothing takes one question. The key is a digest of its tag, for
// which nftables has no type; this one is as long.
func publishers() *set {
	return &set{
		Set: nftmsg.Set{
			Table: table, Name: "publishers", Key: []nftmsg.Type{nftmsg.TypeIPv6Addr}, Size: maxSingle,
		},
		text: func(x nftmsg.Element) string { return "owner " + hex.EncodeToString(x.Key) },
	}
}

// Publisher returns the entry that is there if an owner has published anything.
func Publisher(tag string) Element {
	key := sha256.Sum256([]byte(tag))
	return newElement(Publishing, publishers(), nftmsg.Element{Key: key[:addrLen6]}, addrLen6)
}

func (p ports) mapping(m Mapping) Element {
	set, value := p.first.single, slices.Concat(m.To.Addr().AsSlice(), word(m.To.Port()))
	switch {
	case m.First != m.Last && m.Host.IsValid():
		set, value = p.first.rangesAt, m.To.Addr().AsSlice()
	case m.First != m.Last:
		set, value = p.first.ranges, m.To.Addr().AsSlice()
	case m.Host.IsValid():
		set = p.first.singleAt
	}
	x := nftmsg.Element{Key: keyOf(m.Host, m.Protocol, m.First), Value: value}
	if m.First != m.Last {
		x.KeyEnd = keyOf(m.Host, m.Protocol, m.Last)
	}
	return newElement(Publishing, set, x, len(x.Key))
}

func (p ports) gate(m Mapping, gate *chain) Element {
	hosts := netip.PrefixFrom(m.To.Addr(), 0)
	if m.Host.IsValid() {
		hosts = netip.PrefixFrom(m.Host, m.Host.BitLen())
	}
	x := nftmsg.Element{
		Key: keyOf(hosts.Masked().Addr(), m.Protocol, m.First), KeyEnd: keyOf(last(hosts.Masked()), m.Protocol, m.Last),
		Verdict: new(goTo(gate.Name)),
	}
	e := newElement(Publishing, p.gates, x, len(x.Key))
	e.chain = gate
	return e
}

func (p ports) hairpin(h Hairpin) Element {
	to, from := h.To.AsSlice(), h.From.Masked()
	x := nftmsg.Element{
		Key: slices.Concat(to, from.Addr().AsSlice()), KeyEnd: slices.Concat(to, last(from).AsSlice()),
	}
	return newElement(Publishing, p.hairpins, x, len(to))
}

// keyOf is a key of the maps, of those with an address if there is one.
func keyOf(host netip.Addr, protocol byte, port uint16) []byte {
	key := []byte{protocol, 0, 0, 0}
	if host.IsValid() {
		key = slices.Concat(host.AsSlice(), key)
	}
	return append(key, word(port)...)
}

func word(port uint16) []byte { return append(binary.BigEndian.AppendUint16(nil, port), 0, 0) }

// mappingOf reads an element of a map.
func mappingOf(s *set, x nftmsg.Element) Mapping {
	var m Mapping
	n := len(x.Key) - 2*wordLen
	if n > 0 {
		m.Host = address(x.Key[:n])
	}
	m.Protocol = x.Key[n]
	m.First = binary.BigEndian.Uint16(x.Key[n+wordLen:])
	m.Last = binary.BigEndian.Uint16(lastKey(x)[n+wordLen:])
	to, port := x.Value, m.First
	if !s.Interval {
		to, port = x.Value[:len(x.Value)-wordLen], binary.BigEndian.Uint16(x.Value[len(x.Value)-wordLen:])
	}
	m.To = netip.AddrPortFrom(address(to), port)
	return m
}
