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

// Publishing forwards ports of the host to containers. If a packet could match several mappings,
// only one owner can have one of them; the requests of other owners fail with a [ConflictError].
var Publishing = &RuleSet{name: "host ports", skeleton: publishSkeleton, resolve: resolvePorts}

// Mapping forwards ports of the host to a container.
type Mapping struct {
	Protocol    byte       // IPPROTO_TCP, _UDP or _SCTP
	Host        netip.Addr // the address of the host; invalid: any of the family of To
	First, Last uint16     // the ports of the host
	To          netip.AddrPort
}

// Publication holds the mappings of one owner.
type Publication struct {
	// Mappings forward First to the port of To, the port after it to the next, and so on.
	Mappings []Mapping

	// Hairpins are connections that get an address of the host as their source, because otherwise
	// the container could not answer: the client is in the same network or has a loopback address.
	Hairpins []Hairpin

	// Shares reports whether another owner's mapping of the same ports suffices, because it leads
	// to the same container through another network. The first owner holds the ports; when its
	// elements are removed, they pass to the second. A third owner gets them only when it is
	// applied again. Mappings with conditions are never shared. A nil Shares shares with no owner.
	Shares func(tag string) bool

	// When4 and When6 are the conditions of the mappings. The zero value is always met.
	When4, When6 Condition
}

// Hairpin is an address of a container and a network of clients.
type Hairpin struct {
	To   netip.Addr
	From netip.Prefix
}

// String returns the mapping in the form "tcp 192.0.2.1:8080 to 10.1.2.3:80".
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
	protocol := protocolName(m.Protocol)
	return fmt.Sprintf("%s %s:%d%s to %s%s", protocol, host, m.First, last, m.To, last)
}

// Overlaps reports whether a packet can match both mappings.
func (m Mapping) Overlaps(o Mapping) bool {
	return m.Protocol == o.Protocol && m.First <= o.Last && o.First <= m.Last &&
		m.To.Addr().Is4() == o.To.Addr().Is4() &&
		(m.Host == o.Host || !m.Host.IsValid() || !o.Host.IsValid())
}

// samePorts reports whether both mappings forward the same ports of the host to the same ports of a
// container.
func (m Mapping) samePorts(o Mapping) bool {
	o.To = netip.AddrPortFrom(m.To.Addr(), o.To.Port())
	return m == o
}

func protocolName(p byte) string {
	names := map[byte]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp",
		unix.IPPROTO_SCTP: "sctp"}
	if name, known := names[p]; known {
		return name
	}
	return fmt.Sprintf("protocol %d", p)
}

// valid reports whether the ports are in range and the addresses are of one family.
func (m Mapping) valid() bool {
	return m.First != 0 && m.Last >= m.First && m.To.Port() != 0 &&
		int(m.To.Port())+int(m.Last-m.First) <= 0xffff &&
		m.To.IsValid() && (!m.Host.IsValid() || m.Host.Is4() == m.To.Addr().Is4())
}

// Publish returns the elements of an owner. Consecutive ports that keep their number share an
// element.
func Publish(tag string, p Publication) ([]Element, error) {
	if len(p.Mappings) == 0 {
		return nil, nil
	}
	for _, m := range p.Mappings {
		if !m.valid() {
			return nil, fmt.Errorf("mapping %s: ports out of range, or addresses of two families",
				m)
		}
	}
	var list []Element
	for _, m := range merged(p.Mappings) {
		e := portsOf(m.To.Addr()).mapping(m)
		if p.When4.always() && p.When6.always() {
			e.shares = p.Shares
		}
		list = append(list, e)
	}
	for _, m := range spans(p.Mappings) {
		when := p.When4
		if m.To.Addr().Is6() {
			when = p.When6
		}
		if !when.always() {
			list = append(list, portsOf(m.To.Addr()).gate(m, gateOf(tag, when)))
		}
	}
	for _, h := range p.Hairpins {
		nets := []netip.Prefix{h.From.Masked()}
		list = append(list, withNets(Publishing, portsOf(h.To).hairpins, h.To.AsSlice(), nets)...)
	}
	return append(list, Publisher(tag)), nil // last: callers report the first missing element
}

