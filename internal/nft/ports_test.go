package nft_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/nft"
	"github.com/tenon-cni/tenon/internal/testnet"
)

const (
	tcp, udp, sctp = 6, 17, 132
)

// mapping returns a mapping to an address and port.
func mapping(protocol byte, host string, first, last uint16, to string) nft.Mapping {
	m := nft.Mapping{Protocol: protocol, First: first, Last: last, To: netip.MustParseAddrPort(to)}
	if host != "" {
		m.Host = netip.MustParseAddr(host)
	}
	return m
}

func TestPortsReadAsIntended(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	entries, err := nft.Publish("owner a", portsRead(t))
	must(t, err)
	_, err = c.Apply(t.Context(), nft.Request{Owner: "owner a", Elements: entries})
	must(t, err)
	if diff := cmp.Diff(portsAsRead, ns.Command("nft", "list", "ruleset")); diff != "" {
		t.Errorf("ruleset (-want +got):\n%s", diff)
	}
	missing, err := lacks(t, c, nft.Request{Owner: "owner a", Elements: entries})
	must(t, err)
	if len(missing) > 0 {
		t.Errorf("missing: %v", missing)
	}
}

// portsRead returns the publication of portsAsRead.
func portsRead(t *testing.T) nft.Publication {
	t.Helper()
	when, err := nft.ParseCondition(nft.IPv4, []string{"ip", "saddr", "!=", "10.0.0.0/8"})
	must(t, err)
	return nft.Publication{
		Mappings: []nft.Mapping{
			mapping(tcp, "", 8080, 8080, "10.1.2.3:80"),
			mapping(udp, "192.0.2.1", 53, 53, "10.1.2.3:5353"),
			mapping(tcp, "", 9000, 9009, "10.1.2.3:9000"),
			mapping(sctp, "192.0.2.1", 9000, 9009, "10.1.2.3:9000"),
			mapping(tcp, "", 8080, 8080, "[fd00::3]:80"),
			mapping(udp, "2001:db8::1", 53, 53, "[fd00::3]:5353"),
			mapping(tcp, "", 9000, 9009, "[fd00::3]:9000"),
			mapping(sctp, "2001:db8::1", 9000, 9009, "[fd00::3]:9000"),
		},
		Hairpins: []nft.Hairpin{
			{To: netip.MustParseAddr("10.1.2.3"), From: netip.MustParsePrefix("127.0.0.0/8")},
			{To: netip.MustParseAddr("10.1.2.3"), From: netip.MustParsePrefix("10.1.2.3/24")},
			{To: netip.MustParseAddr("fd00::3"), From: netip.MustParsePrefix("fd00::/64")},
		},
		When4: when,
	}
}

