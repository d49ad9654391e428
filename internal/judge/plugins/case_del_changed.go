package plugins

import (
	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// delChangedCase calls DEL with a configuration that has changed since ADD. A plugin may refuse the
// configuration: the runtime then knows that something is left. If DEL succeeds, it must have
// removed everything of the attachment.
var delChangedCase = &Case{
	Name: "del-changed", Roles: []Role{Interface, Chained, IPAM}, Once: true, Variants: true,
	Rows: []string{"PL-DEL-05"},
	Script: func(s *Setup) (*script.Scenario, string) {
		if s.Config.Changed == nil {
			return nil, `the configuration of the judge names no keys that may change (key "changed")`
		}
		changed := replace(number(s.Config.Changed, 2).(map[string]any))
		return s.Scenario(2, quiet(s.Call("add", cni.Add, 1)), call(s.Call("del", cni.Del, 1)),
			quiet(s.Call("add2", cni.Add, 2)), call(s.Call("del2", cni.Del, 2, changed)),
			script.Step{Shell: s.end(2)}), ""
	},
	Judge: func(j *Judgment) {
		if !j.Requires("add") || !j.Requires("del") || !j.Requires("add2") {
			return
		}
		if r, _ := j.Call("del2"); j.failed("del2") {
			j.Claim("del2")
			j.Info("PL-DEL-05", "DEL refuses a configuration that has changed since ADD: "+describe(r))
			return
		}
		left := difference{more: compare(j.After("del"), j.last()).more}
		creates := j.Setup.Role == Interface && j.Setup.Config.IfName == ""
		if creates && hasLink(j.After("del2"), "c2", ifName) {
			left.more = append(left.more, "container c2: link "+ifName)
		}
		j.Expect(left.empty(), Verdict{Row: "PL-DEL-05", Severity: report.Medium,
			Title:    "DEL leaves something behind if the configuration has changed since ADD",
			Expected: "the state before ADD", Actual: left.String(),
			Hint: "find the objects by network, container ID and interface, or in prevResult, not by optional keys"})
	},
}
