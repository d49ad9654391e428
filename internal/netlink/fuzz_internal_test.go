package netlink

import (
	"bytes"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzRoute checks that encoding and decoding leave a decoded route unchanged, and that the request
// of a request is the same.
func FuzzRoute(f *testing.F) {
	for _, r := range []Route{
		{Dst: netip.MustParsePrefix("10.9.0.0/16"), GW: netip.MustParseAddr("10.1.2.1"),
			Priority: 7, MTU: 1300, AdvMSS: 1200, Link: 2},
		{Dst: netip.MustParsePrefix("::/0"), Src: netip.MustParseAddr("fd00::3"), Table: 1000,
			Link: 2},
	} {
		m := r.message(Protocol)
		f.Add(Body(m.RtMsg, m.encode()...))
		hops := MultipathHop{unix.RtNexthop{Flags: unix.RTNH_F_DEAD, Hops: 2, Ifindex: 3},
			Bytes(unix.RTA_GATEWAY, r.Dst.Addr().AsSlice())}.appendTo(nil)
		m = m.without(unix.RTA_OIF).with(unix.RTA_MULTIPATH,
			append(hops, hops...)).with(unix.RTA_CACHEINFO, make([]byte, 32))
		f.Add(Body(m.RtMsg, m.encode()...))
	}
	same := func(a, b routeMessage) bool {
		return a.RtMsg == b.RtMsg && maps.EqualFunc(a.attributes, b.attributes, bytes.Equal)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := readRoute(b)
		if err != nil {
			return
		}
		_ = m.hops()
		if again, err := readRoute(Body(m.RtMsg, m.encode()...)); err != nil || !same(m, again) {
			t.Fatalf("%v is sent as %v: %v", m, again, err)
		}
		request := m.request()
		if again := request.request(); !same(request, again) {
			t.Fatalf("%v is asked for as %v", request, again)
		}
		if hops := m.through(3).hops(); m.has(unix.RTA_MULTIPATH) &&
			slices.ContainsFunc(hops, func(r Route) bool { return r.Link != 3 }) {
			t.Fatalf("%v has hops through other links", hops)
		}
	})
}

// FuzzDecoders checks that no description of a link, rule, qdisc or filter causes a panic.
func FuzzDecoders(f *testing.F) {
	f.Add(Body(header(2), String(unix.IFLA_IFNAME, "br0"), Nest(unix.IFLA_LINKINFO,
		String(unix.IFLA_INFO_KIND, "bridge"), Nest(unix.IFLA_INFO_DATA,
			Uint8(unix.IFLA_BR_VLAN_FILTERING, 1)))))
	about, attributesOfRule := PolicyRule{Src: netip.MustParsePrefix("10.1.2.3/32"), Table: 100,
		Priority: 7, Protocol: Protocol}.message()
	f.Add(Body(about, attributesOfRule...))
	f.Add(Body(tcMsg{}, kindOf(kindTBF), TBF{Rate: 1 << 33, Buffer: 1000, Limit: 7}.options()))
	f.Add(Body(tcMsg{}, kindOf(kindU32),
		Filter{Match: Match{Prefix: netip.MustParsePrefix("fd00::/64")}, Target: 7}.options()))
	f.Add(Body(header(2), Nest(unix.IFLA_LINKINFO, String(unix.IFLA_INFO_KIND, KindVXLAN),
		Nest(unix.IFLA_INFO_DATA, VXLAN{VNI: 7, Local: netip.IPv6Loopback()}.data()...))))
	f.Add(Neighbour{Link: 2, Addr: netip.IPv6Loopback(), MAC: [6]byte{2}}.body(unix.AF_INET6, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = readLink(b)
		_ = readEvents(b)
		for _, kind := range []uint16{unix.RTM_NEWADDR, unix.RTM_DELROUTE, unix.RTM_NEWNEIGH} {
			_, _, _ = readEvent(reply{kind: kind, payload: b})
		}
		var rule RuleMsg
		if values, err := ReadBody(b, &rule); err == nil {
			_ = newPolicyRule(rule, values).String()
		}
		var o tcObject
		if values, err := ReadBody(b, &o.tcMsg); err == nil {
			o.attributes = attributes(values)
			_, _ = decodeTBF(o.attributes[unix.TCA_OPTIONS])
			filter, _ := decodeFilter(Ingress, o)
			_ = filter.String()
		}
	})
}

