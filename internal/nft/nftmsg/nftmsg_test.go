package nftmsg_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
	"github.com/tenon-cni/tenon/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

func setup(t testing.TB) (*testnet.Namespace, *nftmsg.Conn) {
	t.Helper()
	testnet.Require(t, testnet.Kernel(kernel.FeatureNFT), testnet.Tool("nft"))
	ns := testnet.New(t).Host
	return ns, open(t, ns)
}

func open(t testing.TB, ns *testnet.Namespace) *nftmsg.Conn {
	t.Helper()
	c, err := nftmsg.Open(testnet.NS(t, ns))
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var (
	table = nftmsg.Table{Family: nftmsg.INet, Name: "t"}
	plain = nftmsg.Chain{Table: table, Name: "plain"}
	addrs = nftmsg.Set{Table: table, Name: "addrs", Key: []nftmsg.Type{nftmsg.TypeIPv4Addr},
		Size: 1 << 17}
)

// native encodes a number in native byte order.
func native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// TestExpressions checks that the kernel accepts each expression, that nft(8) shows its intended
// meaning, and that the kernel lists it as it was sent.
func TestExpressions(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	var tx nftmsg.Transaction
	tx.AddTable(table)
	tx.AddSet(addrs)
	tx.AddSet(nftmsg.Set{Table: table, Name: "froms", Key: []nftmsg.Type{nftmsg.TypeIPv4Addr},
		Data: []nftmsg.Type{nftmsg.TypeIPv4Addr}})
	tx.AddSet(nftmsg.Set{Table: table, Name: "doors", Key: []nftmsg.Type{nftmsg.TypeIPv4Addr},
		Data: []nftmsg.Type{nftmsg.TypeVerdict}})
	tx.AddChain(plain)
	nat := nftmsg.Chain{Table: table, Name: "nat", Type: nftmsg.ChainNAT,
		Hook: unix.NF_INET_POST_ROUTING, Priority: nftmsg.PrioritySNAT}
	tx.AddChain(nat)
	const reg = unix.NFT_REG_1
	ip4 := []nftmsg.Expr{nftmsg.Meta{Key: unix.NFT_META_NFPROTO, Register: reg},
		nftmsg.Cmp{Op: unix.NFT_CMP_EQ, Register: reg, Data: []byte{unix.NFPROTO_IPV4}}}
	saddr := append(slices.Clip(ip4),
		nftmsg.Payload{Base: unix.NFT_PAYLOAD_NETWORK_HEADER, Offset: 12, Len: 4, Register: reg})
	mark := nftmsg.Meta{Key: unix.NFT_META_MARK, Register: reg}
	rows := []struct {
		chain nftmsg.Chain
		want  string
		rule  []nftmsg.Expr
	}{
		{plain, `meta mark 0x00000007 drop`,
			[]nftmsg.Expr{mark, nftmsg.Cmp{Op: unix.NFT_CMP_EQ, Register: reg, Data: native(7)},
				nftmsg.Verdict{Code: nftmsg.Drop}}},
		{plain, `meta mark 0x00000005-0x0000004d accept`, []nftmsg.Expr{
			mark, nftmsg.NetworkOrder{Register: reg},
			nftmsg.Range{Op: unix.NFT_RANGE_EQ, Register: reg, From: []byte{0, 0, 0, 5},
				To: []byte{0, 0, 0, 77}}, nftmsg.Verdict{Code: nftmsg.Accept},
		}},
		{plain, `meta mark set 0x00000007`, []nftmsg.Expr{
			nftmsg.Immediate{Register: reg, Value: native(7)},
			nftmsg.SetMeta{Key: unix.NFT_META_MARK, Register: reg},
		}},
		{plain, `ct state established return`, []nftmsg.Expr{
			nftmsg.Ct{Key: unix.NFT_CT_STATE, Register: reg},
			nftmsg.Mask{Bits: native(2), Register: reg},
			nftmsg.Cmp{Op: unix.NFT_CMP_NEQ, Register: reg, Data: native(0)},
			nftmsg.Verdict{Code: unix.NFT_RETURN},
		}},
		{plain, `fib daddr type local counter packets 0 bytes 0`, []nftmsg.Expr{
			nftmsg.Fib{Flags: unix.NFTA_FIB_F_DADDR, Result: unix.NFT_FIB_RESULT_ADDRTYPE,
				Register: reg},
			nftmsg.Cmp{Op: unix.NFT_CMP_EQ, Register: reg, Data: native(unix.RTN_LOCAL)},
			nftmsg.Raw{Name: "counter"},
		}},
		{plain, `ip saddr @addrs`,
			append(slices.Clip(saddr), nftmsg.Lookup{Set: "addrs", Register: reg})},
		{plain, `ip saddr != @addrs`,
			append(slices.Clip(saddr), nftmsg.Lookup{Set: "addrs", Register: reg, Not: true})},
		{plain, `ip saddr vmap @doors`,
			append(slices.Clip(saddr),
				nftmsg.Map{Set: "doors", Register: reg, Into: unix.NFT_REG_VERDICT})},
		{nat, `snat ip to ip saddr map @froms`, append(slices.Clip(saddr),
			nftmsg.Map{Set: "froms", Register: reg, Into: reg},
			nftmsg.NAT{Type: unix.NFT_NAT_SNAT, Family: unix.NFPROTO_IPV4, Addr: reg})},
		{nat, `ip saddr 10.0.0.0/9 masquerade`, append(slices.Clip(saddr),
			nftmsg.Mask{Bits: []byte{255, 128, 0, 0}, Register: reg},
			nftmsg.Cmp{Op: unix.NFT_CMP_EQ, Register: reg, Data: []byte{10, 0, 0, 0}},
			nftmsg.Masq{})},
		{nat, `goto plain`, []nftmsg.Expr{nftmsg.Verdict{Code: unix.NFT_GOTO, Chain: "plain"}}},
	}
	for _, row := range rows {
		tx.AddRule(row.chain, row.rule)
	}
	must(t, c.Commit(&tx))

	listed := map[string][]nftmsg.Rule{}
	for _, ch := range []nftmsg.Chain{plain, nat} {
		rules, err := c.Rules(table, ch.Name)
		must(t, err)
		listed[ch.Name] = rules
	}
	var want []string
	for _, row := range rows {
		want = append(want, row.want)
		rule := listed[row.chain.Name][0]
		listed[row.chain.Name] = listed[row.chain.Name][1:]
		if len(rule.Exprs) != len(row.rule) || rule.Handle == 0 {
			t.Fatalf("%s: listed as %+v", row.want, rule)
		}
		var again []nftmsg.Expr
		for i, raw := range rule.Exprs {
			again = append(again, raw)
			switch read := raw.Read().(type) {
			case nftmsg.Meta, nftmsg.Payload, nftmsg.Cmp, nftmsg.NAT, nftmsg.Verdict:
				if !cmp.Equal(read, any(row.rule[i])) {
					t.Errorf("%s: %+v is listed as %+v", row.want, row.rule[i], read)
				}
			}
		}
		tx = nftmsg.Transaction{} // the listed form can be sent again
		tx.DeleteRule(row.chain, rule.Handle)
		tx.AddRule(row.chain, again)
		must(t, c.Commit(&tx))
	}
	if diff := cmp.Diff(want, rulesOf(ns)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// rulesOf returns the rules of the namespace, as nft(8) lists them.
func rulesOf(ns *testnet.Namespace) (list []string) {
	in := false
	for line := range strings.Lines(ns.Command("nft", "list", "ruleset")) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "chain "):
			in = true
		case line == "}":
			in = false
		case in && !strings.HasPrefix(line, "type "):
			list = append(list, line)
		}
	}
	return list
}

