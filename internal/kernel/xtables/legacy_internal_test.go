package xtables

import (
	"net/netip"
	"testing"
)

func TestParseJump(t *testing.T) {
	addr := netip.MustParseAddr
	for _, row := range []struct {
		line string
		want Jump
		ok   bool
	}{
		{`-A POSTROUTING -s 10.1.2.3/32 -m comment --comment "name: \"net1\" id: \"cid1\"" -j CNI-1`, Jump{"CNI-1", `name: "net1" id: "cid1"`, addr("10.1.2.3")}, true},
		{`-A POSTROUTING -s fd00::/64 -g CNI-1`, Jump{Chain: "CNI-1", Source: addr("fd00::")}, true},
		{`-A POSTROUTING ! -s 10.1.2.3/32 -j CNI-1`, Jump{Chain: "CNI-1"}, true},
		{`-A POSTROUTING -m comment --comment "-j ACCEPT" -j CNI-1`, Jump{Chain: "CNI-1", Comment: "-j ACCEPT"}, true},
		{`-A POSTROUTING -m comment --comment -j -j CNI-1`, Jump{Chain: "CNI-1", Comment: "-j"}, true},
		{`-A POSTROUTING -m comment --comment "" -j CNI-1`, Jump{Chain: "CNI-1"}, true},
		{`-A POSTROUTING -s 10.1.2.3/32`, Jump{}, false},
		{`-A PREROUTING -s 10.1.2.3/32 -j CNI-1`, Jump{}, false},
		{`:CNI-1 - [0:0]`, Jump{}, false},
		{`COMMIT`, Jump{}, false},
		{``, Jump{}, false},
		{`-A POSTROUTING -j "`, Jump{}, false},
	} {
		if got, ok := parseJump(row.line); ok != row.ok || ok && got != row.want {
			t.Errorf("%s: got %v, %t; want %v, %t", row.line, got, ok, row.want, row.ok)
		}
	}
}

func FuzzParseJump(f *testing.F) {
	f.Add(`-A POSTROUTING -s 10.1.2.3/32 -m comment --comment "name: \"net1\" id: \"cid1\"" -j CNI-1`)
	f.Fuzz(func(t *testing.T, line string) {
		if j, ok := parseJump(line); ok && j.Chain == "" {
			t.Errorf("%q jumps nowhere", line)
		}
	})
}
