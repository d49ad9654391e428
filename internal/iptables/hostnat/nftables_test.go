package hostnat_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/iptables/hostnat"
	"github.com/tenon-cni/tenon/internal/nft"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// written encodes the expressions of a rule: for each its name, the length of its attributes in two
// bytes, and the attributes.
func written(exprs []nftmsg.Raw) (b []byte) {
	for _, e := range exprs {
		b = append(b, byte(slices.Index(exprNames, e.Name)), byte(len(e.Data)>>8),
			byte(len(e.Data)))
		b = append(b, e.Data...)
	}
	return b
}

// exprNames are the expressions that iptables writes.
var exprNames = []string{"payload", "cmp", "bitwise", "meta", "range", "match", "target",
	"immediate", "counter", "lookup"}

func read(b []byte) (exprs []nftmsg.Raw) {
	for len(b) >= 3 {
		n := min(int(b[1])<<8|int(b[2]), len(b)-3)
		exprs = append(exprs, nftmsg.Raw{Name: exprNames[int(b[0])%len(exprNames)], Data: b[3 : 3+n]})
		b = b[3+n:]
	}
	return exprs
}

// FuzzNFTRule checks that any rule can be decoded, and that a rule with unknown expressions never
// counts as one that matches all packets.
func FuzzNFTRule(f *testing.F) {
	testnet.Require(f, testnet.Tool("iptables-nft"), testnet.Tool("ip6tables-nft"))
	host := testnet.New(f).Host
	rules := []string{
		"-j ACCEPT", "! -i eth+ -o lo -j RETURN",
		"-p tcp -m multiport --dports 80,90:99 -m addrtype --dst-type LOCAL -j REDIRECT",
		"-p udp --dport 53:60 -m comment --comment mine -j ACCEPT",
		"-p tcp -m mark --mark 1/3 -j MINE", "-g MINE",
	}
	c, err := nft.Open(testnet.NS(f, host))
	if err != nil {
		f.Fatal(err)
	}
	defer c.Close()
	for _, family := range []nftmsg.Family{nftmsg.IPv4, nftmsg.IPv6} {
		tool, addresses := "iptables-nft", "-s 10.1.0.0/16 ! -d 10.2.0.7 -j DNAT --to-destination 10.3.0.1"
		if family == nftmsg.IPv6 {
			tool, addresses = "ip6tables-nft", "-s fd00::/20 ! -d fd00::7 -j DNAT --to-destination fd00::1"
		}
		host.Command(tool, "-t", "nat", "-N", "MINE")
		for _, rule := range append(rules, addresses) {
			if strings.Contains(rule, "-o lo") {
				host.Command(tool,
					append([]string{"-t", "nat", "-A", "MINE"},
						strings.Fields(strings.Replace(rule, "! -i eth+", "", 1))...)...)
				continue
			}
			host.Command(tool,
				append([]string{"-t", "nat", "-A", "PREROUTING"}, strings.Fields(rule)...)...)
		}
		for _, chain := range []string{"PREROUTING", "MINE"} {
			list, err := c.RawRules(nftmsg.Table{Family: family, Name: "nat"}, chain)
			if err != nil || len(list) == 0 {
				f.Fatal(list, err)
			}
			for _, r := range list {
				f.Add(written(r.Exprs), r.Comment, family == nftmsg.IPv6)
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, comment string, six bool) {
		family := nftmsg.IPv4
		if six {
			family = nftmsg.IPv6
		}
		exprs := read(b)
		r := hostnat.FromNFT(family, nftmsg.Rule{Comment: comment, Exprs: exprs})
		_ = r.String()
		unconditional := hostnat.Rule{Target: r.Target, Chain: r.Chain, Goto: r.Goto,
			Comment: r.Comment}
		conditions := func(e nftmsg.Raw) bool { return e.Name == "lookup" }
		if r.String() == unconditional.String() && slices.ContainsFunc(exprs, conditions) {
			t.Errorf("%q: the condition of lookup is lost", r)
		}
		for _, n := range []hostnat.Network{r.Source, r.Dest} {
			if n.Prefix != n.Masked() || n.IsValid() && n.Addr().Is4() == six {
				t.Errorf("%v is not a network of the family", n)
			}
		}
	})
}