// TestSets checks that nft(8) shows the intended meaning of sets, and that the kernel lists their
// elements as they were sent.
func TestSets(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	name := append([]byte("eth0"), make([]byte, 12)...)
	of := func(types ...nftmsg.Type) []nftmsg.Type { return types }
	rows := []struct {
		set  nftmsg.Set
		want string
		list []nftmsg.Element
	}{
		{nftmsg.Set{Key: of(nftmsg.TypeIPv4Addr), Size: 7, Comment: "all of them"},
			`type ipv4_addr size 7 comment "all of them" elements = { 10.0.0.1 comment "one" }`,
			[]nftmsg.Element{{Key: []byte{10, 0, 0, 1}, Comment: "one"}}},
		{nftmsg.Set{Key: of(nftmsg.TypeIfName)}, `type ifname elements = { "eth0" }`,
			[]nftmsg.Element{{Key: name}}},
		{nftmsg.Set{Key: of(nftmsg.TypeEtherAddr)},
			`type ether_addr elements = { 02:00:00:00:00:01 }`,
			[]nftmsg.Element{{Key: []byte{2, 0, 0, 0, 0, 1}}}},
		{nftmsg.Set{Key: of(nftmsg.TypeIfName, nftmsg.TypeEtherAddr), Size: 5},
			`type ifname . ether_addr size 5 elements = { "eth0" . 02:00:00:00:00:01 }`,
			[]nftmsg.Element{{Key: append(slices.Clip(name), 2, 0, 0, 0, 0, 1, 0, 0)}}},
		{nftmsg.Set{Key: of(nftmsg.TypeIPv4Addr, nftmsg.TypeInetProto, nftmsg.TypeInetService),
			Interval: true},
			`type ipv4_addr . inet_proto . inet_service flags interval elements = { 10.0.0.0/24 . tcp . 80-90 comment "range" }`,
			[]nftmsg.Element{{Key: []byte{10, 0, 0, 0, 6, 0, 0, 0, 0, 80, 0, 0},
				KeyEnd: []byte{10, 0, 0, 255, 6, 0, 0, 0, 0, 90, 0, 0}, Comment: "range"}}},
		{nftmsg.Set{Key: of(nftmsg.TypeInetService),
			Data: of(nftmsg.TypeIPv6Addr, nftmsg.TypeInetService)},
			`type inet_service : ipv6_addr . inet_service elements = { 80 : fd00::1 . 8080 }`,
			[]nftmsg.Element{{Key: []byte{0, 80},
				Value: []byte{0xfd, 15: 1, 16: 0x1f, 17: 0x90, 18: 0, 19: 0}}}},
		{nftmsg.Set{Key: of(nftmsg.TypeIPv4Addr), Data: of(nftmsg.TypeVerdict)},
			`type ipv4_addr : verdict elements = { 10.0.0.1 : drop, 10.0.0.2 : goto plain }`,
			[]nftmsg.Element{{Key: []byte{10, 0, 0, 1},
				Verdict: &nftmsg.Verdict{Code: nftmsg.Drop}},
				{Key: []byte{10, 0, 0, 2},
					Verdict: &nftmsg.Verdict{Code: unix.NFT_GOTO, Chain: "plain"}}}},
	}
	for i, row := range rows {
		s := row.set
		s.Table, s.Name = table, fmt.Sprintf("s%d", i)
		var tx nftmsg.Transaction
		tx.AddTable(table)
		tx.AddChain(plain)
		tx.AddSet(s)
		tx.AddElements(s, row.list)
		if err := c.Commit(&tx); err != nil {
			t.Errorf("%s: %v", row.want, err)
			continue
		}
		kind := "set"
		if s.Data != nil {
			kind = "map"
		}
		words := strings.Fields(ns.Command("nft", "list", kind, "inet", "t", s.Name))
		if diff := cmp.Diff(row.want, strings.Join(words[7:len(words)-2], " ")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		got, err := c.Elements(s)
		must(t, err)
		slices.SortFunc(got, func(a, b nftmsg.Element) int { return slices.Compare(a.Key, b.Key) })
		if diff := cmp.Diff(row.list, got); diff != "" {
			t.Errorf("%s: elements (-want +got):\n%s", row.want, diff)
		}
		if one, err := c.Elements(s, row.list[0].Key); err != nil || len(one) != 1 ||
			one[0].Comment != row.list[0].Comment {
			t.Errorf("%s: first element: %+v, %v", row.want, one, err)
		}
		if comment, err := c.SetComment(s); comment != s.Comment || err != nil {
			t.Errorf("%s: comment %q, %v", row.want, comment, err)
		}
		tx = nftmsg.Transaction{}
		tx.DeleteElements(s, row.list)
		must(t, c.Commit(&tx))
		if left, err := c.Elements(s); len(left) > 0 || err != nil {
			t.Errorf("%s: left %+v, %v", row.want, left, err)
		}
	}
}

// TestNothingThere checks that the error numbers distinguish missing objects from existing ones.
func TestNothingThere(t *testing.T) {
	t.Parallel()
	_, c := setup(t)
	if there, err := c.HasTable(table); there || err != nil {
		t.Errorf("table: %t, %v", there, err)
	}
	if rules, err := c.Rules(table, plain.Name); rules != nil || err != nil {
		t.Errorf("rules: %v, %v", rules, err)
	}
	ask := func(want error) {
		t.Helper()
		_, chain := c.Chain(table, plain.Name)
		_, comment := c.SetComment(addrs)
		_, all := c.Elements(addrs)
		for what, err := range map[string]error{"chain": chain, "set": comment, "elements": all} {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
		if _, err := c.Elements(addrs, []byte{10, 0, 0, 1}); !errors.Is(err, unix.ENOENT) {
			t.Errorf("element: %v", err)
		}
	}
	ask(unix.ENOENT)
	var tx nftmsg.Transaction
	tx.AddTable(table)
	tx.AddChain(plain)
	tx.AddSet(addrs)
	must(t, c.Commit(&tx))
	if there, err := c.HasTable(table); !there || err != nil {
		t.Errorf("table: %t, %v", there, err)
	}
	ask(nil)
}

// TestChainState checks the policy and the use count of chains.
func TestChainState(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	ns.Command("nft", `add table inet t
		add chain inet t plain
		add chain inet t base { type filter hook input priority 0; policy drop; }
		add rule inet t base jump plain
		add rule inet t plain accept`)
	for name, want := range map[string]nftmsg.ChainState{"base": {Use: 1, Drops: true},
		"plain": {Use: 2}} {
		if got, err := c.Chain(table, name); got != want || err != nil {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
	}
}

// TestRefused checks that the error names the first refused change, wraps the errno and includes
// the kernel's explanation, and that nothing is changed.
func TestRefused(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	var tx nftmsg.Transaction
	must(t, c.Commit(&tx)) // no changes
	for _, row := range []struct {
		name  string
		build func(*nftmsg.Transaction)
		errno error
		want  string
	}{
		{"set that does not exist",
			func(tx *nftmsg.Transaction) {
				tx.AddElements(addrs,
					[]nftmsg.Element{{Key: []byte{1, 2, 3, 4}}})
			}, unix.ENOENT, "nft: add elements to set addrs: no such file or directory"},
		{"rule that does not exist", func(tx *nftmsg.Transaction) { tx.DeleteRule(plain, 7) },
			unix.ENOENT, "nft: delete rules of chain plain: no such file or directory"},
		{"the first error counts",
			func(tx *nftmsg.Transaction) { tx.DeleteChain(plain); tx.DeleteSet(addrs) },
			unix.ENOENT, "nft: delete chain plain: no such file or directory"},
		{"chain with rules that lead to it", func(tx *nftmsg.Transaction) {
			tx.AddChain(plain)
			other := nftmsg.Chain{Table: table, Name: "other"}
			tx.AddChain(other)
			tx.AddRule(other, []nftmsg.Expr{nftmsg.Verdict{Code: unix.NFT_JUMP, Chain: plain.Name}})
			tx.DeleteChain(plain)
		}, unix.EBUSY, "nft: delete chain plain: device or resource busy"},
		{"explanation of the kernel",
			func(tx *nftmsg.Transaction) {
				tx.AddChain(nftmsg.Chain{Table: table,
					Name: strings.Repeat("x", 300)})
			},
			unix.ERANGE, "nft: add chain " + strings.Repeat("x", 300) + ": numerical result out of range: Attribute failed policy validation"},
		{"too many elements", func(tx *nftmsg.Transaction) {
			small := addrs
			small.Size = 1
			tx.AddSet(small)
			tx.AddElements(small,
				[]nftmsg.Element{{Key: []byte{1, 2, 3, 4}}, {Key: []byte{1, 2, 3, 5}}})
		}, unix.ENFILE, "nft: add elements to set addrs: too many open files in system"},
	} {
		tx := nftmsg.Transaction{}
		tx.AddTable(table)
		row.build(&tx)
		if err := c.Commit(&tx); !errors.Is(err, row.errno) || err.Error() != row.want {
			t.Errorf("%s: got %v, want %s", row.name, err, row.want)
		}
	}
	if out := ns.Command("nft", "list", "ruleset"); out != "" {
		t.Errorf("changed nevertheless:\n%s", out)
	}
}

// TestLargeTransactions checks that the socket buffers do not limit the size of a transaction or of
// its refusal.
func TestLargeTransactions(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	ns, c := setup(t)
	const many = 100_000
	list := make([]nftmsg.Element, many)
	for i := range list {
		list[i] = nftmsg.Element{Key: binary.BigEndian.AppendUint32(nil, uint32(i)),
			Comment: fmt.Sprintf("owner of the number %d, in quite a few words", i)}
	}
	var tx nftmsg.Transaction
	tx.AddTable(table)
	tx.AddSet(addrs)
	tx.AddElements(addrs, list)
	must(t, c.Commit(&tx))
	got, err := c.Elements(addrs)
	must(t, err)
	slices.SortFunc(got, func(a, b nftmsg.Element) int { return slices.Compare(a.Key, b.Key) })
	if !cmp.Equal(list, got) {
		t.Errorf("%d elements, want the %d of the transaction", len(got), many)
	}
	if n, err := testnet.Generation(ns); n != 2 || err != nil {
		t.Errorf("%d transactions, %v", n-1, err)
	}

	tx = nftmsg.Transaction{}
	for range 20_000 {
		tx.FlushChain(plain)
	}
	if err := c.Commit(&tx); !errors.Is(err, unix.ENOENT) ||
		!strings.Contains(err.Error(), "plain") {
		t.Errorf("many refusals: %v", err)
	}
	if err := c.Commit(&tx); !errors.Is(err, unix.ENOENT) {
		t.Errorf("again: %v", err)
	}
}

// TestRulesWhileTheyChange checks that a list of rules is consistent, or an error is returned.
func TestRulesWhileTheyChange(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	const rules, changes = 2000, 200
	var tx nftmsg.Transaction
	tx.AddTable(table)
	tx.AddChain(plain)
	for range rules {
		tx.AddRule(plain, []nftmsg.Expr{nftmsg.Raw{Name: "counter"}, nftmsg.Verdict{Code: nftmsg.Accept}})
	}
	must(t, c.Commit(&tx))
	there, err := c.Rules(table, plain.Name)
	must(t, err)
	done := make(chan error)
	other := open(t, ns)
	go func() {
		var errs []error
		for _, r := range there[:changes] { // the first rule is removed, so that the others move up
			var tx nftmsg.Transaction
			tx.DeleteRule(plain, r.Handle)
			tx.AddRule(plain, []nftmsg.Expr{nftmsg.Raw{Name: "counter"}})
			errs = append(errs, other.Commit(&tx))
		}
		done <- errors.Join(errs...)
	}()
	for {
		select {
		case err := <-done:
			must(t, err)
			if list, err := c.Rules(table, plain.Name); len(list) != rules || err != nil {
				t.Errorf("%d rules at the end, %v", len(list), err)
			}
			return
		default:
		}
		if list, err := c.Rules(table, plain.Name); err == nil && len(list) != rules ||
			err != nil && !errors.Is(err, netlink.ErrInterrupted) {
			t.Errorf("%d rules, %v", len(list), err)
		}
	}
}