const portsAsRead = `table inet tenon {
	set publishers {
		type ipv6_addr
		size 65536
		comment "host ports 3"
		elements = { 2aca:3505:ee25:2514:36af:3633:eec:c562 comment "owner a" }
	}

	map dnat4 {
		type inet_proto . inet_service : ipv4_addr . inet_service
		size 65536
		elements = { tcp . 8080 comment "owner a" : 10.1.2.3 . 80 }
	}

	map dnatat4 {
		type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service
		size 65536
		elements = { 192.0.2.1 . udp . 53 comment "owner a" : 10.1.2.3 . 5353 }
	}

	map ranges4 {
		type inet_proto . inet_service : ipv4_addr
		flags interval
		elements = { tcp . 9000-9009 comment "owner a" : 10.1.2.3 }
	}

	map rangesat4 {
		type ipv4_addr . inet_proto . inet_service : ipv4_addr
		flags interval
		elements = { 192.0.2.1 . sctp . 9000-9009 comment "owner a" : 10.1.2.3 }
	}

	map seconddnat4 {
		type inet_proto . inet_service : ipv4_addr . inet_service
		size 65536
	}

	map seconddnatat4 {
		type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service
		size 65536
	}

	map secondranges4 {
		type inet_proto . inet_service : ipv4_addr
		flags interval
	}

	map secondrangesat4 {
		type ipv4_addr . inet_proto . inet_service : ipv4_addr
		flags interval
	}

	map gates4 {
		type ipv4_addr . inet_proto . inet_service : verdict
		flags interval
		elements = { 0.0.0.0/0 . tcp . 8080 comment "owner a" : goto hostports_1487cd6c3599b59a,
			     192.0.2.1 . udp . 53 comment "owner a" : goto hostports_1487cd6c3599b59a,
			     0.0.0.0/0 . tcp . 9000-9009 comment "owner a" : goto hostports_1487cd6c3599b59a,
			     192.0.2.1 . sctp . 9000-9009 comment "owner a" : goto hostports_1487cd6c3599b59a }
	}

	set hairpin4 {
		type ipv4_addr . ipv4_addr
		flags interval
		elements = { 10.1.2.3 . 127.0.0.0/8 comment "owner a",
			     10.1.2.3 . 10.1.2.0/24 comment "owner a" }
	}

	map dnat6 {
		type inet_proto . inet_service : ipv6_addr . inet_service
		size 65536
		elements = { tcp . 8080 comment "owner a" : fd00::3 . 80 }
	}

	map dnatat6 {
		type ipv6_addr . inet_proto . inet_service : ipv6_addr . inet_service
		size 65536
		elements = { 2001:db8::1 . udp . 53 comment "owner a" : fd00::3 . 5353 }
	}

	map ranges6 {
		type inet_proto . inet_service : ipv6_addr
		flags interval
		elements = { tcp . 9000-9009 comment "owner a" : fd00::3 }
	}

	map rangesat6 {
		type ipv6_addr . inet_proto . inet_service : ipv6_addr
		flags interval
		elements = { 2001:db8::1 . sctp . 9000-9009 comment "owner a" : fd00::3 }
	}

	map seconddnat6 {
		type inet_proto . inet_service : ipv6_addr . inet_service
		size 65536
	}

	map seconddnatat6 {
		type ipv6_addr . inet_proto . inet_service : ipv6_addr . inet_service
		size 65536
	}

	map secondranges6 {
		type inet_proto . inet_service : ipv6_addr
		flags interval
	}

	map secondrangesat6 {
		type ipv6_addr . inet_proto . inet_service : ipv6_addr
		flags interval
	}

	map gates6 {
		type ipv6_addr . inet_proto . inet_service : verdict
		flags interval
	}

	set hairpin6 {
		type ipv6_addr . ipv6_addr
		flags interval
		elements = { fd00::3 . fd00::/64 comment "owner a" }
	}

	chain hostports_dnat {
		meta nfproto ipv4 ct label set 29 dnat ip to meta l4proto . th dport map @dnat4
		meta nfproto ipv4 ct label set 29 dnat ip to ip daddr . meta l4proto . th dport map @dnatat4
		meta nfproto ipv4 ct label set 29 dnat ip to meta l4proto . th dport map @ranges4
		meta nfproto ipv4 ct label set 29 dnat ip to ip daddr . meta l4proto . th dport map @rangesat4
		meta nfproto ipv4 ct label set 29 dnat ip to meta l4proto . th dport map @seconddnat4
		meta nfproto ipv4 ct label set 29 dnat ip to ip daddr . meta l4proto . th dport map @seconddnatat4
		meta nfproto ipv4 ct label set 29 dnat ip to meta l4proto . th dport map @secondranges4
		meta nfproto ipv4 ct label set 29 dnat ip to ip daddr . meta l4proto . th dport map @secondrangesat4
		meta nfproto ipv6 ct label set 29 dnat ip6 to meta l4proto . th dport map @dnat6
		meta nfproto ipv6 ct label set 29 dnat ip6 to ip6 daddr . meta l4proto . th dport map @dnatat6
		meta nfproto ipv6 ct label set 29 dnat ip6 to meta l4proto . th dport map @ranges6
		meta nfproto ipv6 ct label set 29 dnat ip6 to ip6 daddr . meta l4proto . th dport map @rangesat6
		meta nfproto ipv6 ct label set 29 dnat ip6 to meta l4proto . th dport map @seconddnat6
		meta nfproto ipv6 ct label set 29 dnat ip6 to ip6 daddr . meta l4proto . th dport map @seconddnatat6
		meta nfproto ipv6 ct label set 29 dnat ip6 to meta l4proto . th dport map @secondranges6
		meta nfproto ipv6 ct label set 29 dnat ip6 to ip6 daddr . meta l4proto . th dport map @secondrangesat6
	}

	chain hostports {
		ip daddr . meta l4proto . th dport vmap @gates4
		ip6 daddr ::1 return
		ip6 daddr . meta l4proto . th dport vmap @gates6
		goto hostports_dnat
	}

	chain hostports_prerouting {
		type nat hook prerouting priority dstnat + 5; policy accept;
		fib daddr type local goto hostports
	}

	chain hostports_output {
		type nat hook output priority -95; policy accept;
		fib daddr type local goto hostports
	}

	chain hostports_postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		ct label 29 ip daddr . ip saddr @hairpin4 masquerade
		ct label 29 ip6 daddr . ip6 saddr @hairpin6 masquerade
	}

	chain hostports_loopback {
		type filter hook prerouting priority raw; policy accept;
		iifname != "lo" ip saddr 127.0.0.0/8 drop
		iifname != "lo" ip daddr 127.0.0.0/8 drop
	}

	chain hostports_1487cd6c3599b59a {
		ip saddr != 10.0.0.0-10.255.255.255 goto hostports_dnat
	}
}
`

