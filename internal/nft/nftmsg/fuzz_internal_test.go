package nftmsg

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// inside returns the content of an attribute.
func inside(a netlink.Attribute) []byte { return a[unix.SizeofRtAttr:] }

// FuzzElement checks that any element that can be decoded encodes to the same bytes.
func FuzzElement(f *testing.F) {
	for _, e := range []Element{
		{Key: []byte{10, 1, 2, 3}, Comment: "owner a"},
		{Key: []byte{10, 0, 0, 0}, KeyEnd: []byte{10, 0, 0, 255}, Value: []byte{192, 0, 2, 1}},
		{Key: []byte{10, 1, 2, 3}, Verdict: &Verdict{Code: unix.NFT_GOTO, Chain: "gate"}},
	} {
		f.Add(inside(e.encode()))
	}
	f.Add([]byte(netlink.Bytes(unix.NFTA_SET_ELEM_USERDATA, []byte{ofElementComment, 7, 'x'})))
	f.Fuzz(func(t *testing.T, b []byte) {
		e := decodeElement(b)
		if len(e.Comment) > 254 || e.Verdict != nil && e.Value != nil {
			return // longer than an element may be; nft never sends either
		}
		if again := decodeElement(inside(e.encode())); !reflect.DeepEqual(e, again) &&
			e.Key != nil {
			t.Fatalf("%+v is sent as %+v", e, again)
		}
	})
}

// FuzzRule checks that the expressions of any rule encode as they were decoded, and that Read
// accepts them.
func FuzzRule(f *testing.F) {
	for _, rule := range [][]Expr{
		{Meta{unix.NFT_META_IIFNAME, 1}, Cmp{unix.NFT_CMP_EQ, 1, []byte("eth0")},
			Verdict{unix.NFT_JUMP, "other"}},
		{Payload{1, 12, 4, 1}, Mask{[]byte{255, 0, 0, 0}, 1}, Range{0, 1, []byte{1}, []byte{2}},
			NAT{1, 2, 1, 9}},
		{Raw{"match", inside(nest(0, netlink.String(unix.NFTA_MATCH_NAME, "comment"), netlink.Bytes(unix.NFTA_MATCH_INFO, make([]byte, 256))))}},
		{Raw{"target", inside(nest(0, netlink.String(unix.NFTA_TARGET_NAME, "MASQUERADE")))}},
		{Raw{"immediate", inside(nest(0, number(unix.NFTA_IMMEDIATE_DREG, 1), value(unix.NFTA_IMMEDIATE_DATA, []byte{7})))}},
	} {
		var steps []netlink.Attribute
		for _, e := range rule {
			steps = append(steps, e.Encode())
		}
		f.Add([]byte(slices.Concat(nest(unix.NFTA_RULE_EXPRESSIONS, steps...),
			netlink.Bytes(unix.NFTA_RULE_USERDATA, appendText(nil, ofRuleComment, "a")),
			netlink.Bytes(unix.NFTA_RULE_HANDLE, []byte{0, 0, 0, 0, 0, 0, 0, 7}))))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, e := range decodeRule(b).Exprs {
			read := e.Read()
			again := decodeExpr(inside(e.Encode())).Read()
			if got, want := fmt.Sprintf("%+v", again), fmt.Sprintf("%+v", read); got != want &&
				len(e.Name) < 64 && len(e.Data) < 1<<15 {
				t.Fatalf("%s is sent as %s", want, got)
			}
		}
	})
}

// TestUserdata checks that numbers and texts are where nft(8) expects them, and that a truncated
// text is ignored.
func TestUserdata(t *testing.T) {
	t.Parallel()
	b := appendText(appendNumber(nil, ofSetKeyOrder, networkOrder), ofSetComment, "of the set")
	if got := textOf(b, ofSetComment); got != "of the set" {
		t.Errorf("comment %q", got)
	}
	for n := range b {
		if got := textOf(b[:n], ofSetComment); got != "" {
			t.Errorf("of the first %d bytes: %q", n, got)
		}
	}
}
