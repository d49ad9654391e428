package hostnat_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"testing"

	"github.com/tenon-cni/tenon/internal/iptables"
	"github.com/tenon-cni/tenon/internal/iptables/hostnat"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// blobOf returns the blob of a legacy table with the given rules.
func blobOf(t testing.TB, f iptables.Family, rules ...string) *hostnat.Legacy {
	t.Helper()
	tool := [...]string{"iptables-legacy", "ip6tables-legacy"}[f]
	testnet.Require(t, testnet.Tool(tool))
	host := testnet.New(t).Host
	host.Command(tool, "-t", "nat", "-N", "MINE")
	for _, rule := range rules {
		host.Command("sh", "-c", tool+" -t nat "+rule)
	}
	l, err := hostnat.OpenLegacy(testnet.NS(t, host), f)
	if err != nil || l == nil {
		t.Fatal(l, err)
	}
	t.Cleanup(l.Close)
	return l
}

// TestPartly checks that a table is read only as far as needed, and that its beginning is the same
// as in a complete read.
func TestPartly(t *testing.T) {
	t.Parallel()
	var rules []string
	for range 200 {
		rules = append(rules, "-A MINE -s 10.0.0.0/8 -m comment --comment filler -j ACCEPT")
	}
	l := blobOf(t, iptables.IPv4,
		append(rules, "-A POSTROUTING -j MASQUERADE",
			"-A OUTPUT -m comment --comment 'kubernetes service portals' -j MINE",
			"-A PREROUTING -j MINE")...)
	for _, base := range []string{"OUTPUT", "POSTROUTING"} {
		rules, err := l.Chain(base)
		if err != nil || len(rules) != 1 {
			t.Fatalf("%s: %v, %v", base, rules, err)
		}
	}
	if n := len(l.Blob()); n > 2*os.Getpagesize() || uint32(n) >= l.Size() {
		t.Errorf("%d bytes of %d were read", n, l.Size())
	}
	beginning := bytes.Clone(l.Blob())
	mine, err := l.Chain("MINE")
	if err != nil || len(mine) != 200 {
		t.Fatalf("%d rules, %v", len(mine), err)
	}
	if !bytes.Equal(beginning, l.Blob()[:len(beginning)]) {
		t.Error("the complete read has another beginning")
	}
	if absent, err := l.Chain("ABSENT"); absent != nil || err != nil {
		t.Errorf("%v, %v", absent, err)
	}
}

// FuzzEntries checks that reading any blob ends, and stays within it.
func FuzzEntries(f *testing.F) {
	for _, family := range []iptables.Family{iptables.IPv4, iptables.IPv6} {
		l := blobOf(f, family, "-A MINE -p udp --dport 53 -j RETURN",
			"-A POSTROUTING ! -o eth+ -j MINE",
			"-A PREROUTING -p tcp -m multiport --dports 80,90:99 -m addrtype --dst-type LOCAL -j REDIRECT")
		if err := l.ReadAll(); err != nil {
			f.Fatal(err)
		}
		f.Add(l.Blob(), family == iptables.IPv6)
	}
	f.Fuzz(func(t *testing.T, blob []byte, six bool) {
		family := iptables.IPv4
		if six {
			family = iptables.IPv6
		}
		rules, err := hostnat.RulesOf(family, blob)
		if err != nil && !errors.Is(err, hostnat.ErrBlob) {
			t.Fatal(err)
		}
		for _, r := range rules {
			_ = r.String()
		}
	})
}

// FuzzMatch checks that any match is either decoded or counted as one other condition.
func FuzzMatch(f *testing.F) {
	ports := binary.NativeEndian.AppendUint16(nil, 80)
	for _, name := range []string{"comment", "tcp", "udp", "sctp", "multiport", "addrtype",
		"mark"} {
		f.Add(name, byte(1), bytes.Repeat(ports, 200))
		f.Add(name, byte(0), []byte{1, 1, 80, 0})
	}
	f.Fuzz(func(t *testing.T, name string, revision byte, info []byte) {
		var r hostnat.Rule
		r.Match(name, revision, info)
		if len(r.Others) > 1 {
			t.Errorf("%s counts as %d conditions", name, len(r.Others))
		}
		_ = r.String()
	})
}
