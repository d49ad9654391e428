package plugins

import (
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// limitCases judge limits of the bandwidth.
var limitCases = []*Case{{
	Name: "limits", Roles: []Role{Chained}, Like: []string{"bandwidth"}, Oldest: cni.V040, Once: true,
	Rows:   []string{"CONV-12", "R-103", "R-104", "R-105"},
	Script: limits, Judge: judgeLimits,
}}

func limits(s *Setup) (*script.Scenario, string) {
	none := Without("ingressRate", "ingressBurst", "egressRate", "egressBurst")
	rates := func(rate, burst int64) map[string]any {
		return map[string]any{"ingressRate": rate, "ingressBurst": burst, "egressRate": rate, "egressBurst": burst}
	}
	second := func(d *Draft) {
		d.Env["CNI_IFNAME"], d.Request["prevResult"] = "eth1", s.secondResult()
	}
	bare := s.Call("bare-check", cni.Check, 3, none, With("prevResult", script.Text{{Output: "bare"}}))
	return s.Scenario(3, script.Step{Shell: secondLink, Quiet: true},
		quiet(s.Call("add", cni.Add, 1)), quiet(s.Call("second", cni.Add, 1, second)),
		look("both", "tc qdisc show dev host1 root\ntc qdisc show dev host1b root"),
		look("ifbs", "ip -o link show type ifb"),
		quiet(s.Call("fast", cni.Add, 2, replace(rates(10_000_000_000, 800_000_000)))),
		look("fast-limits", "tc -r qdisc show dev host2 root"),
		quiet(s.Call("bare", cni.Add, 3, none)), quiet(bare),
		quiet(s.Call("bare-del", cni.Del, 3, none, Without("prevResult"))),
		quiet(s.Call("capability", cni.Add, 3, none, With("runtimeConfig", map[string]any{"bandwidth": rates(2_000_000, 160_000)}))),
		look("capability-limits", "tc qdisc show dev host3 root"),
	), ""
}

func judgeLimits(j *Judgment) {
	if !j.Requires("add") {
		return
	}
	if j.Succeeded("second", Verdict{Row: "R-103", Severity: report.High,
		Title: "the second interface of a container on a network cannot be limited",
		Hint:  "derive the name of the ifb from network, container ID and interface"}) {
		both := j.seen("both")
		j.Expect(strings.Count(both, "rate 1Mbit") == 2, Verdict{Row: "R-103", Severity: report.High,
			Title: "only one of two interfaces of a container is limited", Expected: "rate 1Mbit for both", Actual: both})
		ifbs := j.seen("ifbs")
		j.Expect(strings.Count(ifbs, "state") == 2, Verdict{Row: "R-103", Severity: report.High,
			Title: "two interfaces of a container share the limit of sent traffic", Expected: "2 ifb devices", Actual: ifbs})
	}
	if j.Succeeded("fast", Verdict{Row: "R-104", Severity: report.Medium, Title: "ADD fails for 10 Gbit/s"}) {
		fast := j.seen("fast-limits")
		j.Expect(strings.Contains(fast, "rate 10Gbit"), Verdict{Row: "R-104", Severity: report.Medium,
			Title: "the rate is wrong for 10 Gbit/s", Expected: "rate 10Gbit", Actual: fast,
			Hint: "the kernel needs a 64-bit attribute for rates of 4 GiB/s and more; the unit is bytes per second"})
	}
	if j.Succeeded("bare", Verdict{Row: "R-105", Severity: report.Medium, Title: "ADD without limits fails"}) {
		j.Succeeded("bare-check", Verdict{Row: "R-105", Severity: report.Medium, Title: "CHECK without limits fails"})
	}
	if j.Succeeded("capability", Verdict{Row: "CONV-12", Severity: report.Medium,
		Title: "ADD with limits in runtimeConfig fails"}) {
		seen := j.seen("capability-limits")
		j.Expect(strings.Contains(seen, "rate 2Mbit"), Verdict{Row: "CONV-12", Severity: report.Medium,
			Title: "the limits in runtimeConfig are ignored", Expected: "rate 2Mbit", Actual: seen})
	}
}
