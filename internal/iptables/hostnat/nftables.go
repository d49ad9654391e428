package hostnat

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/nft"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// nftChain returns the rules of a chain of the nftables variant, none if the chain does not exist.
func nftChain(c *nft.Conn, t nftmsg.Table, name string) ([]Rule, error) {
	list, err := c.RawRules(t, name)
	if err != nil {
		return nil, err
	}
	rules := make([]Rule, len(list))
	for i, r := range list {
		rules[i] = fromNFT(t.Family, r)
	}
	return rules, nil
}

// nftReader decodes one rule. A condition takes the form: load a value, perhaps mask it, compare
// it.
type nftReader struct {
	Rule
	family nftmsg.Family
	load   any
	mask   []byte
	values map[uint32][]byte // of registers
}

// fromNFT decodes a rule of a table of the families IPv4 and IPv6.
func fromNFT(f nftmsg.Family, r nftmsg.Rule) Rule {
	n := nftReader{family: f, values: map[uint32][]byte{}}
	n.Comment = r.Comment
	for _, raw := range r.Exprs {
		n.expr(raw)
	}
	return n.Rule
}

func (n *nftReader) expr(raw nftmsg.Raw) {
	switch e := raw.Read().(type) {
	case nftmsg.Cmp:
		if !n.compare(e.Op, e.Data) {
			n.other()
		}
	case nftmsg.Range:
		if !n.portRange(e) {
			n.other()
		}
	case nftmsg.Match:
		n.match(e.Name, e.Revision, e.Info)
	case nftmsg.Target:
		n.Target = e.Name
		if e.Name == "DNAT" {
			n.To = nft.XTablesDNAT(n.family, e.Info)
		}
	case nftmsg.Verdict:
		n.verdict(e)
	case nftmsg.Immediate:
		n.values[e.Register] = e.Value
	case nftmsg.NAT:
		n.nat(e)
	case nftmsg.Mask:
		n.mask = e.Bits
	case nftmsg.Raw:
		n.raw(e)
	default:
		n.load, n.mask = e, nil
	}
}

func (n *nftReader) nat(e nftmsg.NAT) {
	n.Target = "SNAT"
	if e.Type != unix.NFT_NAT_DNAT {
		return
	}
	n.Target = "DNAT"
	var port uint16
	if v := n.values[e.Port]; len(v) >= 2 {
		port = binary.BigEndian.Uint16(v)
	}
	addr, _ := netip.AddrFromSlice(n.values[e.Addr])
	n.To = netip.AddrPortFrom(addr, port)
}

func (n *nftReader) raw(e nftmsg.Raw) {
	switch e.Name {
	case "counter", "notrack", "log", "byteorder":
	case "masq":
		n.Target = "MASQUERADE"
	case "redir":
		n.Target = "REDIRECT"
	case "bitwise": // with more than a mask
		n.load = e
	case "lookup", "limit", "quota", "connlimit", "dynset":
		n.load = e
		n.other()
	default:
		n.load, n.mask = e, nil
	}
}

// other counts a condition that cannot be evaluated.
func (n *nftReader) other() {
	name := "condition"
	switch l := n.load.(type) {
	case nftmsg.Raw:
		name = l.Name
	case nftmsg.Meta:
		name = "meta"
		if l.Key == unix.NFT_META_MARK {
			name = "mark"
		}
	case nftmsg.Payload:
		name = cmp.Or(protocolName(n.Protocol.Text), "payload")
	}
	n.Others = append(n.Others, name)
}

func (n *nftReader) verdict(v nftmsg.Verdict) {
	switch v.Code {
	case nftmsg.Accept:
		n.Target = "ACCEPT"
	case nftmsg.Drop:
		n.Target = "DROP"
	case unix.NFT_RETURN:
		n.Target = "RETURN"
	case unix.NFT_GOTO, unix.NFT_JUMP:
		n.Chain, n.Goto = v.Chain, v.Code == unix.NFT_GOTO
	}
}

// compare stores the condition that compares with data, unless it cannot be evaluated.
func (n *nftReader) compare(op uint32, data []byte) bool {
	not := op == unix.NFT_CMP_NEQ
	switch load := n.load.(type) {
	case nftmsg.Meta:
		if op != unix.NFT_CMP_EQ && !not || n.mask != nil {
			return false
		}
		return n.meta(load.Key, Word{Not: not}, data)
	case nftmsg.Payload:
		if load.Base == unix.NFT_PAYLOAD_TRANSPORT_HEADER {
			return load.Offset == 2 && n.mask == nil && n.port(op, data)
		}
		if op != unix.NFT_CMP_EQ && !not || load.Base != unix.NFT_PAYLOAD_NETWORK_HEADER {
			return false
		}
		return n.address(load, data, not)
	}
	return false
}

