package plugins

import (
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// firewallCases judge which traffic a firewall plugin allows on a host that forwards nothing else.
var firewallCases = []*Case{{
	Name: "address-reused", Roles: []Role{Chained}, Like: []string{"firewall"}, Oldest: cni.V040, Once: true, Variants: true,
	Needs: needsTraffic + "\niptables -P FORWARD DROP", Rows: []string{"R-37", "R-38"},
	Script: addressReused, Judge: judgeAddressReused,
}}

// addressReused gives the address of a container to another one before DEL of the first.
func addressReused(s *Setup) (*script.Scenario, string) {
	connect := func(name, container string) script.Step {
		return ask(name, container, "tcp", "10.77.0.2 0", "198.51.100.2 80")
	}
	const move = `
ip -n c2 address flush dev eth0
ip -n c2 address add 10.77.0.2/24 dev eth0
ip -n c2 route add default via 10.77.0.1
ip route add 10.77.0.2 dev host2`
	previous := script.Literal(strings.Replace(s.PrevResult(2), "10.77.0.3/24", "10.77.0.2/24", 1))
	return withTraffic(s.Scenario(3,
		script.Step{Shell: street + "iptables -P FORWARD DROP\niptables -A FORWARD -j REJECT", Quiet: true},
		servers([]string{"out"}, server("out", "out", "tcp:198.51.100.2:80")),
		connect("closed", "c1"), quiet(s.Call("add", cni.Add, 1)), connect("open", "c1"),
		script.Step{Shell: s.end(1) + move, Quiet: true},
		quiet(s.Call("add2", cni.Add, 2, With("prevResult", previous))), connect("reused", "c2"),
		quiet(s.Call("late", cni.Del, 1)), connect("after-late", "c2"),
		quiet(s.Call("del2", cni.Del, 2, Without("prevResult"))), connect("after-del", "c2"),
	)), ""
}

func judgeAddressReused(j *Judgment) {
	if !j.Requires("add") || !j.Requires("add2") || !j.Requires("late") {
		return
	}
	const reached = "out 10.77.0.2"
	if j.seen("closed") == reached || j.seen("open") != reached || j.seen("reused") != reached {
		j.Stopped = "ADD does not decide about the traffic: " + j.seen("closed") + "; " + j.seen("open") + "; " + j.seen("reused")
		return
	}
	if !j.answers("after-late", "out", Verdict{Row: "R-38", Severity: report.High,
		Title: "a late DEL blocks the traffic of another container that has the address now",
		Hint:  "record which attachment owns a rule, and remove only rules of the attachment"}) {
		return
	}
	if j.Requires("del2") {
		j.unanswered("after-del", "out", Verdict{Row: "R-37", Severity: report.High,
			Title: "DEL without prevResult leaves the rules",
			Hint:  "find the rules by network, container ID and interface"})
	}
}
