package netlink

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Hook is the direction of packets that a filter sees.
type Hook uint32

// The values are TC_H_CLSACT with TC_H_MIN_… of linux/pkt_sched.h.
const (
	Ingress Hook = 0xfffffff2 // packets that the link receives
	Egress  Hook = 0xfffffff3 // packets that it sends
)

// Match selects the packets of a filter; the zero value selects all.
type Match struct {
	Prefix netip.Prefix // without host bits
	Dst    bool         // match the destination address, not the source
}

// Filter is a u32 filter (tc-u32(8)) that redirects packets to another link, or lets them pass.
type Filter struct {
	Hook Hook
	// Priority orders filters, the lowest first. Filters with the same priority must have the same
	// family and hook; otherwise the kernel lists them for both hooks.
	Priority uint16
	Match    Match
	// Target is the index of the link to redirect to; 0 lets packets pass, and a negative value
	// means that the link no longer exists.
	Target int
}

// String describes the filter, for example "ingress priority 1 src 10.0.0.0/8 to link 7".
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

// Special values of the target.
const (
	Pass       = 0
	targetGone = -1
)

// classID is the class 1:1, which does not exist. The kernel requires a class in each filter.
const classID = 1<<16 | 1

// Filters lists the filters of a hook. The qdisc of the link must have the hook: KindIngress would
// list the filters of Ingress for Egress too. others has the priority of each filter that AddFilter
// cannot create.
func (c Qdiscs) Filters(l Link, h Hook) (list []Filter, others []uint16, err error) {
	all, err := c.conn.filters(l, h)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range all {
		if decoded, ok := decodeFilter(h, f); ok {
			list = append(list, decoded)
		} else {
			others = append(others, uint16(f.Info>>16))
		}
	}
	return list, others, nil
}

// filters returns only filters, because the kernel also lists their hash tables.
func (c *Conn) filters(l Link, h Hook) ([]tcObject, error) {
	all, err := c.tcList(unix.RTM_GETTFILTER, tcMsg{Ifindex: int32(l.Index), Parent: uint32(h)})
	if err != nil {
		return nil, fmt.Errorf("list filters of %s: %w", l.Name, err)
	}
	return slices.DeleteFunc(all, func(o tcObject) bool {
		options, there := o.attributes[unix.TCA_OPTIONS]
		if o.kind() != kindU32 {
			return !there
		}
		return Find(options, u32Sel) == nil
	}), nil
}

// AddFilter adds a filter to the qdisc of the given kind that [Qdiscs.AddHooks] created.
func (c Qdiscs) AddFilter(l Link, kind string, f Filter) error {
	parent := uint32(f.Hook)
	if kind == KindIngress {
		parent = hooksHandle
	}
	about := tcMsg{Ifindex: int32(l.Index), Parent: parent,
		Info: handle(f.Priority, swapped(f.Match.protocol()))}
	return c.conn.change(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_EXCL, about,
		kindOf(kindU32), f.options())
}

// DeleteFilter deletes the filters that equal f.
func (c Qdiscs) DeleteFilter(l Link, f Filter) error {
	all, err := c.conn.filters(l, f.Hook)
	if err != nil {
		return err
	}
	for _, candidate := range all {
		if decoded, ok := decodeFilter(f.Hook, candidate); !ok || decoded != f {
			continue
		}
		about := candidate.tcMsg
		about.Parent = uint32(f.Hook) // the kernel reports the qdisc instead
		chain := Bytes(unix.TCA_CHAIN, candidate.attributes[unix.TCA_CHAIN])
		err := c.conn.change(unix.RTM_DELTFILTER, 0, about, chain, kindOf(kindU32))
		if err := unless(err, unix.ENOENT); err != nil {
			return err
		}
	}
	return nil
}

const (
	kindU32    = "u32"
	kindMirred = "mirred"
)

// options returns the options of a u32 filter, with an action mirred if there is a target.
func (f Filter) options() Attribute {
	keys := f.Match.keys()
	selector := u32Selector{Flags: u32Terminal, Keys: uint8(len(keys))}
	options := []Attribute{
		Struct(u32Sel, selector, Body(keys)),
		Uint32(u32ClassID, classID),
	}
	if f.Target != Pass {
		redirect := mirred{Action: actionStolen, What: mirredRedirect, Link: uint32(f.Target)}
		options = append(options, Nest(u32Act, Nest(actFirst,
			String(actKind, kindMirred), Nest(actOptions, Struct(mirredParms, redirect)))))
	}
	return Nest(unix.TCA_OPTIONS, options...)
}

// decodeFilter is the inverse of AddFilter; ok is false if AddFilter cannot create the filter.
func decodeFilter(h Hook, f tcObject) (Filter, bool) {
	d := Filter{Hook: h, Priority: uint16(f.Info >> 16)}
	options := attributes(f.attributes[unix.TCA_OPTIONS])
	if f.kind() != kindU32 || number(options[u32ClassID]) != classID {
		return d, false
	}
	keys, err := readKeys(options[u32Sel])
	if err != nil {
		return d, false
	}
	var ok bool
	if d.Match, ok = decodeMatch(swapped(uint16(f.Info)), keys); !ok {
		return d, false
	}
	if actions := options[u32Act]; len(actions) > 0 {
		d.Target, ok = decodeRedirect(actions)
	}
	return d, ok
}

// decodeRedirect returns the target of the first action if it is a redirection.
func decodeRedirect(actions []byte) (target int, ok bool) {
	action := attributes(Find(actions, actFirst))
	if Text(action[actKind]) != kindMirred {
		return 0, false
	}
	var m mirred
	if _, err := ReadBody(Find(action[actOptions], mirredParms), &m); err != nil {
		return 0, false
	}
	if target = int(m.Link); target == 0 {
		target = targetGone
	}
	return target, m.What == mirredRedirect
}

// mirred is struct tc_mirred (linux/tc_act/tc_mirred.h).
type mirred struct {
	Index, Capab uint32
	Action       int32
	Refs, Binds  int32
	What         int32
	Link         uint32
}

// Constants of linux/pkt_cls.h and linux/tc_act/tc_mirred.h.
const (
	actFirst   = 1 // actions are numbered
	actKind    = 1 // TCA_ACT_…
	actOptions = 2

	actionStolen = 4 // TC_ACT_STOLEN

	mirredParms    = 2 // TCA_MIRRED_PARMS
	mirredRedirect = 1 // TCA_EGRESS_REDIR
)

// swapped converts a number from native to network byte order, or the reverse.
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
