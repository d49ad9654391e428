package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// entry is an object of a list: its message without what the kernel changes by itself.
type entry struct {
	kind    uint16 // RTM_NEW…
	header  []byte
	values  []netlink.Attribute
	ignored map[uint16]bool
}

// String identifies an object in both namespaces.
func (e entry) String() string {
	var list []string
	for _, a := range e.values {
		if !e.ignored[binary.NativeEndian.Uint16(a[2:])] {
			list = append(list, string(a))
		}
	}
	slices.Sort(list)
	return string(e.header) + strings.Join(list, "")
}

func (e entry) change(kind uint16, flags int) netlink.Change {
	body := slices.Clone(e.header)
	for _, a := range e.values {
		body = append(body, a...)
	}
	return netlink.RawChange("", kind, flags, body)
}

// converge makes the objects of a copy equal to wanted. Some depend on others, so it repeats what
// fails while anything succeeds. It returns the objects that fail for good.
func converge(c *netlink.Conn, wanted, present []entry, flags int) (failed []error, err error) {
	keep := map[string]int{}
	for _, e := range wanted {
		keep[e.String()]++
	}
	var changes []netlink.Change
	for _, e := range present {
		if k := e.String(); keep[k] > 0 {
			keep[k]--
		} else {
			changes = append(changes, e.change(e.kind+1, 0)) // RTM_DEL… follows RTM_NEW…
		}
	}
	if err := send(c, changes, func(int, error) {}); err != nil {
		return nil, err // the kernel may have deleted dependent objects
	}
	changes = nil
	for _, e := range wanted {
		if k := e.String(); keep[k] > 0 {
			keep[k]--
			changes = append(changes, e.change(e.kind, flags))
		}
	}
	for len(changes) > 0 {
		var again []netlink.Change
		failed = nil
		err := send(c, changes, func(i int, err error) {
			if !errors.Is(err, unix.EEXIST) {
				again, failed = append(again, changes[i]), append(failed, err)
			}
		})
		if err != nil || len(again) == len(changes) {
			return failed, err
		}
		changes = again
	}
	return nil, nil
}

// sync copies a list of a namespace.
func (m *maker) sync(
	s *space, what string, flags int, read func(*netlink.Conn, func(int) int) ([]entry, error),
) error {
	wanted, err := read(s.from, s.index)
	if err != nil {
		return err
	}
	present, err := read(s.to, func(i int) int { return i })
	if err != nil {
		return err
	}
	failed, err := converge(s.to, wanted, present, flags)
	for _, f := range failed {
		m.note("%s: %v", what, f)
	}
	return err
}

// addresses copies addresses, without detection of duplicates.
func (m *maker) addresses(s *space) error {
	err := m.sync(s, "address", unix.NLM_F_CREATE|unix.NLM_F_REPLACE, readAddresses)
	return errors.Join(err, m.restoreModes(s))
}

const addressFlags = unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_MANAGETEMPADDR | unix.IFA_F_HOMEADDRESS |
	unix.IFA_F_MCAUTOJOIN

func readAddresses(c *netlink.Conn, index func(int) int) (list []entry, err error) {
	messages, err := dump(c, unix.RTM_GETADDR, unix.IfAddrmsg{})
	for _, m := range messages {
		var about unix.IfAddrmsg
		values, err := netlink.ReadBody(m, &about)
		if err != nil {
			return nil, err
		}
		if about.Family != unix.AF_INET && about.Family != unix.AF_INET6 {
			continue
		}
		flags := uint32(netlink.Number(netlink.Find(values, unix.IFA_FLAGS))) & addressFlags
		if about.Family == unix.AF_INET6 {
			flags |= unix.IFA_F_NODAD
		}
		about.Index, about.Flags = uint32(index(int(about.Index))), uint8(flags)
		e := entry{kind: unix.RTM_NEWADDR, header: netlink.Body(about),
			ignored: map[uint16]bool{unix.IFA_CACHEINFO: true, unix.IFA_FLAGS: true, ifaProto: true}}
		e.values = filter(values, []uint16{unix.IFA_ADDRESS, unix.IFA_LOCAL, unix.IFA_LABEL,
			unix.IFA_BROADCAST, unix.IFA_CACHEINFO, unix.IFA_RT_PRIORITY, ifaProto})
		e.values = append(e.values, netlink.Uint32(unix.IFA_FLAGS, flags))
		list = append(list, e)
	}
	return list, err
}

// Attributes that package unix lacks.
const (
	ifaProto    = 11 // IFA_PROTO
	ndaProtocol = 12 // NDA_PROTOCOL
	rtaNextHop  = 30 // RTA_NH_ID
)

