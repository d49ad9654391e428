package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Hook is where a filter looks at packets of a link.
type Hook uint32

// The hooks.
const (
	Ingress Hook = netlink.HANDLE_MIN_INGRESS // what the link receives
	Egress  Hook = netlink.HANDLE_MIN_EGRESS  // what it sends
)

// Match says which packets a filter is about; the zero value is about all of them.
type Match struct {
	Prefix netip.Prefix // without host bits
	Dst    bool         // it is that of the destination, not of the source
}

// Filter is a u32 filter (tc-u32(8)) that hands packets to another link, or lets them pass.
type Filter struct {
	Hook     Hook
	Priority uint16 // the lowest is asked first. Those of one priority have one family, and one hook, else the kernel lists them for both
	Match    Match
	Target   int // index of the link that sends them instead; 0 lets them pass, below 0 the link is gone
}

// String returns the filter for people: "ingress priority 1 src 10.0.0.0/8 to link 7".
func (f Filter) String() string {
	hook, match, target := "ingress", "all", "pass"
	if f.Hook == Egress {
		hook = "egress"
	}
	if f.Match.Prefix.IsValid() {
		match = "src " + f.Match.Prefix.String()
		if f.Match.Dst {
			match = "dst " + f.Match.Prefix.String()
		}
	}
	if f.Target != Pass {
		target = fmt.Sprintf("to link %d", f.Target)
	}
	return fmt.Sprintf("%s priority %d %s %s", hook, f.Priority, match, target)
}

// Targets of filters that are not links.
const (
	Pass       = 0
	targetGone = -1
)

// flow is the class that the filters name; nobody asks, but without one they are none.
var flow = netlink.MakeHandle(1, 1)

// Filters lists the filters of a hook, which the qdisc of the link must have: KindIngress would show those of Ingress for
// Egress too. Those that AddFilter would not make are counted only.
func (c *Conn) Filters(l Link, h Hook) (list []Filter, others int, err error) {
	all, err := c.u32(l, h)
	if err != nil {
		return nil, 0, err
	}
	for _, f := range all {
		if decoded, ok := decodeFilter(h, f); ok {
			list = append(list, decoded)
		} else {
			others++
		}
	}
	return list, others, nil
}

func (c *Conn) u32(l Link, h Hook) ([]netlink.Filter, error) {
	all, err := c.h.FilterList(ref(l), uint32(h))
	if err != nil {
		return nil, fmt.Errorf("list filters of %s: %w", l.Name, err)
	}
	return all, nil
}

// AddFilter adds a filter to the qdisc of a link that [Conn.AddHooks] has made, of this kind.
func (c *Conn) AddFilter(l Link, kind string, f Filter) error {
	parent := uint32(f.Hook)
	if kind == KindIngress {
		parent = hooksHandle
	}
	u := &netlink.U32{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: l.Index, Parent: parent, Priority: f.Priority, Protocol: f.Match.protocol(),
		},
		ClassId: flow,
		Sel:     &nl.TcU32Sel{Flags: nl.TC_U32_TERMINAL, Keys: f.Match.keys()},
	}
	if f.Target != Pass {
		u.Actions = []netlink.Action{netlink.NewMirredAction(f.Target)}
	}
	return c.h.FilterAdd(u)
}

// DeleteFilter deletes the filters that are like this one.
func (c *Conn) DeleteFilter(l Link, f Filter) error {
	all, err := c.u32(l, f.Hook)
	if err != nil {
		return err
	}
	for _, candidate := range all {
		if decoded, ok := decodeFilter(f.Hook, candidate); !ok || decoded != f {
			continue
		}
		candidate.Attrs().Parent = uint32(f.Hook) // the kernel reports the qdisc
		if err := c.h.FilterDel(candidate); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

// decodeFilter is the inverse of AddFilter.
func decodeFilter(h Hook, f netlink.Filter) (Filter, bool) {
	u, ok := f.(*netlink.U32)
	if !ok || u.Sel == nil || u.ClassId != flow {
		return Filter{}, false
	}
	d := Filter{Hook: h, Priority: u.Priority}
	if d.Match, ok = decodeMatch(u.Protocol, u.Sel.Keys); !ok {
		return Filter{}, false
	}
	if len(u.Actions) > 0 {
		m, ok := u.Actions[0].(*netlink.MirredAction)
		if !ok || m.MirredAction != netlink.TCA_EGRESS_REDIR {
			return Filter{}, false
		}
		if d.Target = m.Ifindex; d.Target == 0 {
			d.Target = targetGone
		}
	}
	return d, true
}

func (m Match) protocol() uint16 {
	switch {
	case !m.Prefix.IsValid():
		return unix.ETH_P_ALL
	case m.Prefix.Addr().Is4():
		return unix.ETH_P_IP
	default:
		return unix.ETH_P_IPV6
	}
}

// Where addresses are in the headers of IPv4 (RFC 791) and IPv6 (RFC 8200).
const (
	source4, destination4 = 12, 16
	source6, destination6 = 8, 24
)

// keys compare the prefix word by word.
func (m Match) keys() (keys []nl.TcU32Key) {
	if !m.Prefix.IsValid() {
		return []nl.TcU32Key{{}}
	}
	offset := source6
	switch is4 := m.Prefix.Addr().Is4(); {
	case is4 && m.Dst:
		offset = destination4
	case is4:
		offset = source4
	case m.Dst:
		offset = destination6
	}
	address := m.Prefix.Masked().Addr().AsSlice()
	for at, bits := 0, m.Prefix.Bits(); at == 0 || bits > 0; at, bits = at+4, bits-32 {
		keys = append(keys, nl.TcU32Key{
			Mask: ^uint32(0) << (32 - min(bits, 32)),
			Val:  binary.BigEndian.Uint32(address[at:]),
			Off:  int32(offset + at),
		})
	}
	return keys
}

// decodeMatch is the inverse of keys.
func decodeMatch(protocol uint16, keys []nl.TcU32Key) (m Match, ok bool) {
	if len(keys) == 0 {
		return m, false
	}
	address := make([]byte, 4)
	switch offset := keys[0].Off; protocol {
	case unix.ETH_P_IP:
		m.Dst = offset == destination4
	case unix.ETH_P_IPV6:
		m.Dst = offset == destination6
		address = make([]byte, 16)
	default:
		return m, slices.Equal(m.keys(), keys)
	}
	if 4*len(keys) > len(address) {
		return m, false
	}
	bits := 0
	for i, k := range keys {
		binary.BigEndian.PutUint32(address[4*i:], k.Val)
		for mask := k.Mask; mask != 0; mask <<= 1 {
			bits++
		}
	}
	a, _ := netip.AddrFromSlice(address)
	m.Prefix = netip.PrefixFrom(a, bits)
	return m, m.Prefix.IsValid() && slices.Equal(m.keys(), keys)
}
