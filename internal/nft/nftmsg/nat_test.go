package nftmsg_test

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// natInfo encodes struct nf_nat_range2 with an address and a port.
func natInfo(to netip.AddrPort) []byte {
	b := make([]byte, 44)
	flags := uint32(2) // NF_NAT_RANGE_PROTO_SPECIFIED
	if to.Addr().IsValid() {
		flags |= 1 // NF_NAT_RANGE_MAP_IPS
	}
	binary.NativeEndian.PutUint32(b, flags)
	copy(b[4:], to.Addr().AsSlice())
	binary.BigEndian.PutUint16(b[36:], to.Port())
	return b
}

// oldNATInfo encodes struct nf_nat_ipv4_multi_range_compat with an address and a port.
func oldNATInfo(to netip.AddrPort) []byte {
	b := make([]byte, 24)
	binary.NativeEndian.PutUint32(b, 1) // the number of ranges
	binary.NativeEndian.PutUint32(b[4:], 1|2)
	copy(b[8:], to.Addr().AsSlice())
	binary.BigEndian.PutUint16(b[16:], to.Port())
	return b
}

func TestDestination(t *testing.T) {
	t.Parallel()
	to := netip.MustParseAddrPort("10.77.0.3:80")
	load := []nftmsg.Expr{
		nftmsg.Immediate{Register: unix.NFT_REG_1, Value: to.Addr().AsSlice()},
		nftmsg.Immediate{Register: unix.NFT_REG_2, Value: []byte{0, 80}},
	}
	for name, x := range map[string]struct {
		exprs []nftmsg.Expr
		want  netip.AddrPort
	}{
		"nftables": {append(load[:2:2], nftmsg.NAT{Type: unix.NFT_NAT_DNAT,
			Family: unix.NFPROTO_IPV4, Addr: unix.NFT_REG_1, Port: unix.NFT_REG_2}), to},
		"source of nftables": {append(load[:2:2], nftmsg.NAT{Type: unix.NFT_NAT_SNAT,
			Family: unix.NFPROTO_IPV4, Addr: unix.NFT_REG_1}), netip.AddrPort{}},
		"address from a map": {[]nftmsg.Expr{nftmsg.NAT{Type: unix.NFT_NAT_DNAT,
			Family: unix.NFPROTO_IPV4, Addr: unix.NFT_REG_1}}, netip.AddrPort{}},
		"iptables":             {[]nftmsg.Expr{nftmsg.Target{Name: "DNAT", Info: natInfo(to)}}, to},
		"iptables, revision 0": {[]nftmsg.Expr{nftmsg.Target{Name: "DNAT", Info: oldNATInfo(to)}}, to},
		"iptables, only a port": {[]nftmsg.Expr{nftmsg.Target{Name: "DNAT",
			Info: natInfo(netip.AddrPortFrom(netip.Addr{}, 80))}}, netip.AddrPort{}},
		"another target":  {[]nftmsg.Expr{nftmsg.Target{Name: "MARK"}}, netip.AddrPort{}},
		"no translation":  {load, netip.AddrPort{}},
		"a broken target": {[]nftmsg.Expr{nftmsg.Target{Name: "DNAT"}}, netip.AddrPort{}},
		"an empty rule":   {nil, netip.AddrPort{}},
		"a verdict, no NAT": {[]nftmsg.Expr{nftmsg.Verdict{Code: nftmsg.Accept}},
			netip.AddrPort{}},
	} {
		var rule []nftmsg.Raw
		for _, e := range x.exprs {
			rule = append(rule, nftmsg.RawOf(e))
		}
		if got, ok := nftmsg.Destination(nftmsg.IPv4, rule); got != x.want || ok != x.want.IsValid() {
			t.Errorf("%s: got %v, %t; want %v", name, got, ok, x.want)
		}
	}
}