// routes copies the routes of all tables.
func (m *maker) routes(s *space) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		flags := unix.NLM_F_CREATE | unix.NLM_F_APPEND
		if family == unix.AF_INET6 {
			flags = unix.NLM_F_CREATE
		}
		err := m.sync(s, "route", flags, func(c *netlink.Conn, index func(int) int) ([]entry, error) {
			return readRoutes(c, family, index)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func readRoutes(c *netlink.Conn, family uint8, index func(int) int) (list []entry, err error) {
	messages, err := dump(c, unix.RTM_GETROUTE, unix.RtMsg{Family: family})
	for _, m := range messages {
		var about unix.RtMsg
		values, err := netlink.ReadBody(m, &about)
		if err != nil {
			return nil, err
		}
		if about.Family != family || about.Flags&unix.RTM_F_CLONED != 0 ||
			about.Protocol == unix.RTPROT_KERNEL && about.Type != unix.RTN_UNICAST {
			continue // the kernel adds these later, with detection of duplicate addresses
		}
		about.Flags &= unix.RTNH_F_ONLINK
		e := entry{kind: unix.RTM_NEWROUTE, header: netlink.Body(about),
			ignored: map[uint16]bool{unix.RTA_PREF: true, unix.RTA_CACHEINFO: true}}
		for kind, v := range netlink.Attributes(values) {
			switch kind {
			case unix.RTA_CACHEINFO, rtaNextHop, unix.RTA_PAD:
			case unix.RTA_OIF:
				e.values = append(e.values, netlink.Uint32(kind, uint32(index(netlink.Number(v)))))
			default:
				e.values = append(e.values, netlink.Bytes(kind, v))
			}
		}
		list = append(list, e)
	}
	return list, err
}

// ruleHeader is struct fib_rule_hdr (linux/fib_rules.h).
type ruleHeader struct {
	Family, DstLen, SrcLen, TOS uint8
	Table, Res1, Res2, Action   uint8
	Flags                       uint32
}

// rules copies policy rules.
func (m *maker) rules(s *space) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		err := m.sync(s, "rule", unix.NLM_F_CREATE, func(c *netlink.Conn, _ func(int) int) ([]entry, error) {
			return readRules(c, family)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func readRules(c *netlink.Conn, family uint8) (list []entry, err error) {
	messages, err := dump(c, unix.RTM_GETRULE, ruleHeader{Family: family})
	for _, m := range messages {
		var about ruleHeader
		values, err := netlink.ReadBody(m, &about)
		if err != nil {
			return nil, err
		}
		if about.Family != family {
			continue
		}
		about.Flags &= unix.FIB_RULE_INVERT
		e := entry{kind: unix.RTM_NEWRULE, header: netlink.Body(about), ignored: map[uint16]bool{}}
		for kind, v := range netlink.Attributes(values) {
			if kind == unix.FRA_SUPPRESS_PREFIXLEN && int32(netlink.Number(v)) == -1 {
				continue // the kernel lists the default, but refuses it for some rules
			}
			e.values = append(e.values, netlink.Bytes(kind, v))
		}
		list = append(list, e)
	}
	return list, err
}

// neighbours copies permanent entries and proxies. The others belong to traffic.
func (m *maker) neighbours(s *space) error {
	for _, flags := range []uint8{0, unix.NTF_PROXY} {
		err := m.sync(s, "neighbour", unix.NLM_F_CREATE|unix.NLM_F_REPLACE,
			func(c *netlink.Conn, index func(int) int) ([]entry, error) {
				return readNeighbours(c, flags, index)
			})
		if err != nil {
			return fmt.Errorf("neighbours: %w", err)
		}
	}
	return nil
}

func readNeighbours(c *netlink.Conn, flags uint8, index func(int) int) (list []entry, err error) {
	messages, err := dump(c, unix.RTM_GETNEIGH, unix.NdMsg{Flags: flags})
	for _, m := range messages {
		var about unix.NdMsg
		values, err := netlink.ReadBody(m, &about)
		if err != nil {
			return nil, err
		}
		if about.Flags&unix.NTF_PROXY != flags ||
			flags == 0 && about.State&unix.NUD_PERMANENT == 0 ||
			about.Family != unix.AF_INET && about.Family != unix.AF_INET6 {
			continue
		}
		about.Ifindex = int32(index(int(about.Ifindex)))
		list = append(list, entry{kind: unix.RTM_NEWNEIGH, header: netlink.Body(about),
			values: filter(values, []uint16{unix.NDA_DST, unix.NDA_LLADDR, ndaProtocol})})
	}
	return list, err
}
