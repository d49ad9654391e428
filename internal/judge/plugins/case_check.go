package plugins

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// drifts are changes of the container. CHECK must notice a change that contradicts the result, and no
// other: the recording decides which changes do.
var drifts = []Drift{
	{Name: "address-removed", Shell: "ip -n $container address flush dev $ifname scope global"},
	{Name: "route-removed", Shell: "ip -n $container route flush dev $ifname\nip -n $container -6 route flush dev $ifname"},
	{Name: "link-down", Shell: "ip -n $container link set $ifname down"},
	{Name: "link-gone", Shell: "ip -n $container link del $ifname"},
	{Name: "mac-changed", Shell: "ip -n $container link set $ifname address 02:00:00:99:00:01"},
	{Name: "mtu-changed", Shell: "ip -n $container link set $ifname mtu 1290"},
	{Name: "link-renamed", Shell: "ip -n $container link set $ifname down\nip -n $container link set $ifname name other0\n" +
		"ip -n $container link set other0 up"},
	{Name: "extra", Shell: "ip -n $container address add 198.51.100.7/24 dev $ifname\n" +
		"ip -n $container route add 203.0.113.0/24 via 198.51.100.1\n" +
		"ip -n $container link add extra0 type veth peer name extra1"},
}

func checkCases() []*Case {
	return append(slices.Concat(driftCases(drifts, Interface, Chained), driftCases(hostDrifts, Interface)), untrackedCase, &Case{
		Name: "check-required", Roles: []Role{Interface, Chained}, Oldest: cni.V040,
		Rows: []string{"PL-CHK-02"},
		Script: func(s *Setup) (*script.Scenario, string) {
			if s.Config.IfName != "" {
				return nil, "the state of " + s.Config.IfName + " does not depend on prevResult"
			}
			steps := Each(s.Call("add", cni.Add, 1), s.Call("check", cni.Check, 1, Without("prevResult")))
			steps[0].Quiet, steps[1].Quiet = true, true
			return s.Scenario(1, steps...), ""
		},
		Judge: func(j *Judgment) {
			if !j.Requires("add") {
				return
			}
			r, _ := j.Call("check")
			j.Expect(r.Status != 0, Verdict{Row: "PL-CHK-02", Severity: report.Medium,
				Title:    "CHECK succeeds without prevResult",
				Expected: "an error with code 7", Actual: describe(r),
				Hint: "fail with code 7 if prevResult is missing"})
		},
	}, &Case{
		Name: "check-changed-result", Roles: []Role{Interface}, Oldest: cni.V040, Once: true,
		Rows: []string{"PL-CHK-03"},
		Script: func(s *Setup) (*script.Scenario, string) {
			if s.Config.IfName != "" {
				return nil, s.Config.IfName + " has no MAC address"
			}
			change := script.Call{Name: "change", Path: "/bin/sh", Args: []string{"-euc", changeMAC}, Env: []string{"PATH=" + searchPath},
				Stdin: script.Text{{Output: "add"}}}
			steps := Each(s.Call("add", cni.Add, 1), change, s.Call("check", cni.Check, 1, With("prevResult", script.Text{{Output: "change"}})))
			steps[0].Quiet, steps[1].Quiet = true, true
			return s.Scenario(1, steps...), ""
		},
		Judge: func(j *Judgment) {
			if !j.Requires("add") {
				return
			}
			if r, _ := j.Call("change"); r.Status != 0 {
				j.NotApplicable("PL-CHK-03", "the kernel refuses another MAC address: "+describe(r))
				return
			}
			j.Succeeded("check", Verdict{Row: "PL-CHK-03", Severity: report.High,
				Title: "CHECK fails after a later plugin has changed the MAC address and the result",
				Hint:  "compare with prevResult, not with what the plugin created"})
		},
	})
}

// searchPath is the PATH of calls.
const searchPath = "/usr/sbin:/usr/bin:/sbin:/bin"

// changeMAC gives the interface another MAC address, and prints the result on the standard input with it.
const changeMAC = `old=$(ip -n c1 link show ` + ifName + ` | sed -n 's/.*link.ether \([0-9a-f:]*\).*/\1/p')
ip -n c1 link set ` + ifName + ` address 02:00:00:99:00:02
sed "s/$old/02:00:00:99:00:02/I"`

// driftCases returns a case for each change.
func driftCases(list []Drift, roles ...Role) (cases []*Case) {
	for _, d := range list {
		cases = append(cases, &Case{
			Name: "check-" + d.Name, Roles: roles, Oldest: cni.V040, Once: true,
			Rows: []string{"PL-CHK-03", "PL-CHK-04"},
			Script: func(s *Setup) (*script.Scenario, string) {
				if s.Config.IfName == "lo" && d.Name != "link-down" {
					return nil, "lo cannot be changed so"
				}
				return s.drift(d), ""
			},
			Judge: judgeDrift,
		})
	}
	return cases
}

