package nft

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// listed is an expression as the kernel lists it.
func listed(e nftmsg.Expr) (r nftmsg.Raw) {
	for kind, value := range netlink.Attributes(e.Encode()[unix.SizeofRtAttr:]) {
		switch kind {
		case unix.NFTA_EXPR_NAME:
			r.Name = netlink.Text(value)
		case unix.NFTA_EXPR_DATA:
			r.Data = value
		}
	}
	return r
}

func ruleWith(exprs ...nftmsg.Expr) (r nftmsg.Rule) {
	for _, e := range exprs {
		r.Exprs = append(r.Exprs, listed(e))
	}
	return r
}

var (
	iifname = nftmsg.Meta{Key: unix.NFT_META_IIFNAME, Register: 1}
	isEth0  = nftmsg.Cmp{Op: unix.NFT_CMP_EQ, Register: 1, Data: ifName("eth0")}
	drop    = nftmsg.Verdict{Code: nftmsg.Drop}
)

// TestForeignConditions checks, for any condition, that a rule that drops only some packets does
// not count as one that drops all.
func TestForeignConditions(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		rule nftmsg.Rule
		want Rule
	}{
		{"none", ruleWith(nftmsg.Raw{Name: "counter"}, drop), Rule{Verdict: "drop"}},
		{"interface", ruleWith(iifname, isEth0, nftmsg.Raw{Name: "counter"}, drop),
			Rule{IIFName: "eth0", Verdict: "drop"}},
		{"quota", ruleWith(nftmsg.Raw{Name: "quota"}, drop), Rule{Others: 1, Verdict: "drop"}},
		{"number of connections", ruleWith(nftmsg.Raw{Name: "connlimit"}, drop),
			Rule{Others: 1, Verdict: "drop"}},
		{"set that can be full", ruleWith(nftmsg.Raw{Name: "dynset"}, drop),
			Rule{Others: 1, Verdict: "drop"}},
		{"an unknown load replaces the known one",
			ruleWith(iifname, nftmsg.Raw{Name: "exthdr"}, isEth0, drop),
			Rule{Others: 1, Verdict: "drop"}},
		{"masked address", ruleWith(ip4().saddr, nftmsg.Mask{Bits: []byte{255, 128, 0, 0}, Register: 1},
			nftmsg.Cmp{Register: 1, Data: []byte{10, 128, 0, 0}},
			nftmsg.Verdict{Code: nftmsg.Accept}),
			Rule{Source: netip.MustParseAddr("10.128.0.0"), Verdict: "accept"}},
	} {
		if got := ruleOf(IPv4, row.rule); got != row.want {
			t.Errorf("%s: got %+v, want %+v", row.name, got, row.want)
		}
	}
}

// FuzzForeignRule checks that decoding a rule of another program never panics.
func FuzzForeignRule(f *testing.F) {
	for _, pair := range [][2]nftmsg.Expr{
		{iifname, isEth0},
		{nftmsg.Meta{Key: unix.NFT_META_L4PROTO}, nftmsg.Cmp{Data: []byte{6}}},
		{ip6().saddr, nftmsg.Cmp{Data: make([]byte, 16)}},
		{nftmsg.Payload{Base: unix.NFT_PAYLOAD_TRANSPORT_HEADER, Offset: 2, Len: 2},
			nftmsg.Cmp{Data: []byte{0, 80}}},
		{nftmsg.Raw{Name: "immediate"}, nftmsg.NAT{Type: unix.NFT_NAT_DNAT, Addr: 1, Port: 2}},
		{nftmsg.Raw{Name: "match"}, nftmsg.Raw{Name: "target"}},
	} {
		first, second := listed(pair[0]), listed(pair[1])
		for _, family := range []Family{IPv4, IPv6, INet, Bridge} {
			f.Add(byte(family), first.Name, first.Data, second.Name, second.Data)
		}
	}
	f.Fuzz(func(t *testing.T, family byte, name1 string, data1 []byte, name2 string, data2 []byte) {
		rule := nftmsg.Rule{Exprs: []nftmsg.Raw{{Name: name1, Data: data1},
			{Name: name2, Data: data2}}}
		if got := ruleOf(Family(family), rule); got.Others < 0 || got.Others > 2 {
			t.Fatalf("%+v", got)
		}
	})
}
