package nfttext

import (
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// metaKeys are the properties of packets that no header holds.
var metaKeys = sync.OnceValue(func() map[uint32]value {
	return map[uint32]value{
		unix.NFT_META_LEN:      {text: "meta length", typ: typeInteger, size: 4},
		unix.NFT_META_PROTOCOL: {text: "meta protocol", typ: typeEtherType, size: 2},
		unix.NFT_META_PRIORITY: {text: "meta priority", typ: typeMark, size: 4},
		unix.NFT_META_MARK:     {text: "meta mark", typ: typeMark, size: 4},
		unix.NFT_META_IIF:      {text: "iif", typ: typeIfIndex, size: 4},
		unix.NFT_META_OIF:      {text: "oif", typ: typeIfIndex, size: 4},
		unix.NFT_META_IIFNAME:  {text: "iifname", typ: typeIfName, size: unix.IFNAMSIZ},
		unix.NFT_META_OIFNAME:  {text: "oifname", typ: typeIfName, size: unix.IFNAMSIZ},
		unix.NFT_META_SKUID:    {text: "meta skuid", typ: typeIfIndex, size: 4},
		unix.NFT_META_SKGID:    {text: "meta skgid", typ: typeIfIndex, size: 4},
		unix.NFT_META_NFTRACE:  {text: "meta nftrace", typ: typeInteger, size: 1},
		unix.NFT_META_NFPROTO:  {text: "meta nfproto", typ: typeNFProto, size: 1},
		unix.NFT_META_L4PROTO:  {text: "meta l4proto", typ: typeProtocol, size: 1},
		unix.NFT_META_PKTTYPE:  {text: "meta pkttype", typ: typePktType, size: 1},
		unix.NFT_META_IIFGROUP: {text: "iifgroup", typ: typeIfIndex, size: 4},
		unix.NFT_META_OIFGROUP: {text: "oifgroup", typ: typeIfIndex, size: 4},
		unix.NFT_META_IIFTYPE:  {text: "meta iiftype", typ: typeNative, size: 2},
		unix.NFT_META_OIFTYPE:  {text: "meta oiftype", typ: typeNative, size: 2},
		unix.NFT_META_CPU:      {text: "meta cpu", typ: typeIfIndex, size: 4},

		unix.NFT_META_BRI_IIFNAME: {text: "meta ibrname", typ: typeIfName, size: unix.IFNAMSIZ},
		unix.NFT_META_BRI_OIFNAME: {text: "meta obrname", typ: typeIfName, size: unix.IFNAMSIZ},
	}
})

func meta(key uint32) value {
	if v, ok := metaKeys()[key]; ok {
		return v
	}
	return value{text: fmt.Sprintf("meta %d", key), typ: typeInteger, size: 4}
}

var ctKeys = sync.OnceValue(func() map[uint32]value {
	return map[uint32]value{
		unix.NFT_CT_STATE:     {text: "state", typ: typeCtState, size: 4},
		unix.NFT_CT_DIRECTION: {text: "direction", typ: typeCtDir, size: 1},
		unix.NFT_CT_STATUS:    {text: "status", typ: typeCtStatus, size: 4},
		unix.NFT_CT_MARK:      {text: "mark", typ: typeMark, size: 4},
		unix.NFT_CT_PROTOCOL:  {text: "protocol", typ: typeProtocol, size: 1},
		unix.NFT_CT_PROTO_SRC: {text: "proto-src", typ: typeService, size: 2},
		unix.NFT_CT_PROTO_DST: {text: "proto-dst", typ: typeService, size: 2},
		unix.NFT_CT_SRC_IP:    {text: "ip saddr", typ: typeIPv4, size: 4},
		unix.NFT_CT_DST_IP:    {text: "ip daddr", typ: typeIPv4, size: 4},
		unix.NFT_CT_SRC_IP6:   {text: "ip6 saddr", typ: typeIPv6, size: 16},
		unix.NFT_CT_DST_IP6:   {text: "ip6 daddr", typ: typeIPv6, size: 16},
		unix.NFT_CT_ZONE:      {text: "zone", typ: typeNative, size: 2},
	}
})

// ct returns the property of a connection that an expression loads or sets.
func ct(raw nftmsg.Raw) value {
	key := find(raw, unix.NFTA_CT_KEY)
	v, ok := ctKeys()[key]
	if !ok {
		return value{text: fmt.Sprintf("ct %d", key), typ: typeInteger, size: 4}
	}
	direction := ""
	if d := netlink.Find(raw.Data, unix.NFTA_CT_DIRECTION); len(d) == 1 {
		direction = [...]string{"original ", "reply "}[d[0]&1]
	}
	v.text = "ct " + direction + v.text
	return v
}

// field is a field of a header.
type field struct {
	base, offset uint32
	size         int
}

var fields = sync.OnceValue(func() map[field]value {
	return map[field]value{
		{unix.NFT_PAYLOAD_LL_HEADER, 0, 6}:         {text: "ether daddr", typ: typeEther},
		{unix.NFT_PAYLOAD_LL_HEADER, 6, 6}:         {text: "ether saddr", typ: typeEther},
		{unix.NFT_PAYLOAD_LL_HEADER, 12, 2}:        {text: "ether type", typ: typeEtherType},
		{unix.NFT_PAYLOAD_NETWORK_HEADER, 9, 1}:    {text: "ip protocol", typ: typeProtocol},
		{unix.NFT_PAYLOAD_NETWORK_HEADER, 12, 4}:   {text: "ip saddr", typ: typeIPv4},
		{unix.NFT_PAYLOAD_NETWORK_HEADER, 16, 4}:   {text: "ip daddr", typ: typeIPv4},
		{unix.NFT_PAYLOAD_NETWORK_HEADER, 6, 1}:    {text: "ip6 nexthdr", typ: typeProtocol},
		{unix.NFT_PAYLOAD_NETWORK_HEADER, 8, 16}:   {text: "ip6 saddr", typ: typeIPv6},
		{unix.NFT_PAYLOAD_NETWORK_HEADER, 24, 16}:  {text: "ip6 daddr", typ: typeIPv6},
		{unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2}:  {text: "th sport", typ: typeService},
		{unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2}:  {text: "th dport", typ: typeService},
		{unix.NFT_PAYLOAD_TRANSPORT_HEADER, 13, 1}: {text: "tcp flags", typ: typeTCPFlags},
	}
})

// payload returns the field that an expression loads.
func (p *printer) payload(e nftmsg.Payload) value {
	size := int(e.Len)
	v, ok := fields()[field{e.Base, e.Offset, size}]
	if icmp := p.icmp(); icmp.text != "" && e.Base == unix.NFT_PAYLOAD_TRANSPORT_HEADER &&
		e.Offset == 0 && size == 1 {
		v, ok = icmp, true
	}
	if !ok {
		v, ok = p.prefix(e)
	}
	if !ok {
		base := map[uint32]string{unix.NFT_PAYLOAD_LL_HEADER: "ll", unix.NFT_PAYLOAD_NETWORK_HEADER: "nh",
			unix.NFT_PAYLOAD_TRANSPORT_HEADER: "th"}[e.Base]
		v = value{text: fmt.Sprintf("@%s,%d,%d", base, e.Offset*8, e.Len*8), typ: typeInteger}
	}
	if p.transport == "tcp" || p.transport == "udp" || p.transport == "sctp" {
		if port, is := strings.CutPrefix(v.text, "th "); is {
			v.text = p.transport + " " + port
		}
	}
	v.size = size
	return v
}

// icmp returns the type of messages of the protocol that the rule has compared.
func (p *printer) icmp() value {
	switch p.transport {
	case "icmp":
		return value{text: "icmp type", typ: typeICMP}
	case "ipv6-icmp":
		return value{text: "icmpv6 type", typ: typeICMPv6}
	}
	return value{}
}

// prefix returns the address of which an expression loads only the first bytes.
func (p *printer) prefix(e nftmsg.Payload) (value, bool) {
	if e.Base != unix.NFT_PAYLOAD_NETWORK_HEADER {
		return value{}, false
	}
	for f, v := range fields() {
		whole := v.typ == typeIPv4 || v.typ == typeIPv6
		if f.base == e.Base && f.offset == e.Offset && whole && int(e.Len) < f.size {
			return v, true
		}
	}
	return value{}, false
}

// fib returns a look-up of a route.
func fib(raw nftmsg.Raw) value {
	var of []string
	on := find(raw, unix.NFTA_FIB_FLAGS)
	for _, f := range []struct {
		bit  uint32
		name string
	}{
		{unix.NFTA_FIB_F_SADDR, "saddr"}, {unix.NFTA_FIB_F_DADDR, "daddr"},
		{unix.NFTA_FIB_F_MARK, "mark"}, {unix.NFTA_FIB_F_IIF, "iif"}, {unix.NFTA_FIB_F_OIF, "oif"},
	} {
		if on&f.bit != 0 {
			of = append(of, f.name)
		}
	}
	v := value{typ: typeIfIndex, size: 4}
	result := "oif"
	switch find(raw, unix.NFTA_FIB_RESULT) {
	case unix.NFT_FIB_RESULT_OIFNAME:
		result, v.typ, v.size = "oifname", typeIfName, unix.IFNAMSIZ
	case unix.NFT_FIB_RESULT_ADDRTYPE:
		result, v.typ = "type", typeFibAddr
	}
	v.text = fmt.Sprintf("fib %s %s", strings.Join(of, " . "), result)
	return v
}