// rangesByCommand requires that command nft can add rules with ranges of ports. nft 1.0.6 converts
// the protocol, one byte, as a number of two bytes, which Linux 6.12.117 and 7.3.4 refuse. Our rules
// do not convert it.
func rangesByCommand(ns *testnet.Namespace) testnet.Need {
	return func() error {
		err := ns.Try("nft", `table inet ranges {
			set s { type inet_proto . inet_service; flags interval; }
			chain c { meta l4proto . th dport @s; }
		}`)
		if err != nil {
			return fmt.Errorf("nft cannot add rules with ranges of ports: %w", err)
		}
		return ns.Try("nft", "delete table inet ranges")
	}
}

// TestHostPortsTwoIsReplaced checks that mappings in the table of the previous release are in force
// for CHECK and stay in force when the next Apply replaces the table. DEL removes them from either
// version.
func TestHostPortsTwoIsReplaced(t *testing.T) {
	t.Parallel()
	before := strings.NewReplacer(
		"host ports 3", "host ports 2", "ct label set 29 ", "", "ct label 29", "ct status dnat",
	).Replace(portsAsRead)
	entries, err := nft.Publish("owner a", portsRead(t))
	must(t, err)
	request := nft.Request{Owner: "owner a", Elements: entries}
	complete := func(c *nft.Conn, want bool) {
		t.Helper()
		missing, err := lacks(t, c, request)
		must(t, err)
		if (len(missing) == 0) != want {
			t.Errorf("missing: %v", missing)
		}
	}
	ns, c := setup(t)
	testnet.Require(t, testnet.Optional(rangesByCommand(ns)))
	ns.Command("nft", before)
	complete(c, true)
	_, err = publish(t, c, "owner b", mapping(tcp, "", 8080, 8080, "10.1.2.4:80"))
	if conflict := new(nft.ConflictError); !errors.As(err, &conflict) ||
		conflict.Holder != "owner a" {
		t.Errorf("%v, want that owner a has the port", err)
	}
	undo, err := publish(t, c, "owner b", mapping(tcp, "", 8888, 8888, "10.1.2.4:80"))
	must(t, err)
	complete(c, true)
	must(t, undo(t.Context()))
	if diff := cmp.Diff(sortedLines(portsAsRead),
		sortedLines(ns.Command("nft", "list", "ruleset"))); diff != "" {
		t.Errorf("replaced (-want +got):\n%s", diff)
	}

	ns, c = setup(t)
	ns.Command("nft", before)
	ns.Command("nft", "flush", "chain", "inet", "tenon", "hostports_output")
	complete(c, false)
	_, err = c.Apply(t.Context(), request) // as repair does
	must(t, err)
	if diff := cmp.Diff(sortedLines(portsAsRead),
		sortedLines(ns.Command("nft", "list", "ruleset"))); diff != "" {
		t.Errorf("repaired (-want +got):\n%s", diff)
	}

	ns, c = setup(t)
	ns.Command("nft", before)
	_, err = c.Remove(t.Context(), nft.Publishing, is("owner a"), new(nft.Publisher("owner a")))
	must(t, err)
	if out := ns.Command("nft", "list", "ruleset"); strings.Contains(out, "owner a") {
		t.Errorf("left:\n%s", out)
	}
}