// Distinct removes duplicates. It returns an error if a packet could match two different mappings.
func Distinct(list []Mapping) ([]Mapping, error) {
	out := make([]Mapping, 0, len(list))
	var seen mappings
	for _, m := range list {
		if slices.Contains(seen.candidates(m), m) {
			continue
		}
		if o, ok := seen.overlapping(m); ok {
			return nil, fmt.Errorf("%s and %s conflict", o, m)
		}
		seen.add(m)
		out = append(out, m)
	}
	return out, nil
}

// Published returns the mapping of an element of [Publishing]; ok is false if it has none.
func Published(h Held) (m Mapping, ok bool) {
	for _, p := range []ports{ports4(), ports6()} {
		if i := p.mapIndex(h.Set); i >= 0 {
			x := nftmsg.Element{Key: h.Key, KeyEnd: h.KeyEnd, Value: h.Value}
			return mappingOf(p.maps[i], x), true
		}
	}
	return Mapping{}, false
}

// merged joins mappings to the same port numbers, and splits others into single ports.
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

// spans joins mappings of consecutive ports of the host, regardless of the container's ports.
func spans(list []Mapping) (out []Mapping) {
	for _, m := range list {
		out = appendSpan(out, m, func(Mapping) bool { return true })
	}
	return out
}

// appendSpan appends a mapping to a list. It extends the last mapping instead if the ports are
// consecutive, both lead to the same address, and joins allows it.
func appendSpan(list []Mapping, m Mapping, joins func(before Mapping) bool) []Mapping {
	if n := len(list); n > 0 {
		before := &list[n-1]
		follows := before.Last < m.First && before.Last+1 == m.First
		if follows && before.Protocol == m.Protocol && before.Host == m.Host &&
			before.To.Addr() == m.To.Addr() && joins(*before) {
			before.Last = m.Last
			return list
		}
	}
	return append(list, m)
}

// gateOf returns the chain with an owner's conditions, which packets pass before the maps.
func gateOf(tag string, when Condition) *chain {
	digest := sha256.Sum256([]byte(tag + "\x00" + when.text))
	return &chain{
		Chain: nftmsg.Chain{Table: table, Name: "hostports_" + hex.EncodeToString(digest[:8])},
		rules: when.then(goTo("hostports_dnat")),
	}
}

const (
	addrLen4, addrLen6 = 4, 16
	wordLen            = 4 // the fields of a key are multiples of 4 bytes
)

// ports holds the sets of publishing for one version of IP. Elements for single ports are in hash
// tables, so a lookup takes the same time however many there are.
type ports struct {
	protocol
	// maps lead from ports of the host to containers, in the order of their lookup: single ports,
	// single ports of an address, ranges that keep their number, and ranges of an address. The
	// second half is the same for a second owner that shares the ports.
	maps     []*set
	gates    *set // leads to conditions, before the maps
	hairpins *set
}

func ports4() ports { return portsFor(ip4()) }
func ports6() ports { return portsFor(ip6()) }

func portsOf(a netip.Addr) ports { return portsFor(protocolOf(a)) }

// maxSingle limits the published single ports of a family; see maxAddrs for the reason.
const maxSingle = 1 << 16

