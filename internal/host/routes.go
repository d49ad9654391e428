package host

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// routeTypes are the names of types of routes (RTN_…).
var routeTypes = map[uint8]string{
	unix.RTN_UNICAST: "unicast", unix.RTN_LOCAL: "local", unix.RTN_BROADCAST: "broadcast",
	unix.RTN_ANYCAST: "anycast", unix.RTN_MULTICAST: "multicast", unix.RTN_BLACKHOLE: "blackhole",
	unix.RTN_UNREACHABLE: "unreachable", unix.RTN_PROHIBIT: "prohibit", unix.RTN_THROW: "throw",
	unix.RTN_NAT: "nat",
}

var hopFlags = []flag{
	{unix.RTNH_F_DEAD, "dead"}, {unix.RTNH_F_LINKDOWN, "linkdown"}, {unix.RTNH_F_ONLINK, "onlink"},
}

// routes lists the routes of all tables, except broadcast and multicast routes, which the kernel
// derives from addresses.
func (r *reader) routes() (all []Route, err error) {
	for _, family := range families {
		found, err := netlink.Dump(r.conn, unix.RTM_GETROUTE, unix.RtMsg{Family: family}, nil,
			func(list []Route, m []byte) ([]Route, error) {
				var about unix.RtMsg
				values, err := netlink.ReadBody(m, &about)
				if err != nil || about.Family != family || about.Flags&unix.RTM_F_CLONED != 0 ||
					about.Type == unix.RTN_BROADCAST || about.Type == unix.RTN_MULTICAST {
					return list, err
				}
				return append(list, readRoute(about, values)), nil
			})
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

var families = []uint8{unix.AF_INET, unix.AF_INET6}

func readRoute(about unix.RtMsg, values []byte) Route {
	n := func(kind uint16) int { return netlink.Number(netlink.Find(values, kind)) }
	r := Route{
		Type: routeTypes[about.Type], Dst: prefix(values, unix.RTA_DST, about.Family, about.Dst_len),
		Table: n(unix.RTA_TABLE), Protocol: int(about.Protocol), Scope: scopeName(about.Scope),
		Metric: n(unix.RTA_PRIORITY), PrefSrc: address(values, unix.RTA_PREFSRC),
		MTU: netlink.Number(netlink.Find(netlink.Find(values, unix.RTA_METRICS), unix.RTAX_MTU)),
	}
	if about.Src_len > 0 {
		r.Src = prefix(values, unix.RTA_SRC, about.Family, about.Src_len)
	}
	var cache cacheInfo
	if _, err := netlink.ReadBody(netlink.Find(values, unix.RTA_CACHEINFO), &cache); err == nil {
		r.Expires = int(cache.Expires) / ticksPerSecond
	}
	if several := netlink.Find(values, unix.RTA_MULTIPATH); several != nil {
		r.Hops = readHops(several)
		return r
	}
	h := Hop{Link: n(unix.RTA_OIF), Via: netlink.Gateway(values), Flags: names(hopFlags, about.Flags)}
	if h.Link != 0 || h.Via.IsValid() {
		r.Hops = []Hop{h}
	}
	return r
}

// cacheInfo is struct rta_cacheinfo (linux/rtnetlink.h).
type cacheInfo struct {
	_, _       uint32
	Expires    int32
	_          uint32
	_, _, _, _ uint32
}

// ticksPerSecond is USER_HZ, the unit of times in routes.
const ticksPerSecond = 100

// prefix decodes an address with its length; a missing address is all zeros.
func prefix(values []byte, kind uint16, family, bits uint8) netip.Prefix {
	a := address(values, kind)
	switch {
	case a.IsValid():
	case family == unix.AF_INET:
		a = netip.IPv4Unspecified()
	default:
		a = netip.IPv6Unspecified()
	}
	return netip.PrefixFrom(a, int(bits))
}

func readHops(b []byte) (hops []Hop) {
	for _, h := range netlink.MultipathHops(b) {
		hops = append(hops, Hop{Link: int(h.Ifindex), Via: netlink.Gateway(h.Attributes),
			Weight: int(h.Hops) + 1, Flags: names(hopFlags, uint32(h.Flags))})
	}
	return hops
}

// actions are the effects of rules (FR_ACT_…).
var actions = map[uint8]string{
	unix.FR_ACT_TO_TBL: "lookup", unix.FR_ACT_GOTO: "goto", unix.FR_ACT_NOP: "nop",
	unix.FR_ACT_BLACKHOLE: "blackhole", unix.FR_ACT_UNREACHABLE: "unreachable",
	unix.FR_ACT_PROHIBIT: "prohibit",
}

func (r *reader) rules() (all []Rule, err error) {
	for _, family := range families {
		found, err := netlink.Dump(r.conn, unix.RTM_GETRULE, netlink.RuleMsg{Family: family}, nil,
			func(list []Rule, m []byte) ([]Rule, error) {
				var about netlink.RuleMsg
				values, err := netlink.ReadBody(m, &about)
				if err != nil || about.Family != family {
					return list, err
				}
				return append(list, readRule(about, values)), nil
			})
		if err != nil {
			return nil, fmt.Errorf("rules: %w", err)
		}
		all = append(all, found...)
	}
	return all, nil
}

func readRule(about netlink.RuleMsg, values []byte) Rule {
	r := Rule{Family: "ipv4", Action: actions[about.Action], Suppress: -1, Other: about.TOS != 0,
		Invert: about.Flags&unix.FIB_RULE_INVERT != 0}
	if about.Family == unix.AF_INET6 {
		r.Family = "ipv6"
	}
	for kind, v := range netlink.Attributes(values) {
		switch kind {
		case unix.FRA_PRIORITY:
			r.Priority = netlink.Number(v)
		case unix.FRA_SRC:
			r.Src = prefix(values, kind, about.Family, about.SrcLen)
		case unix.FRA_DST:
			r.Dst = prefix(values, kind, about.Family, about.DstLen)
		case unix.FRA_IIFNAME:
			r.IIF = netlink.Text(v)
		case unix.FRA_OIFNAME:
			r.OIF = netlink.Text(v)
		case unix.FRA_FWMARK:
			r.Mark = uint32(netlink.Number(v))
		case unix.FRA_FWMASK:
			r.Mask = uint32(netlink.Number(v))
		case unix.FRA_TABLE:
			r.Table = netlink.Number(v)
		case unix.FRA_PROTOCOL:
			r.Protocol = netlink.Number(v)
		case unix.FRA_SUPPRESS_PREFIXLEN:
			r.Suppress = int(int32(netlink.Number(v)))
		case unix.FRA_L3MDEV, unix.FRA_UID_RANGE, unix.FRA_IP_PROTO, unix.FRA_SPORT_RANGE,
			unix.FRA_DPORT_RANGE, unix.FRA_TUN_ID, unix.FRA_SUPPRESS_IFGROUP:
			r.Other = r.Other || netlink.Number(v) != 0 || len(v) > 4
		}
	}
	return r
}