// publish publishes mappings for an owner and returns the undo.
func publish(t testing.TB, c *nft.Conn, tag string,
	maps ...nft.Mapping) (undo func(context.Context) error, err error) {
	t.Helper()
	entries, err := nft.Publish(tag, nft.Publication{Mappings: maps})
	must(t, err)
	return c.Apply(t.Context(), nft.Request{Owner: tag, Elements: entries})
}

// TestPortConflict tries the matrix of conflicts: wildcard, address and range against each other,
// in both orders and for both families. The second request fails with an error that names the first
// owner, and changes nothing.
func TestPortConflict(t *testing.T) {
	t.Parallel()
	any4 := mapping(tcp, "", 8080, 8080, "10.1.2.3:80")
	at4 := mapping(tcp, "192.0.2.1", 8080, 8080, "10.1.2.3:80")
	range4 := mapping(tcp, "", 8000, 8100, "10.1.2.3:8000")
	rangeAt4 := mapping(tcp, "192.0.2.1", 8000, 8100, "10.1.2.3:8000")
	any6 := mapping(tcp, "", 8080, 8080, "[fd00::3]:80")
	at6 := mapping(tcp, "2001:db8::1", 8080, 8080, "[fd00::3]:80")
	range6 := mapping(tcp, "", 8000, 8100, "[fd00::3]:8000")
	rangeAt6 := mapping(tcp, "2001:db8::1", 8000, 8100, "[fd00::3]:8000")
	var rows []conflictRow
	for _, group := range [][]nft.Mapping{{any4, at4, range4, rangeAt4},
		{any6, at6, range6, rangeAt6}} {
		for _, a := range group {
			for _, b := range group {
				rows = append(rows, conflictRow{a, b, true})
			}
		}
	}
	for _, free := range []conflictRow{
		{any4, any6, false}, {range4, range6, false}, // families
		{any4, mapping(udp, "", 8080, 8080, "10.1.2.4:80"), false},
		{range4, mapping(udp, "", 8000, 8100, "10.1.2.4:8000"), false},
		{at4, mapping(tcp, "192.0.2.2", 8080, 8080, "10.1.2.4:80"), false},
		{rangeAt4, mapping(tcp, "192.0.2.2", 8000, 8100, "10.1.2.4:8000"), false},
		{rangeAt4, mapping(tcp, "192.0.2.2", 8080, 8080, "10.1.2.4:80"), false},
		{any4, mapping(tcp, "", 8081, 8081, "10.1.2.4:80"), false},
		{range4, mapping(tcp, "", 8101, 8200, "10.1.2.4:8101"), false},
		{range4, mapping(tcp, "", 8101, 8101, "10.1.2.4:80"), false},
		{range4, mapping(tcp, "", 8100, 8200, "10.1.2.4:8100"), true},
		{range4, mapping(tcp, "", 7000, 9000, "10.1.2.4:7000"), true},
	} {
		rows = append(rows, free, conflictRow{free.second, free.first, free.conflict})
	}
	for _, row := range rows {
		t.Run(fmt.Sprintf("%s, %s", row.first, row.second), func(t *testing.T) {
			t.Parallel()
			ns, c := setup(t)
			_, err := publish(t, c, "first", row.first)
			must(t, err)
			before := ns.Command("nft", "list", "ruleset")
			_, err = publish(t, c, "second", mapping(sctp, "", 1, 1, "10.9.9.9:1"), row.second)
			var conflict *nft.ConflictError
			if got := errors.As(err, &conflict); got != row.conflict || !got && err != nil {
				t.Errorf("%v, want a conflict: %t", err, row.conflict)
			}
			if row.conflict &&
				(conflict.Holder != "first" ||
					!strings.Contains(conflict.What, row.second.String())) {
				t.Errorf("%+v", conflict)
			}
			after := ns.Command("nft", "list", "ruleset")
			if row.conflict != (before == after) {
				t.Errorf("changed: %t\n%s", before != after, cmp.Diff(before, after))
			}
			_, err = publish(t, c, "first", row.first) // an owner's own mappings never conflict
			must(t, err)
		})
	}
}