// untrackedCase makes the changes that the configuration names.
var untrackedCase = &Case{
	Name: "check-untracked", Roles: []Role{Interface, Chained, IPAM}, Oldest: cni.V040, Once: true, Variants: true,
	Rows: []string{"PL-CHK-05"},
	Script: func(s *Setup) (*script.Scenario, string) {
		if len(s.Config.Drifts) == 0 {
			return nil, "the configuration names no drifts that CHECK must notice"
		}
		var steps []script.Step
		for i, d := range s.Config.Drifts {
			steps = append(steps, s.drifted(d, i+1)...)
		}
		return s.Scenario(len(s.Config.Drifts), steps...), ""
	},
	Judge: judgeUntracked,
}

func (s *Setup) drift(d Drift) *script.Scenario { return s.Scenario(1, s.drifted(d, 1)...) }

// drifted returns the steps of an attachment of container n that changes between ADD and CHECK.
func (s *Setup) drifted(d Drift, n int) []script.Step {
	add, check := "add", "check"
	if n > 1 {
		add, check = fmt.Sprint(add, n), fmt.Sprint(check, n)
	}
	variables := fmt.Sprintf("container=c%d\nifname=%s\npeer=host%[1]d\n", n, s.ifName())
	if s.Role == Interface {
		variables = fmt.Sprintf("container=c%d\nifname=%s\n%s", n, s.ifName(), findPeer)
	}
	before := s.Call("before-"+check, cni.Check, n)
	steps := Each(s.Call(add, cni.Add, n), before, s.Call(check, cni.Check, n))
	for i := range steps {
		steps[i].Quiet = true
	}
	return slices.Insert(steps, 2, script.Step{Shell: variables + d.Shell, Try: true})
}

func judgeDrift(j *Judgment) {
	if !j.Requires("add") || !j.Requires("before-check") {
		return
	}
	change := j.Events[slices.IndexFunc(j.Events, func(e script.Event) bool { return e.After != nil })]
	result := j.result("add")
	if change.Status != 0 || result == nil {
		reason := "the change is not possible: " + strings.TrimSpace(change.Output)
		j.NotApplicable("PL-CHK-03", reason)
		j.NotApplicable("PL-CHK-04", reason)
		return
	}
	r, _ := j.Call("check")
	wrong := missing(result, change.After, "c1")
	if j.Setup.Config.IfName == "lo" {
		wrong = []string{"the state up of lo"}
	}
	if len(wrong) > 0 {
		j.NotApplicable("PL-CHK-03", "the change contradicts the result")
		if j.Setup.Role == Chained && r.Status == 0 {
			// Interface and addresses belong to other plugins of the chain.
			j.Info("PL-CHK-04", "CHECK does not notice the change of an earlier plugin's work: "+list(wrong))
			return
		}
		j.Expect(r.Status != 0, Verdict{Row: "PL-CHK-04", Severity: report.Medium,
			Title:    "CHECK does not notice a missing object",
			Expected: "an error, because of the result there is missing: " + list(wrong), Actual: describe(r),
			Hint: "compare the interface, its addresses and its routes with prevResult"})
		return
	}
	if strings.HasSuffix(j.Scenario.Name, "extra") {
		j.NotApplicable("PL-CHK-04", "the change does not contradict the result")
		j.Succeeded("check", Verdict{Row: "PL-CHK-03", Severity: report.Medium,
			Title: "CHECK fails because of additional addresses, routes or interfaces",
			Hint:  "look only for what prevResult lists"})
		return
	}
	text := "CHECK succeeds although the interface was changed; the result does not list it"
	if r.Status != 0 {
		text = "CHECK notices a change of what the result does not list: " + describe(r)
	}
	j.Info("PL-CHK-04", text)
	j.NotApplicable("PL-CHK-03", "no plugin makes this change")
}

func judgeUntracked(j *Judgment) {
	for i, d := range j.Setup.Config.Drifts {
		add, check := "add", "check"
		if i > 0 {
			add, check = fmt.Sprint(add, i+1), fmt.Sprint(check, i+1)
		}
		if !j.Requires(add) || !j.Requires("before-"+check) {
			return
		}
		r, _ := j.Call(check)
		switch {
		case d.Optional && r.Status == 0:
			j.Info("PL-CHK-05", "CHECK does not notice: "+d.Name)
			continue
		case d.Optional:
			j.Info("PL-CHK-05", "CHECK notices: "+d.Name)
			continue
		}
		j.Expect(r.Status != 0, Verdict{Row: "PL-CHK-05", Severity: report.Medium,
			Title:    "CHECK does not notice: " + d.Name,
			Expected: "an error", Actual: describe(r),
			Hint: "compare everything that ADD made, also what no result lists"})
	}
}
