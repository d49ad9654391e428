package iptables

import (
	"net/netip"
	"testing"
)

func TestParseRule(t *testing.T) {
	addr := netip.MustParseAddr
	for _, row := range []struct {
		line string
		want Rule
		ok   bool
	}{
		{`-A POSTROUTING -s 10.1.2.3/32 -m comment --comment "name: \"net1\" id: \"cid1\"" -j CNI-1`, Rule{Chain: "POSTROUTING", Target: "CNI-1", Comment: `name: "net1" id: "cid1"`, Source: addr("10.1.2.3")}, true},
		{`-A POSTROUTING -s fd00::/64 -g CNI-1`,
			Rule{Chain: "POSTROUTING", Target: "CNI-1", Source: addr("fd00::")}, true},
		{`-A POSTROUTING ! -s 10.1.2.3/32 -j CNI-1`,
			Rule{Chain: "POSTROUTING", Target: "CNI-1", Others: 1}, true},
		{`-A C -m comment --comment "-j ACCEPT" -j CNI-1`,
			Rule{Chain: "C", Target: "CNI-1", Comment: "-j ACCEPT"}, true},
		{`-A C -m comment --comment -j -j CNI-1`, Rule{Chain: "C", Target: "CNI-1", Comment: "-j"},
			true},
		{`-A C -m comment --comment "" -j CNI-1`, Rule{Chain: "C", Target: "CNI-1"}, true},
		{`-A C -i br0 ! -o br0 -m comment --comment a -j DROP`,
			Rule{Chain: "C", Target: "DROP", Comment: "a", In: "br0", Others: 1}, true},
		{`-A C -i br0 -o br1 -p tcp -m tcp --dport 80 --syn -j DNAT --to-destination 10.1.2.3:80`,
			Rule{Chain: "C", Target: "DNAT", In: "br0", Out: "br1", Others: 3}, true},
		{`-A C -d 10.1.2.3/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`,
			Rule{Chain: "C", Target: "ACCEPT", Dest: addr("10.1.2.3"), Others: 1}, true},
		{`-A C -s 10.1.2.3/32`, Rule{Chain: "C", Source: addr("10.1.2.3")}, true},
		{`:CNI-1 - [0:0]`, Rule{}, false},
		{`COMMIT`, Rule{}, false},
		{``, Rule{}, false},
		{`-A C -j "`, Rule{Chain: "C"}, true},
	} {
		if got, ok := parseRule(row.line); ok != row.ok || ok && got != row.want {
			t.Errorf("%s: got %+v, %t; want %+v, %t", row.line, got, ok, row.want, row.ok)
		}
	}
}

// TestQuote checks that split returns the words that Quote quoted.
func TestQuote(t *testing.T) {
	for _, word := range []string{"", "plain", "two words", `quo"ted`, `back\slash`, "it's", "-j",
		`\"`} {
		if got := split("-A C " + Quote(word) + " -j X"); len(got) != 5 || got[2] != word {
			t.Errorf("%q became %q", word, got)
		}
	}
}

func FuzzParseRule(f *testing.F) {
	f.Add(`-A POSTROUTING -s 10.1.2.3/32 -m comment --comment "name: \"net1\" id: \"cid1\"" -j CNI-1`)
	f.Fuzz(func(t *testing.T, line string) {
		if r, ok := parseRule(line); ok && len(split(line)) < 2 {
			t.Errorf("%q is a rule: %v", line, r)
		}
	})
}