func portsFor(p protocol) ports {
	port := []nftmsg.Type{nftmsg.TypeInetProto, nftmsg.TypeInetService}
	at := append([]nftmsg.Type{p.addr}, port...)
	one, several := []nftmsg.Type{p.addr, nftmsg.TypeInetService}, []nftmsg.Type{p.addr}
	of := func(name string, size uint32, key, data []nftmsg.Type) *set {
		s := &set{Set: nftmsg.Set{Table: table, Name: name + p.suffix, Key: key, Data: data,
			Interval: size == 0, Size: size}}
		s.text = func(x nftmsg.Element) string { return mappingOf(s, x).String() }
		return s
	}
	ports := ports{
		protocol: p,
		gates:    of("gates", 0, at, []nftmsg.Type{nftmsg.TypeVerdict}),
		hairpins: p.netSet("hairpin"),
	}
	for _, prefix := range []string{"", "second"} {
		ports.maps = append(ports.maps,
			of(prefix+"dnat", maxSingle, port, one), of(prefix+"dnatat", maxSingle, at, one),
			of(prefix+"ranges", 0, port, several), of(prefix+"rangesat", 0, at, several))
	}
	ports.gates.text = func(x nftmsg.Element) string {
		return fmt.Sprintf("conditions in chain %s", chainOf(x))
	}
	ports.hairpins.text = func(x nftmsg.Element) string { return related(x, "from") }
	return ports
}

// mapIndex returns the index of a map, or -1 for another set.
func (p ports) mapIndex(name string) int {
	return slices.IndexFunc(p.maps, func(s *set) bool { return s.Name == name })
}

// isSecond reports whether a map is in the second half.
func (p ports) isSecond(name string) bool { return p.mapIndex(name) >= len(p.maps)/2 }

// inSecond returns an element of a map in the first half for the same map in the second.
func (p ports) inSecond(e Element) Element {
	if i := p.mapIndex(e.set); i >= 0 && i < len(p.maps)/2 {
		e.set = p.maps[i+len(p.maps)/2].Name
	}
	return e
}

// publishers returns the set with an element for each owner, so that a single lookup shows that an
// owner has published nothing. The key is a digest of the owner, for which nftables has no type; an
// IPv6 address has the same length.
func publishers() *set {
	return &set{
		Set: nftmsg.Set{Table: table, Name: "publishers", Key: []nftmsg.Type{nftmsg.TypeIPv6Addr},
			Size: maxSingle},
		text: func(x nftmsg.Element) string { return "owner " + hex.EncodeToString(x.Key) },
	}
}

// Publisher returns the element that exists if an owner has published any port.
func Publisher(tag string) Element {
	return keyElement(Publishing, publishers(), ownerDigest(tag))
}

func (p ports) mapping(m Mapping) Element {
	x := nftmsg.Element{Key: keyOf(m.Host, m.Protocol, m.First)}
	index := 0
	if m.First != m.Last {
		index = 2
		x.KeyEnd, x.Value = keyOf(m.Host, m.Protocol, m.Last), m.To.Addr().AsSlice()
	} else {
		x.Value = slices.Concat(m.To.Addr().AsSlice(), word(m.To.Port()))
	}
	if m.Host.IsValid() {
		index++
	}
	return newElement(Publishing, p.maps[index], x, len(x.Key))
}

func (p ports) gate(m Mapping, gate *chain) Element {
	hosts := netip.PrefixFrom(m.To.Addr(), 0)
	if m.Host.IsValid() {
		hosts = netip.PrefixFrom(m.Host, m.Host.BitLen())
	}
	x := nftmsg.Element{
		Key:     keyOf(hosts.Masked().Addr(), m.Protocol, m.First),
		KeyEnd:  keyOf(last(hosts.Masked()), m.Protocol, m.Last),
		Verdict: new(goTo(gate.Name)),
	}
	e := newElement(Publishing, p.gates, x, len(x.Key))
	e.chain = gate
	return e
}

// keyOf returns a key of the maps, with an address if host is valid.
func keyOf(host netip.Addr, protocol byte, port uint16) []byte {
	key := []byte{protocol, 0, 0, 0}
	if host.IsValid() {
		key = slices.Concat(host.AsSlice(), key)
	}
	return append(key, word(port)...)
}

func word(port uint16) []byte { return append(binary.BigEndian.AppendUint16(nil, port), 0, 0) }

// mappingOf decodes an element of a map.
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
		end := len(x.Value) - wordLen
		to, port = x.Value[:end], binary.BigEndian.Uint16(x.Value[end:])
	}
	m.To = netip.AddrPortFrom(address(to), port)
	return m
}