func (n *nftReader) meta(key uint32, w Word, data []byte) bool {
	name := netlink.Text(data)
	if bytes.IndexByte(data, 0) < 0 {
		name += "+" // any name with this prefix
	}
	switch {
	case key == unix.NFT_META_IIFNAME:
		w.Text = name
		n.In = w
	case key == unix.NFT_META_OIFNAME:
		w.Text = name
		n.Out = w
	case key == unix.NFT_META_L4PROTO && len(data) == 1:
		w.Text = strconv.Itoa(int(data[0]))
		n.Protocol = w
	default:
		return false
	}
	return true
}

// port stores a comparison of the destination port. Two comparisons form a range.
func (n *nftReader) port(op uint32, data []byte) bool {
	if len(data) != 2 {
		return false
	}
	port := binary.BigEndian.Uint16(data)
	if op == unix.NFT_CMP_LTE && len(n.Ports.Ranges) == 1 && !n.Ports.Not {
		n.Ports.Ranges[0].Last = min(port, n.Ports.Ranges[0].Last)
		return true
	}
	r := PortRange{port, port}
	switch op {
	case unix.NFT_CMP_EQ, unix.NFT_CMP_NEQ:
	case unix.NFT_CMP_GTE:
		r.Last = 0xffff
	case unix.NFT_CMP_LTE:
		r.First = 0
	default:
		return false
	}
	return n.setPorts(r, op == unix.NFT_CMP_NEQ)
}

func (n *nftReader) portRange(e nftmsg.Range) bool {
	load, ok := n.load.(nftmsg.Payload)
	if !ok || load.Base != unix.NFT_PAYLOAD_TRANSPORT_HEADER || load.Offset != 2 || n.mask != nil ||
		len(e.From) != 2 || len(e.To) != 2 {
		return false
	}
	ports := PortRange{binary.BigEndian.Uint16(e.From), binary.BigEndian.Uint16(e.To)}
	return n.setPorts(ports, e.Op == unix.NFT_RANGE_NEQ)
}

// address stores a comparison of addresses, or of the protocol in the IPv4 header. If the prefix
// length is a multiple of 8, iptables loads only the network part. It can load source and
// destination together.
func (n *nftReader) address(load nftmsg.Payload, data []byte, not bool) bool {
	full, source := 4, uint32(12)
	if n.family == nftmsg.IPv6 {
		full, source = 16, 8
	} else if load.Offset == 9 && load.Len == 1 && len(data) == 1 && n.mask == nil {
		n.Protocol = Word{strconv.Itoa(int(data[0])), not}
		return true
	}
	dest := source + uint32(full)
	both := load.Offset == source && len(data) == 2*full && n.mask == nil && !not
	switch {
	case both && !n.Source.IsValid() && !n.Dest.IsValid():
		n.Source = network(full, data[:full], nil, false)
		n.Dest = network(full, data[full:], nil, false)
		return true
	case len(data) > full || n.mask != nil && len(n.mask) != len(data):
		return false
	}
	to := network(full, data, n.mask, not)
	switch {
	case !to.IsValid():
		return false
	case load.Offset == source && !n.Source.IsValid():
		n.Source = to
	case load.Offset == dest && !n.Dest.IsValid():
		n.Dest = to
	default:
		return false
	}
	return true
}

// network returns a condition from the first bytes of a network and a mask, which may be nil. The
// condition is invalid if the mask has holes.
func network(full int, data, mask []byte, not bool) Network {
	bits := 8 * len(data)
	if mask != nil {
		var ok bool
		if bits, ok = prefixLength(mask); !ok {
			return Network{}
		}
	}
	addr, _ := netip.AddrFromSlice(append(bytes.Clone(data), make([]byte, full-len(data))...))
	return Network{netip.PrefixFrom(addr, bits).Masked(), not}
}

// prefixLength counts the ones in a mask. ok is false if there are holes.
func prefixLength(mask []byte) (bits int, ok bool) {
	bits, size := net.IPMask(mask).Size()
	return bits, size == 8*len(mask)
}