// TestSharedPorts checks that owners that share ports keep the order in which they were applied,
// and that applying them again changes nothing. The first owner has the ports; when it is removed,
// they pass to the second. A third owner must apply its ports again. Ports that differ, or that
// have a condition, conflict.
func TestSharedPorts(t *testing.T) {
	t.Parallel()
	shares := func(tag string) bool { return tag == "a" || tag == "b" || tag == "z" }
	request := func(tag string, p nft.Publication) nft.Request {
		if shares(tag) {
			p.Shares = shares
		}
		entries, err := nft.Publish(tag, p)
		must(t, err)
		return nft.Request{Owner: tag, Elements: entries}
	}
	to := func(address string) nft.Publication {
		return nft.Publication{Mappings: []nft.Mapping{
			mapping(tcp, "", 8080, 8080, address+":80"),
			mapping(tcp, "192.0.2.1", 8081, 8081, address+":80"),
			mapping(udp, "", 9000, 9100, address+":9000"),
		}}
	}
	a, b := request("a", to("10.0.0.1")), request("b", to("10.0.0.2"))
	z := request("z", to("10.0.0.9"))
	holds := func(ns *testnet.Namespace, tag string, want int) {
		t.Helper()
		if got := strings.Count(ns.Command("nft", "list", "ruleset"),
			fmt.Sprintf("comment %q : ", tag)); got != want {
			t.Errorf("%s has %d mappings, want %d", tag, got, want)
		}
	}
	ns, c := setup(t)
	lacks := func(request nft.Request, want int) {
		t.Helper()
		if missing, err := lacks(t, c, request); err != nil || len(missing) != want {
			t.Errorf("%s lacks %v, %v, want %d", request.Owner, missing, err, want)
		}
	}
	for i, requests := range [][]nft.Request{{a}, {b}, {a}, {b, a}, {a, z, b}, {z}} {
		_, err := c.Apply(t.Context(), requests...)
		must(t, err)
		holds(ns, "a", 3)
		holds(ns, "b", min(3*i, 3))
		holds(ns, "z", 0)
	}
	for _, request := range []nft.Request{a, b, z} {
		lacks(request, 0)
	}
	when, err := nft.ParseCondition(nft.IPv4, []string{"ip", "saddr", "192.0.2.2"})
	must(t, err)
	var conflict *nft.ConflictError
	for name, other := range map[string]nft.Request{
		"another container": request("c", to("10.0.0.3")),
		"another port": request("b",
			nft.Publication{Mappings: []nft.Mapping{mapping(tcp, "", 8080, 8080, "10.0.0.2:81")}}),
		"more ports": request("b",
			nft.Publication{Mappings: []nft.Mapping{mapping(udp, "", 9000, 9101,
				"10.0.0.2:9000")}}),
		"under a condition": request("b",
			nft.Publication{Mappings: to("10.0.0.2").Mappings, When4: when}),
	} {
		if _, err := c.Apply(t.Context(), other); !errors.As(err, &conflict) ||
			conflict.Holder != "a" {
			t.Errorf("%s: %v, want that a has it", name, err)
		}
	}
	gone := func(tag string) {
		t.Helper()
		_, err := c.Remove(t.Context(), nft.Publishing,
			func(other string) bool { return other == tag }, nil)
		must(t, err)
	}
	gone("a")
	lacks(b, 0)
	lacks(z, 3)
	_, err = c.Apply(t.Context(), b, z)
	must(t, err)
	holds(ns, "b", 3)
	holds(ns, "z", 3)
	gone("b")
	lacks(z, 0)
	if _, err := c.Apply(t.Context(), request("c", to("10.0.0.3"))); !errors.As(err, &conflict) ||
		conflict.Holder != "z" {
		t.Errorf("%v, want that z has it", err)
	}
	gone("z")
	_, err = c.Apply(t.Context(), b, a) // as repair does
	must(t, err)
	holds(ns, "a", 3)
	holds(ns, "b", 3)
	gone("a")
	gone("b")
	_, err = c.Apply(t.Context(), request("c", to("10.0.0.3")))
	must(t, err)
}