// FuzzFlow checks that the attributes for the deletion of a flow identify the same flow.
func FuzzFlow(f *testing.F) {
	for _, a := range []string{"10.0.0.1", "fd00::1"} {
		src := netip.MustParseAddr(a).AsSlice()
		address := Nest(tupleIP, Bytes(ip4Src, src), Bytes(ip4Dst, src))
		if len(src) == 16 {
			address = Nest(tupleIP, Bytes(ip6Src, src), Bytes(ip6Dst, src))
		}
		port := Nest(tupleProto, Uint8(protoNum, unix.IPPROTO_UDP),
			Bytes(protoSrcPort, []byte{3, 232}), Bytes(protoDstPort, []byte{0, 53}))
		f.Add(Body(Netfilter{}, Nest(flowOrig, address, port), Nest(flowReply, address, port),
			Uint32(flowID, 7), Uint16(flowZone, 3)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := readFlow(b)
		if err != nil {
			return
		}
		again, err := readFlow(Body(Netfilter{}, e.name...))
		if err != nil || again.flow.Orig != e.flow.Orig || again.flow.Protocol != e.flow.Protocol {
			t.Fatalf("%v is named as %v: %v", e.flow, again.flow, err)
		}
	})
}

// TestReadFlow checks that a flow without an original tuple is an error, because the kernel would
// delete all flows.
func TestReadFlow(t *testing.T) {
	t.Parallel()
	for _, b := range [][]byte{nil, Body(Netfilter{}), Body(Netfilter{}, Nest(flowReply)),
		Body(Netfilter{}, Nest(flowOrig))} {
		if e, err := readFlow(b); err == nil {
			t.Errorf("% x is read as %v", b, e.flow)
		}
	}
}

// TestWire checks that encoded rules, shapers and filters decode to the same values.
func TestWire(t *testing.T) {
	t.Parallel()
	rule := PolicyRule{Src: netip.MustParsePrefix("10.1.0.0/16"), Table: 1000, Priority: 7,
		Protocol: Protocol}
	about, list := rule.message()
	if got := newPolicyRule(about, slices.Concat(list...)); got != rule {
		t.Errorf("%+v is sent as %+v", rule, got)
	}
	for _, shaper := range []TBF{{Rate: 125, Buffer: 6400, Limit: 7},
		{Rate: 1 << 33, Buffer: 64, Limit: 1 << 31}} {
		options := attributes(shaper.options())[unix.TCA_OPTIONS]
		if got, err := decodeTBF(options); err != nil || got != shaper {
			t.Errorf("%v is sent as %v, %v", shaper, got, err)
		}
	}
	for _, filter := range []Filter{
		{Hook: Ingress, Priority: 1, Target: 7},
		{Hook: Egress, Priority: 2,
			Match: Match{Prefix: netip.MustParsePrefix("10.0.0.0/9"), Dst: true}},
		{Hook: Ingress, Priority: 3, Match: Match{Prefix: netip.MustParsePrefix("fd00::/61")},
			Target: 7},
	} {
		o := tcObject{tcMsg{Info: handle(filter.Priority, swapped(filter.Match.protocol()))},
			attributes(slices.Concat(kindOf(kindU32), filter.options()))}
		if got, ok := decodeFilter(filter.Hook, o); !ok || got != filter {
			t.Errorf("%v is sent as %v", filter, got)
		}
	}
}
