// Package conntrack finds and deletes entries of the connection tracking of one network namespace, over ctnetlink. It makes
// none, and does not know why an entry has to go.
package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink/nlmsg"
	"github.com/tenon-cni/tenon/internal/netns"
)

// Flow is an entry: a connection, or what the kernel takes for one where the protocol knows none.
type Flow struct {
	Protocol byte
	Orig     Tuple // as the first packet came in
	Reply    Tuple // as answers come back
}

// Tuple is one direction of a flow.
type Tuple struct{ Src, Dst netip.AddrPort }

// Filter says what the kernel is to list. One that cannot (before Linux 5.8) lists all flows of the family. It goes through its
// whole table for it, which takes 10 ms on a machine with much memory, however few flows there are, unless there is none.
type Filter struct {
	IPv6     bool   // instead of IPv4
	Protocol byte   // IPPROTO_UDP, …
	DstPort  uint16 // of the original direction; 0: any
	Match    func(Flow) bool
}

// The parts of ctnetlink that golang.org/x/sys/unix lacks (include/uapi/linux/netfilter/nfnetlink_conntrack.h).
const (
	msgGet, msgDelete, msgStats = 1, 2, 5

	statsEntries = 1 // of the namespace

	attrOrig, attrReply, attrID, attrZone, attrFilter = 1, 2, 12, 18, 25

	tupleIP, tupleProto                  = 1, 2
	ip4Src, ip4Dst, ip6Src, ip6Dst       = 1, 2, 3, 4
	protoNum, protoSrcPort, protoDstPort = 1, 2, 3
	filterOrig, filterReply              = 1, 2
	flagProtoNum, flagProtoDPort         = 1 << 3, 1 << 5
)

// Delete deletes the entries that match and returns how many. One that is gone meanwhile is no error.
func Delete(ns *netns.NS, f Filter) (deleted int, err error) {
	fd, err := ns.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return 0, fmt.Errorf("ctnetlink socket in %s: %w", ns, err)
	}
	defer unix.Close(fd)
	var x nlmsg.Exchange
	ask := func(kind uint16, flags int, attributes []nlmsg.Attribute, each func([]byte) error) error {
		body := nlmsg.Body(nlmsg.Netfilter{Family: family(f.IPv6)}, attributes...)
		return x.Ask(fd, unix.NFNL_SUBSYS_CTNETLINK<<8|kind, flags, body, each)
	}
	none := false
	if err := ask(msgStats, 0, nil, func(payload []byte) error {
		attributes, err := nlmsg.Read(payload, new(nlmsg.Netfilter))
		for kind, value := range nlmsg.Attributes(attributes) {
			none = none || kind == statsEntries && len(value) == 4 && binary.BigEndian.Uint32(value) == 0
		}
		return err
	}); err != nil {
		return 0, fmt.Errorf("count connection tracking entries: %w", err)
	}
	if none {
		return 0, nil
	}
	var found []entry
	if err := ask(msgGet, unix.NLM_F_DUMP, f.attributes(), func(payload []byte) error {
		e, err := decode(payload)
		if err == nil && e.flow.Protocol == f.Protocol && f.Match(e.flow) {
			found = append(found, e)
		}
		return err
	}); err != nil {
		return 0, fmt.Errorf("list connection tracking entries: %w", err)
	}
	var errs []error
	for _, e := range found {
		switch err := ask(msgDelete, unix.NLM_F_ACK, e.name, nil); {
		case err == nil:
			deleted++
		case !errors.Is(err, unix.ENOENT):
			errs = append(errs, fmt.Errorf("delete connection tracking entry %v: %w", e.flow, err))
		}
	}
	return deleted, errors.Join(errs...)
}

func family(ipv6 bool) byte {
	if ipv6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// attributes say what to list.
func (f Filter) attributes() []nlmsg.Attribute {
	flags, proto := uint32(flagProtoNum), nlmsg.Uint8(protoNum, f.Protocol)
	if f.DstPort != 0 {
		flags |= flagProtoDPort
		proto = append(proto, nlmsg.Bytes(protoDstPort, binary.BigEndian.AppendUint16(nil, f.DstPort))...)
	}
	return []nlmsg.Attribute{
		nlmsg.Nest(attrOrig|unix.NLA_F_NESTED, nlmsg.Nest(tupleProto|unix.NLA_F_NESTED, proto)),
		nlmsg.Nest(attrFilter|unix.NLA_F_NESTED, nlmsg.Uint32(filterOrig, flags), nlmsg.Uint32(filterReply, 0)),
	}
}

// entry is a flow with what names it: the attributes that came with it.
type entry struct {
	flow Flow
	name []nlmsg.Attribute
}

// decode reads an entry as the kernel lists it. One without a tuple is an error: the kernel would delete all there are.
func decode(payload []byte) (e entry, err error) {
	attributes, err := nlmsg.Read(payload, new(nlmsg.Netfilter))
	if err != nil {
		return entry{}, fmt.Errorf("connection tracking entry: %w", err)
	}
	for kind, value := range nlmsg.Attributes(attributes) {
		switch kind {
		case attrOrig:
			e.flow.Orig, e.flow.Protocol = decodeTuple(value)
			e.name = append(e.name, nlmsg.Bytes(kind|unix.NLA_F_NESTED, value))
		case attrReply:
			e.flow.Reply, _ = decodeTuple(value)
		case attrID, attrZone:
			e.name = append(e.name, nlmsg.Bytes(kind, value))
		}
	}
	if !e.flow.Orig.Src.IsValid() {
		return entry{}, errors.New("connection tracking entry has no tuple")
	}
	return e, nil
}

func decodeTuple(tuple []byte) (t Tuple, protocol byte) {
	var src, dst netip.Addr
	var srcPort, dstPort uint16
	for part, inside := range nlmsg.Attributes(tuple) {
		for kind, value := range nlmsg.Attributes(inside) {
			switch {
			case part == tupleIP && (kind == ip4Src || kind == ip6Src):
				src, _ = netip.AddrFromSlice(value)
			case part == tupleIP && (kind == ip4Dst || kind == ip6Dst):
				dst, _ = netip.AddrFromSlice(value)
			case part == tupleProto && kind == protoNum && len(value) == 1:
				protocol = value[0]
			case part == tupleProto && kind == protoSrcPort && len(value) == 2:
				srcPort = binary.BigEndian.Uint16(value)
			case part == tupleProto && kind == protoDstPort && len(value) == 2:
				dstPort = binary.BigEndian.Uint16(value)
			}
		}
	}
	return Tuple{netip.AddrPortFrom(src, srcPort), netip.AddrPortFrom(dst, dstPort)}, protocol
}