type conflictRow struct {
	first, second nft.Mapping
	conflict      bool
}

// TestPortConflictBetweenRequests checks that the first of several requests in one transaction gets
// the port.
func TestPortConflictBetweenRequests(t *testing.T) {
	t.Parallel()
	_, c := setup(t)
	var requests []nft.Request
	for i, tag := range []string{"a", "b", "c"} {
		port := []uint16{8080, 8080, 8081}[i]
		entries, err := nft.Publish(tag,
			nft.Publication{Mappings: []nft.Mapping{mapping(tcp, "", port, port, "10.0.0.1:80")}})
		must(t, err)
		requests = append(requests, nft.Request{Owner: tag, Elements: entries})
	}
	_, err := c.Apply(t.Context(), requests...)
	var conflict *nft.ConflictError
	if !errors.As(err, &conflict) || conflict.Holder != "a" {
		t.Errorf("%v", err)
	}
	owners := map[string]bool{}
	list, err := c.List(t.Context(), nft.Publishing)
	must(t, err)
	for _, h := range list {
		owners[h.Comment] = true
	}
	if !owners["a"] || owners["b"] || !owners["c"] {
		t.Errorf("owners %v", owners)
	}
}

// TestPortConflictRace checks that exactly one of many concurrent requests gets the port.
func TestPortConflictRace(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	var wg sync.WaitGroup
	var won atomic.Int32
	for i := range 20 {
		one := open(t, ns)
		m := mapping(tcp, "", 8080, 8080, fmt.Sprintf("10.1.2.%d:80", i+1))
		switch i % 3 {
		case 1:
			m.Host = netip.MustParseAddr("192.0.2.1")
		case 2:
			m = mapping(tcp, "", 8000, 8100, fmt.Sprintf("10.1.2.%d:8000", i+1))
		}
		wg.Go(func() {
			_, err := publish(t, one, fmt.Sprint(i), m)
			var conflict *nft.ConflictError
			switch {
			case err == nil:
				won.Add(1)
			case !errors.As(err, &conflict):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		list, err := c.List(t.Context(), nft.Publishing)
		t.Errorf("%d have the port: %v, %v", won.Load(), list, err)
	}
}

// TestPublishAgain checks that a new publication removes the owner's previous elements, even if
// none of them is wanted any longer, and that undo restores them.
func TestPublishAgain(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	// A range, because undo must restore every kind of expression.
	when, err := nft.ParseCondition(nft.IPv4, []string{"ip saddr 10.0.0.0/8 meta mark 5-77"})
	must(t, err)
	entries, err := nft.Publish("a", nft.Publication{When4: when, Mappings: []nft.Mapping{
		mapping(tcp, "", 1, 1, "10.0.0.1:1"), mapping(tcp, "", 100, 200, "10.0.0.1:100"),
	}})
	must(t, err)
	_, err = c.Apply(t.Context(), nft.Request{Owner: "a", Elements: entries})
	must(t, err)
	before := ns.Command("nft", "list", "ruleset")
	undo, err := publish(t, c, "a", mapping(udp, "192.0.2.1", 7, 7, "10.0.0.2:7"))
	must(t, err)
	if now := ns.Command("nft", "list", "ruleset"); strings.Contains(now, "10.0.0.1") ||
		strings.Contains(now, "saddr 10.") || !strings.Contains(now, "10.0.0.2 . 7") {
		t.Errorf("after the second:\n%s", now)
	}
	must(t, undo(t.Context()))
	if diff := cmp.Diff(sortedLines(before),
		sortedLines(ns.Command("nft", "list", "ruleset"))); diff != "" {
		t.Errorf("after undo (-before +after):\n%s", diff)
	}
	removed, err := c.Remove(t.Context(), nft.Publishing, is("a"), nil)
	must(t, err)
	if out := ns.Command("nft", "list", "ruleset"); len(removed) == 0 ||
		strings.Contains(out, `"a"`) || strings.Contains(out, "10.0.0.0") {
		t.Errorf("after removal:\n%s", out)
	}
}

// TestDistinct checks that a configuration may repeat a mapping, but not contain two that conflict.
func TestDistinct(t *testing.T) {
	t.Parallel()
	one := mapping(tcp, "", 80, 80, "10.0.0.1:80")
	for _, row := range []struct {
		name string
		list []nft.Mapping
		want int // 0: refused
	}{
		{"the same twice", []nft.Mapping{one, one}, 1},
		{"another target", []nft.Mapping{one, mapping(tcp, "", 80, 80, "10.0.0.1:81")}, 0},
		{"wildcard and address",
			[]nft.Mapping{one, mapping(tcp, "192.0.2.1", 80, 80, "10.0.0.1:80")}, 0},
		{"in a range", []nft.Mapping{one, mapping(tcp, "", 70, 90, "10.0.0.1:70")}, 0},
		{"families", []nft.Mapping{one, mapping(tcp, "", 80, 80, "[fd00::1]:80")}, 2},
		{"protocols", []nft.Mapping{one, mapping(udp, "", 80, 80, "10.0.0.1:80")}, 2},
	} {
		got, err := nft.Distinct(row.list)
		if len(got) != row.want || (err == nil) != (row.want > 0) {
			t.Errorf("%s: %v, %v", row.name, got, err)
		}
	}
}

// TestRangesAreOneElement checks that consecutive mappings that keep their port share one element,
// and that every other mapping has its own.
func TestRangesAreOneElement(t *testing.T) {
	t.Parallel()
	_, c := setup(t)
	var maps []nft.Mapping
	for p := uint16(10000); p < 20000; p++ {
		maps = append(maps, mapping(udp, "", p, p, fmt.Sprintf("10.0.0.1:%d", p)))
	}
	maps = append(maps, mapping(udp, "", 20000, 20009, "10.0.0.1:20000"),
		mapping(udp, "192.0.2.1", 20010, 20010, "10.0.0.1:20010"), mapping(tcp, "", 100, 109,
			"10.0.0.1:200"))
	_, err := publish(t, c, "a", maps...)
	must(t, err)
	list, err := c.List(t.Context(), nft.Publishing)
	must(t, err)
	var got []string
	for _, h := range list {
		if m, ok := nft.Published(h); ok {
			got = append(got, m.String())
		}
	}
	want := []string{"udp *:10000-20009 to 10.0.0.1:10000-20009",
		"udp 192.0.2.1:20010 to 10.0.0.1:20010"}
	for i := range 10 {
		want = append(want, fmt.Sprintf("tcp *:%d to 10.0.0.1:%d", 100+i, 200+i))
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// thousands returns mappings that cannot form one range.
func thousands() (maps []nft.Mapping) {
	for p := uint16(10000); p < 20000; p++ {
		maps = append(maps, mapping(udp, "", p, p, fmt.Sprintf("10.0.0.1:%d", p+1)))
	}
	return maps
}

// TestThousandsOfPorts checks that one transaction adds, or removes, thousands of ports.
func TestThousandsOfPorts(t *testing.T) {
	t.Parallel()
	ns, c := setup(t)
	before := generation(t, ns)
	_, err := publish(t, c, "a", thousands()...)
	must(t, err)
	if n := generation(t, ns) - before; n != 1 {
		t.Errorf("%d transactions", n)
	}
	list, err := c.List(t.Context(), nft.Publishing)
	must(t, err)
	if len(list) != 10001 {
		t.Errorf("%d elements", len(list))
	}
	removed, err := c.Remove(t.Context(), nft.Publishing, is("a"), nil)
	must(t, err)
	if n := generation(t, ns) - before; len(removed) != 10001 || n != 2 {
		t.Errorf("%d removed, %d transactions", len(removed), n)
	}
}

func BenchmarkPublish(b *testing.B) {
	for name, maps := range map[string][]nft.Mapping{
		"one":                {mapping(tcp, "", 8080, 8080, "10.0.0.1:80")},
		"range of 10000":     {mapping(tcp, "", 10000, 20000, "10.0.0.1:10000")},
		"10000 on their own": thousands(),
	} {
		b.Run(name, func(b *testing.B) {
			_, c := setup(b)
			for b.Loop() {
				undo, err := publish(b, c, "a", maps...)
				must(b, err)
				b.StopTimer()
				must(b, undo(b.Context()))
				b.StartTimer()
			}
		})
	}
}
