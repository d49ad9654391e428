package nftmsg_test

import (
	"encoding/binary"
	"net/netip"
	"testing"

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

func TestNATRange(t *testing.T) {
	t.Parallel()
	to := netip.MustParseAddrPort("10.77.0.3:80")
	onlyPort := netip.AddrPortFrom(netip.Addr{}, 80)
	for name, x := range map[string]struct {
		info []byte
		want netip.AddrPort
		ok   bool
	}{
		"address and port": {natInfo(to), to, true},
		"revision 0":       {oldNATInfo(to), to, true},
		"only a port":      {natInfo(onlyPort), onlyPort, true},
		"too short":        {natInfo(to)[:12], netip.AddrPort{}, false},
		"empty":            {},
	} {
		if got, ok := nftmsg.NATRange(nftmsg.IPv4, x.info); got != x.want || ok != x.ok {
			t.Errorf("%s: got %v, %t; want %v", name, got, ok, x.want)
		}
	}
}
