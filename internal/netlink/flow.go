package netlink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netns"
)

// Flow is an entry of connection tracking: a connection, or packets that the kernel treats as one.
type Flow struct {
	Protocol byte
	Orig     Tuple // of the first packet
	Reply    Tuple // of the replies
}

// Tuple is one direction of a flow.
type Tuple struct{ Src, Dst netip.AddrPort }

// FlowFilter selects the flows that the kernel lists. Kernels before Linux 5.8 list all flows of
// the family. Unless its table is empty, the kernel scans the whole table, which takes 10 ms on a
// node with much memory.
type FlowFilter struct {
	IPv6     bool   // instead of IPv4
	Protocol byte   // IPPROTO_UDP, …
	DstPort  uint16 // of the original direction; 0: any
	Match    func(Flow) bool
}

// Constants of ctnetlink that golang.org/x/sys/unix lacks
// (include/uapi/linux/netfilter/nfnetlink_conntrack.h).
const (
	flowGet, flowDelete, flowStats = 1, 2, 5

	statsEntries = 1 // of the namespace

	flowOrig, flowReply, flowID, flowZone, flowFilter = 1, 2, 12, 18, 25

	tupleIP, tupleProto                  = 1, 2
	ip4Src, ip4Dst, ip6Src, ip6Dst       = 1, 2, 3, 4
	protoNum, protoSrcPort, protoDstPort = 1, 2, 3
	flowFilterOrig, flowFilterReply      = 1, 2
	flowFlagProtoNum, flowFlagProtoDPort = 1 << 3, 1 << 5
)

// DeleteFlows deletes the entries that match and returns their number. It ignores entries that
// disappear meanwhile.
func DeleteFlows(ns *netns.NS, f FlowFilter) (deleted int, err error) {
	fd, err := ns.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return 0, fmt.Errorf("ctnetlink socket in %s: %w", ns, err)
	}
	defer unix.Close(fd)
	var x Exchange
	family := uint8(unix.AF_INET)
	if f.IPv6 {
		family = unix.AF_INET6
	}
	ask := func(kind uint16, flags int, attributes []Attribute, each func([]byte) error) error {
		body := Body(Netfilter{Family: family}, attributes...)
		return x.Ask(fd, unix.NFNL_SUBSYS_CTNETLINK<<8|kind, flags, body, each)
	}
	none := false
	if err := ask(flowStats, 0, nil, func(payload []byte) error {
		values, err := ReadBody(payload, new(Netfilter))
		none = bytes.Equal(Find(values, statsEntries), make([]byte, 4))
		return err
	}); err != nil {
		return 0, fmt.Errorf("count connection tracking entries: %w", err)
	}
	if none {
		return 0, nil
	}
	var found []flowEntry
	if err := ask(flowGet, unix.NLM_F_DUMP, f.attributes(), func(payload []byte) error {
		e, err := readFlow(payload)
		if err == nil && e.flow.Protocol == f.Protocol && f.Match(e.flow) {
			found = append(found, e)
		}
		return err
	}); err != nil {
		return 0, fmt.Errorf("list connection tracking entries: %w", err)
	}
	var errs []error
	for _, e := range found {
		switch err := ask(flowDelete, unix.NLM_F_ACK, e.name, nil); {
		case err == nil:
			deleted++
		case !errors.Is(err, unix.ENOENT):
			errs = append(errs, fmt.Errorf("delete connection tracking entry %v: %w", e.flow, err))
		}
	}
	return deleted, errors.Join(errs...)
}

// attributes returns the attributes that select the flows.
func (f FlowFilter) attributes() []Attribute {
	flags, proto := uint32(flowFlagProtoNum), Uint8(protoNum, f.Protocol)
	if f.DstPort != 0 {
		flags |= flowFlagProtoDPort
		proto = append(proto, Bytes(protoDstPort, binary.BigEndian.AppendUint16(nil, f.DstPort))...)
	}
	return []Attribute{
		Nest(flowOrig|unix.NLA_F_NESTED, Nest(tupleProto|unix.NLA_F_NESTED, proto)),
		Nest(flowFilter|unix.NLA_F_NESTED, Uint32(flowFilterOrig, flags),
			Uint32(flowFilterReply, 0)),
	}
}

// flowEntry is a flow with the attributes that identify it to the kernel.
type flowEntry struct {
	flow Flow
	name []Attribute
}

// readFlow decodes an entry of a list. An entry without a tuple is an error, because a request to
// delete it would delete all entries.
func readFlow(payload []byte) (e flowEntry, err error) {
	attributes, err := ReadBody(payload, new(Netfilter))
	if err != nil {
		return flowEntry{}, fmt.Errorf("connection tracking entry: %w", err)
	}
	for kind, value := range Attributes(attributes) {
		switch kind {
		case flowOrig:
			e.flow.Orig, e.flow.Protocol = readTuple(value)
			e.name = append(e.name, Bytes(kind|unix.NLA_F_NESTED, value))
		case flowReply:
			e.flow.Reply, _ = readTuple(value)
		case flowID, flowZone:
			e.name = append(e.name, Bytes(kind, value))
		}
	}
	if !e.flow.Orig.Src.IsValid() {
		return flowEntry{}, errors.New("connection tracking entry has no tuple")
	}
	return e, nil
}

func readTuple(tuple []byte) (t Tuple, protocol byte) {
	var src, dst netip.Addr
	var srcPort, dstPort uint16
	for part, inside := range Attributes(tuple) {
		for kind, value := range Attributes(inside) {
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
