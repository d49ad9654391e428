package rtnl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel/nlmsg"
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
	all, err := c.filters(l, h)
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

// filters leaves out what the kernel lists beside filters, such as their hash tables.
func (c *Conn) filters(l Link, h Hook) ([]tcObject, error) {
	all, err := c.tcList(unix.RTM_GETTFILTER, nl.TcMsg{Ifindex: int32(l.Index), Parent: uint32(h)})
	if err != nil {
		return nil, fmt.Errorf("list filters of %s: %w", l.Name, err)
	}
	return slices.DeleteFunc(all, func(o tcObject) bool {
		options, there := o.attributes[nl.TCA_OPTIONS]
		if o.kind() != kindU32 {
			return !there
		}
		return attributes(options)[nl.TCA_U32_SEL] == nil
	}), nil
}

// AddFilter adds a filter to the qdisc of a link that [Conn.AddHooks] has made, of this kind.
func (c *Conn) AddFilter(l Link, kind string, f Filter) error {
	parent := uint32(f.Hook)
	if kind == KindIngress {
		parent = hooksHandle
	}
	about := nl.TcMsg{Ifindex: int32(l.Index), Parent: parent, Info: netlink.MakeHandle(f.Priority, swapped(f.Match.protocol()))}
	return c.tcChange(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_EXCL, about, kindOf(kindU32), f.options())
}

// DeleteFilter deletes the filters that are like this one.
func (c *Conn) DeleteFilter(l Link, f Filter) error {
	all, err := c.filters(l, f.Hook)
	if err != nil {
		return err
	}
	for _, candidate := range all {
		if decoded, ok := decodeFilter(f.Hook, candidate); !ok || decoded != f {
			continue
		}
		about := candidate.TcMsg
		about.Parent = uint32(f.Hook) // the kernel reports the qdisc
		chain := nl.NewRtAttr(nl.TCA_CHAIN, candidate.attributes[nl.TCA_CHAIN])
		if err := c.tcChange(unix.RTM_DELTFILTER, 0, about, chain, kindOf(kindU32)); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

const (
	kindU32    = "u32"
	kindMirred = "mirred"
)

// options are those of u32, with an action mirred if there is a target.
func (f Filter) options() *nl.RtAttr {
	o := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	keys := f.Match.keys()
	selector := nl.TcU32Sel{Flags: nl.TC_U32_TERMINAL, Nkeys: uint8(len(keys)), Keys: keys}
	o.AddRtAttr(nl.TCA_U32_SEL, selector.Serialize())
	o.AddRtAttr(nl.TCA_U32_CLASSID, nl.Uint32Attr(flow))
	if f.Target != Pass {
		action := o.AddRtAttr(nl.TCA_U32_ACT, nil).AddRtAttr(nl.TCA_ACT_TAB, nil)
		action.AddRtAttr(nl.TCA_ACT_KIND, nl.ZeroTerminated(kindMirred))
		redirect := nl.TcMirred{
			TcGen:   nl.TcGen{Action: int32(netlink.TC_ACT_STOLEN)},
			Eaction: int32(netlink.TCA_EGRESS_REDIR), Ifindex: uint32(f.Target),
		}
		action.AddRtAttr(nl.TCA_ACT_OPTIONS, nil).AddRtAttr(nl.TCA_MIRRED_PARMS, redirect.Serialize())
	}
	return o
}

// decodeFilter is the inverse of AddFilter.
func decodeFilter(h Hook, f tcObject) (Filter, bool) {
	priority, protocol := netlink.MajorMinor(f.Info)
	d := Filter{Hook: h, Priority: priority}
	options := attributes(f.attributes[nl.TCA_OPTIONS])
	selector, class := options[nl.TCA_U32_SEL], options[nl.TCA_U32_CLASSID]
	if f.kind() != kindU32 || len(selector) < nl.SizeofTcU32Sel || !bytes.Equal(class, nl.Uint32Attr(flow)) {
		return d, false
	}
	var ok bool
	if d.Match, ok = decodeMatch(swapped(protocol), nl.DeserializeTcU32Sel(selector).Keys); !ok {
		return d, false
	}
	if actions := options[nl.TCA_U32_ACT]; len(actions) > 0 {
		d.Target, ok = decodeRedirect(actions)
	}
	return d, ok
}

// decodeRedirect returns the target of the first action, if that is a redirection.
func decodeRedirect(actions []byte) (target int, ok bool) {
	action := attributes(attributes(actions)[nl.TCA_ACT_TAB])
	if nlmsg.Text(action[nl.TCA_ACT_KIND]) != kindMirred {
		return 0, false
	}
	parameters := attributes(action[nl.TCA_ACT_OPTIONS])[nl.TCA_MIRRED_PARMS] // struct tc_mirred: five words, what to do, with which link
	if len(parameters) < 28 {
		return 0, false
	}
	what, link := binary.NativeEndian.Uint32(parameters[20:]), binary.NativeEndian.Uint32(parameters[24:])
	if target = int(link); target == 0 {
		target = targetGone
	}
	return target, netlink.MirredAct(what) == netlink.TCA_EGRESS_REDIR
}

// swapped converts a number to the byte order of the network, and back.
func swapped(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
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

// keys compare the prefix word by word. The words are in the byte order of the network.
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
	mask := net.CIDRMask(m.Prefix.Bits(), m.Prefix.Addr().BitLen())
	for at := 0; at == 0 || at < (m.Prefix.Bits()+7)/8; at += 4 {
		keys = append(keys, nl.TcU32Key{
			Mask: binary.NativeEndian.Uint32(mask[at:]),
			Val:  binary.NativeEndian.Uint32(address[at:]),
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
	length := 0
	for i, k := range keys {
		binary.NativeEndian.PutUint32(address[4*i:], k.Val)
		length += bits.OnesCount32(k.Mask)
	}
	a, _ := netip.AddrFromSlice(address)
	m.Prefix = netip.PrefixFrom(a, length)
	return m, m.Prefix.IsValid() && slices.Equal(m.keys(), keys)
}
