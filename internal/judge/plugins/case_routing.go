package plugins

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// routingCases judge plugins that move routes to other tables.
var routingCases = []*Case{{
	Name: "source-tables", Roles: []Role{Chained}, Like: []string{"sbr"}, Oldest: cni.V040, Once: true,
	Rows: []string{"R-110", "R-111"},
	Script: func(s *Setup) (*script.Scenario, string) {
		const prepare = `ip -n c1 address add 10.77.1.2/24 dev eth0
ip -n c1 route add default via 10.77.0.1
ip -n c1 -6 route add default via fd77::1`
		previous := s.previous()
		second := map[string]any{"address": "10.77.1.2/24", "interface": 1, "gateway": "10.77.1.1"}
		if s.Version < cni.V100 {
			second["version"] = "4"
		}
		ips := previous["ips"].([]any)
		ips[0].(map[string]any)["gateway"], ips[1].(map[string]any)["gateway"] = "10.77.0.1", "fd77::1"
		previous["ips"] = append(ips, second)
		return s.Scenario(1, script.Step{Shell: prepare, Quiet: true},
			call(s.Call("add", cni.Add, 1, With("prevResult", previous)))), ""
	},
	Judge: judgeSourceTables,
}, {
	Name: "vrf-routes", Roles: []Role{Chained}, Like: []string{"vrf"}, Oldest: cni.V040, Once: true,
	Rows: []string{"R-106", "R-107", "R-108", "R-109"},
	Script: func(s *Setup) (*script.Scenario, string) {
		const prepare = otherLink + `
ip -n c1 route add 203.0.113.0/24 via 192.0.2.1
ip -n c1 route add 198.51.100.0/24 via 10.77.0.1
ip -n c1 -6 route add default nexthop via fd77::8 dev eth0 nexthop via fd77::9 dev eth0`
		return s.Scenario(1, script.Step{Shell: prepare}, call(s.Call("add", cni.Add, 1))), ""
	},
	Judge: judgeVRF,
}}

// route returns the unicast route of a table to a destination, nil if there is none.
func route(n *host.Namespace, table int, destination string) *host.Route {
	i := slices.IndexFunc(n.Routes, func(r host.Route) bool {
		return r.Type == "unicast" && r.Table == table && r.Dst.String() == destination
	})
	if i < 0 {
		return nil
	}
	return &n.Routes[i]
}

// mainTable is the routing table that all packets use without rules.
const mainTable = 254

func judgeSourceTables(j *Judgment) {
	if !j.Requires("add") {
		return
	}
	n := j.After("add").Container("c1")
	tables := map[int]string{}
	for _, address := range []string{"10.77.0.2/32", "10.77.1.2/32", "fd77::2/128"} {
		i := slices.IndexFunc(n.Rules, func(r host.Rule) bool { return r.Src.String() == address })
		if i < 0 {
			j.Fail(Verdict{Row: "R-110", Severity: report.High, Title: "an address has no rule",
				Expected: "a rule from " + address, Actual: fmt.Sprintf("%d rules", len(n.Rules))})
			return
		}
		table := n.Rules[i].Table
		if first, known := tables[table]; known && strings.Contains(first, ":") == strings.Contains(address, ":") {
			j.Fail(Verdict{Row: "R-110", Severity: report.High, Title: "two addresses share a table",
				Expected: "a table for each address", Actual: fmt.Sprintf("%s and %s: table %d", first, address, table)})
			return
		}
		tables[table] = address
		if address == "fd77::2/128" {
			moved := route(n, table, "::/0") != nil && route(n, mainTable, "::/0") == nil
			j.Expect(moved, Verdict{Row: "R-111", Severity: report.High,
				Title:    "the IPv6 default route stays in the main table",
				Expected: fmt.Sprintf("the default route in table %d only", table),
				Actual:   fmt.Sprintf("table %d: %t, main table: %t", table, route(n, table, "::/0") != nil, route(n, mainTable, "::/0") != nil)})
		}
	}
	j.Pass("R-110")
}

func judgeVRF(j *Judgment) {
	if !j.Requires("add") {
		return
	}
	n := j.After("add").Container("c1")
	l := n.LinkByName("red")
	if l == nil || l.VRF == 0 {
		j.Stopped = "ADD creates no VRF red"
		return
	}
	in := func(table int, destination string) bool { return route(n, table, destination) != nil }
	j.Expect(in(l.VRF, "198.51.100.0/24"), Verdict{Row: "R-106", Severity: report.High,
		Title: "routes of the interface are lost", Expected: "198.51.100.0/24 in the table of the VRF", Actual: "no such route",
		Hint: "the kernel deletes the routes of an interface that enters a VRF; add them again"})
	j.Expect(in(mainTable, "203.0.113.0/24") && !in(l.VRF, "203.0.113.0/24"), Verdict{Row: "R-107", Severity: report.High,
		Title: "a route of another interface moves", Expected: "203.0.113.0/24 in the main table only",
		Actual: fmt.Sprintf("main table: %t, VRF: %t", in(mainTable, "203.0.113.0/24"), in(l.VRF, "203.0.113.0/24"))})
	hops := 0
	for _, r := range n.Routes {
		if r.Table == l.VRF && r.Dst.String() == "::/0" && r.Type == "unicast" {
			hops += len(r.Hops)
		}
	}
	j.Expect(hops == 2, Verdict{Row: "R-108", Severity: report.Medium,
		Title: "an IPv6 default route with several hops does not move", Expected: "2 hops", Actual: fmt.Sprintf("%d hops", hops)})
	kept := slices.ContainsFunc(n.Addrs, func(a host.Addr) bool { return a.Prefix.String() == "fd77::2/64" })
	j.Expect(kept, Verdict{Row: "R-109", Severity: report.High, Title: "the IPv6 address is lost",
		Expected: "fd77::2/64", Actual: "no such address", Hint: "add the addresses again after the interface has entered the VRF"})
}
