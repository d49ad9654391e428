package plugins

import (
	"fmt"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// unusual is a DEL under unusual conditions.
type unusual struct {
	name    string
	row     string // that requires success
	others  []string
	title   string
	hint    string
	roles   []Role
	oldest  cni.Version
	prepare func(*Setup) (shell, reason string) // between ADD and DEL
	change  func(*Draft)                        // to DEL
	strict  bool                                // DEL must also restore what ends with the container
	unclean bool                                // the residue is not judged

	variants bool // see [Case]
}

// end returns commands that end container n. They wait until the kernel has removed its interfaces, at
// the same time as the ones of the marker. The daemon of a plugin that works on an interface may keep
// the namespace, so the commands delete that interface instead.
func (s *Setup) end(n int) string {
	if s.Config.Container != "" {
		return fmt.Sprintf("ip -n c%[1]d link del %[2]s || :\nip netns del c%[1]d\n", n, s.ifName())
	}
	return fmt.Sprintf(`ip link add mark0 type veth peer name mark1 netns c%[1]d
ip netns del c%[1]d
while ip link show mark0 >/dev/null 2>&1; do sleep 0.01; done
`, n)
}

var unusualDels = []unusual{{
	name: "del-empty-netns", row: "PL-DEL-04", title: "DEL with an empty CNI_NETNS fails",
	hint: "skip the work in the namespace, and do the rest", change: Env("CNI_NETNS", ""),
}, {
	name: "del-no-netns", row: "PL-DEL-04", title: "DEL without CNI_NETNS fails",
	hint: "CNI_NETNS is optional for DEL", change: Without("CNI_NETNS"),
}, {
	name: "del-netns-gone", row: "PL-DEL-03", title: "DEL fails if the namespace no longer exists",
	hint:    "treat a missing namespace as success, and do the rest",
	prepare: (*Setup).ended, variants: true,
}, {
	name: "del-netns-file",
	row:  "PL-DEL-03", title: "DEL fails if CNI_NETNS names a plain file", others: []string{"R-32"},
	hint:    "a namespace path that is not on nsfs stands for a namespace that no longer exists",
	prepare: func(s *Setup) (string, string) { return s.end(2) + ": >/run/netns/c2", "" },
}, {
	name: "del-interface-gone", row: "PL-DEL-03", title: "DEL fails if the interface no longer exists",
	hint: "treat a missing interface as success, and do the rest", roles: []Role{Interface, Chained},
	prepare: func(s *Setup) (string, string) {
		if s.Config.IfName != "" {
			return "", s.Config.IfName + " cannot be deleted"
		}
		return "ip -n c2 link del " + ifName, ""
	},
}, {
	name: "del-parent-gone",
	row:  "PL-DEL-03", title: "DEL fails if the parent interface no longer exists",
	hint: "do not look up the parent in DEL", roles: []Role{Interface},
	prepare: func(s *Setup) (string, string) {
		if s.Config.Gone == "" {
			return "", "the plugin needs nothing that can disappear"
		}
		return s.Config.Gone, ""
	},
}, {
	name: "del-state-gone", row: "PL-DEL-03", title: "DEL fails if the plugin's files are missing",
	hint: "treat a missing state file as success", unclean: true,
	prepare: shell("find /var /run /tmp -xdev -path " + script.Dir + " -prune -o -path /run/netns -prune -o -type f -exec rm {} +"),
}, {
	name: "del-no-prevresult", row: "PL-DEL-04", title: "DEL without prevResult fails", oldest: cni.V040,
	hint: "prevResult is optional for DEL", change: Without("prevResult"), strict: true,
}, {
	name: "del-bad-prevresult",
	row:  "PL-DEL-08", title: "DEL fails because of a prevResult that it cannot read",
	oldest: cni.V040, hint: "ignore a prevResult that cannot be decoded",
	change: With("prevResult", map[string]any{"cniVersion": "99.0.0", "ips": "none"}), strict: true,
}, {
	name: "del-bare",
	row:  "PL-DEL-04", title: "DEL without CNI_NETNS and prevResult fails", oldest: cni.V040,
	hint:   "both are optional for DEL; the container ID, the interface and the network name identify the attachment",
	change: Without("CNI_NETNS", "prevResult"), variants: true,
}}

// ended ends the second container.
func (s *Setup) ended() (shell, reason string) { return s.end(2), "" }

func shell(text string) func(*Setup) (string, string) {
	return func(*Setup) (string, string) { return text, "" }
}

// delCases attach and detach a first container, so that everything which attachments share exists. Then
// they judge DEL of a second one.
func delCases() []*Case {
	return append(unusualCases(), delChangedCase, &Case{
		Name: "del-never-added", Roles: []Role{Interface, Chained, IPAM}, Once: true,
		Rows: []string{"PL-DEL-02"},
		Script: func(s *Setup) (*script.Scenario, string) {
			return s.Scenario(2, Each(s.Call("add", cni.Add, 1), s.Call("del2", cni.Del, 2, Without("prevResult")))...), ""
		},
		Judge: func(j *Judgment) {
			if !j.Requires("add") || !j.Succeeded("del2", Verdict{Row: "PL-DEL-02", Severity: report.High,
				Title: "DEL of an attachment that was never added fails",
				Hint:  "treat missing objects as deleted"}) {
				return
			}
			changes := compare(j.After("add"), j.After("del2"))
			if j.Setup.Config.IfName == "lo" {
				changes.more = nil // DEL may disable lo
			}
			j.Expect(changes.empty(), Verdict{Row: "PL-DEL-02", Severity: report.Critical,
				Title: "DEL of an attachment that was never added changes something", Expected: "the same state",
				Actual: changes.String(), Hint: "remove only objects of the attachment"})
		},
	}, &Case{
		Name: "del-one-of-two", Roles: []Role{Interface}, Once: true, Variants: true,
		Rows: []string{"PL-DEL-01"},
		Script: func(s *Setup) (*script.Scenario, string) {
			if s.Config.IfName != "" {
				return nil, "a container has one interface " + s.Config.IfName
			}
			second := func(d *Draft) {
				d.Env["CNI_CONTAINERID"], d.Env["CNI_NETNS"], d.Env["CNI_IFNAME"] = containerID(1), netns(1), "eth1"
			}
			return s.Scenario(2, Each(s.Call("add2", cni.Add, 2, second), s.Call("add", cni.Add, 1), s.Call("del", cni.Del, 1))...), ""
		},
		Judge: func(j *Judgment) {
			if !j.Requires("add2") || !j.Requires("add") || !j.Requires("del") {
				return
			}
			lost := compare(j.After("add2"), j.After("del")).less
			j.Expect(len(lost) == 0, Verdict{Row: "PL-DEL-01", Severity: report.Critical,
				Title:    "DEL of one interface damages another interface of the container",
				Expected: "the attachment eth1 as before",
				Actual:   "missing: " + list(lost), Hint: "select objects by network, container ID and interface"})
		},
	})
}

func unusualCases() (cases []*Case) {
	for _, u := range unusualDels {
		roles := u.roles
		if roles == nil {
			roles = []Role{Interface, Chained, IPAM}
		}
		rows := append([]string{u.row}, u.others...)
		if !u.unclean {
			rows = append(rows, "PL-DEL-01")
		}
		cases = append(cases, &Case{Name: u.name, Roles: roles, Oldest: u.oldest, Once: true, Variants: u.variants, Rows: rows,
			Script: u.script, Judge: u.judge})
	}
	return cases
}

func (u unusual) script(s *Setup) (*script.Scenario, string) {
	var change []func(*Draft)
	if u.change != nil {
		change = append(change, u.change)
	}
	steps := Each(s.Call("add", cni.Add, 1), s.Call("del", cni.Del, 1), s.Call("add2", cni.Add, 2))
	steps[0].Quiet, steps[2].Quiet = true, true
	ended := false
	if u.prepare != nil {
		text, reason := u.prepare(s)
		if reason != "" {
			return nil, reason
		}
		ended = strings.HasPrefix(text, s.end(2))
		steps = append(steps, script.Step{Shell: text, Quiet: true})
	}
	steps = append(steps, Each(s.Call("del2", cni.Del, 2, change...))...)
	if !ended && !u.unclean {
		steps[len(steps)-1].Quiet = !u.strict
		steps = append(steps, script.Step{Shell: s.end(2)})
	}
	return s.Scenario(2, steps...), ""
}

func (u unusual) judge(j *Judgment) {
	if !j.Requires("add") || !j.Requires("del") || !j.Requires("add2") {
		return
	}
	for _, row := range append([]string{u.row}, u.others...) {
		if !j.Succeeded("del2", Verdict{Row: row, Severity: report.High, Title: u.title, Hint: u.hint}) {
			return
		}
	}
	if u.unclean {
		return
	}
	left := difference{more: compare(j.After("del"), j.last()).more}
	if u.strict {
		restored := compare(j.After("del"), j.After("del2"))
		if left.less = restored.less; j.Setup.Role == Chained { // the links are of earlier plugins
			left.more = append(left.more, restored.naming("host2", ifName).more...)
		}
	}
	j.Expect(left.empty(), Verdict{Row: "PL-DEL-01", Severity: report.High,
		Title:    "DEL leaves something behind" + u.when(),
		Expected: "the state before ADD", Actual: left.String(),
		Hint: "find the objects by network, container ID and interface, not by what only the container knows"})
}

// when returns the condition, for titles.
func (u unusual) when() string {
	switch {
	case u.name == "del-interface-gone" || u.name == "del-parent-gone":
		return " if the interface is gone"
	case u.name == "del-no-prevresult" || u.name == "del-bad-prevresult":
		return " without a usable prevResult"
	}
	return " if it cannot use the namespace"
}
