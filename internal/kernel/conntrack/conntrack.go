// Package conntrack finds and deletes entries of the connection tracking of one network namespace, over ctnetlink. It makes
// none, and does not know why an entry has to go.
package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel/netns"
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
// whole table for it, which takes 10 ms on a machine with much memory, however few flows there are.
type Filter struct {
	IPv6     bool   // instead of IPv4
	Protocol byte   // IPPROTO_UDP, …
	DstPort  uint16 // of the original direction; 0: any
	Match    func(Flow) bool
}

// The parts of ctnetlink that golang.org/x/sys/unix lacks (include/uapi/linux/netfilter/nfnetlink_conntrack.h).
const (
	msgGet, msgDelete = 1, 2

	attrOrig, attrReply, attrID, attrZone, attrFilter = 1, 2, 12, 18, 25

	tupleIP, tupleProto                  = 1, 2
	ip4Src, ip4Dst, ip6Src, ip6Dst       = 1, 2, 3, 4
	protoNum, protoSrcPort, protoDstPort = 1, 2, 3
	filterOrig, filterReply              = 1, 2
	flagProtoNum, flagProtoDPort         = 1 << 3, 1 << 5
)

// Delete deletes the entries that match and returns how many. One that is gone meanwhile is no error.
func Delete(ns *netns.NS, f Filter) (deleted int, err error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: ns.Fd()})
	if err != nil {
		return 0, fmt.Errorf("ctnetlink socket in %s: %w", ns, err)
	}
	defer conn.Close()
	list, err := conn.Execute(message(msgGet, netlink.Dump, family(f.IPv6), f.attributes))
	if err != nil {
		return 0, fmt.Errorf("list connection tracking entries: %w", err)
	}
	var errs []error
	for _, m := range list {
		e, err := decode(m.Data)
		if err != nil {
			return deleted, err
		}
		if e.flow.Protocol != f.Protocol || !f.Match(e.flow) {
			continue
		}
		_, err = conn.Execute(message(msgDelete, netlink.Acknowledge, family(f.IPv6), e.attributes))
		switch {
		case err == nil:
			deleted++
		case !errors.Is(err, unix.ENOENT):
			errs = append(errs, fmt.Errorf("delete connection tracking entry %v: %w", e.flow, err))
		}
	}
	return deleted, errors.Join(errs...)
}

func message(kind uint16, flags netlink.HeaderFlags, family byte, attributes func(*netlink.AttributeEncoder)) netlink.Message {
	ae := netlink.NewAttributeEncoder()
	ae.ByteOrder = binary.BigEndian
	attributes(ae)
	data, err := ae.Encode()
	if err != nil {
		panic(err) // of fixed numbers and addresses
	}
	return netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_CTNETLINK<<8 | netlink.HeaderType(kind), Flags: netlink.Request | flags},
		Data:   append([]byte{family, unix.NFNETLINK_V0, 0, 0}, data...),
	}
}

// attributes say what to list.
func (f Filter) attributes(ae *netlink.AttributeEncoder) {
	flags := uint32(flagProtoNum)
	ae.Nested(attrOrig, func(ae *netlink.AttributeEncoder) error {
		ae.Nested(tupleProto, func(ae *netlink.AttributeEncoder) error {
			ae.Uint8(protoNum, f.Protocol)
			if f.DstPort != 0 {
				flags |= flagProtoDPort
				ae.Uint16(protoDstPort, f.DstPort)
			}
			return nil
		})
		return nil
	})
	ae.Nested(attrFilter, func(ae *netlink.AttributeEncoder) error {
		ae.ByteOrder = binary.NativeEndian
		ae.Uint32(filterOrig, flags)
		ae.Uint32(filterReply, 0)
		return nil
	})
}

// entry is a flow with what names it.
type entry struct {
	flow           Flow
	orig, id, zone []byte // attributes as they came; nil: none
}

func family(ipv6 bool) byte {
	if ipv6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// attributes name the entry. Without the tuple the kernel would delete all there are.
func (e entry) attributes(ae *netlink.AttributeEncoder) {
	ae.Bytes(attrOrig|netlink.Nested, e.orig)
	if e.id != nil {
		ae.Bytes(attrID, e.id)
	}
	if e.zone != nil {
		ae.Bytes(attrZone, e.zone)
	}
}

// decode reads an entry as the kernel lists it.
func decode(data []byte) (e entry, err error) {
	const header = 4 // struct nfgenmsg
	if len(data) < header {
		return entry{}, errors.New("connection tracking entry is cut off")
	}
	ad, err := attributes(data[header:])
	if err != nil {
		return entry{}, err
	}
	for ad.Next() {
		switch ad.Type() {
		case attrOrig:
			e.orig = ad.Bytes()
			e.flow.Orig, e.flow.Protocol, err = decodeTuple(e.orig)
		case attrReply:
			e.flow.Reply, _, err = decodeTuple(ad.Bytes())
		case attrID:
			e.id = ad.Bytes()
		case attrZone:
			e.zone = ad.Bytes()
		}
		if err != nil {
			return entry{}, err
		}
	}
	if e.orig == nil {
		return entry{}, errors.New("connection tracking entry has no tuple")
	}
	return e, ad.Err()
}

func decodeTuple(data []byte) (t Tuple, protocol byte, err error) {
	var src, dst netip.Addr
	var srcPort, dstPort uint16
	ad, err := attributes(data)
	if err != nil {
		return Tuple{}, 0, err
	}
	for ad.Next() {
		part, err := attributes(ad.Bytes())
		if err != nil {
			return Tuple{}, 0, err
		}
		switch ad.Type() {
		case tupleIP:
			for part.Next() {
				addr, _ := netip.AddrFromSlice(part.Bytes())
				switch part.Type() {
				case ip4Src, ip6Src:
					src = addr
				case ip4Dst, ip6Dst:
					dst = addr
				}
			}
		case tupleProto:
			for part.Next() {
				switch part.Type() {
				case protoNum:
					protocol = part.Uint8()
				case protoSrcPort:
					srcPort = part.Uint16()
				case protoDstPort:
					dstPort = part.Uint16()
				}
			}
		}
		if err := part.Err(); err != nil {
			return Tuple{}, 0, err
		}
	}
	return Tuple{netip.AddrPortFrom(src, srcPort), netip.AddrPortFrom(dst, dstPort)}, protocol, ad.Err()
}

func attributes(data []byte) (*netlink.AttributeDecoder, error) {
	ad, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return nil, fmt.Errorf("connection tracking entry: %w", err)
	}
	ad.ByteOrder = binary.BigEndian
	return ad, nil
}
