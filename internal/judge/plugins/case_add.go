package plugins

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// failure is an ADD that must fail, or may.
type failure struct {
	name    string
	roles   []Role
	why     string // "if the namespace does not exist", for titles
	row     string // that requires the failure; empty if ADD may succeed
	applies func(*Setup) (reason string)
	answer  string // of the IPAM plugin to ADD, a text for sh(1)
	first   string // shell command before all calls
	prepare string // before the ADD
	change  func(*Draft)
	repair  string // shell command after the ADD
}

// brokenIPAM is the name of the IPAM plugin that gives the answer of a failure.
const brokenIPAM = "conform-broken"

var failures = []failure{{
	name: "add-ipam-fails", roles: []Role{Interface}, why: "if the IPAM plugin fails", row: "PL-ADD-05",
	applies: delegates,
	answer:  `echo '{"cniVersion":"%[1]s","code":11,"msg":"no address at the moment"}'; return 1`,
	change:  With("ipam", map[string]any{"type": brokenIPAM}),
}, {
	name: "add-ipam-nonsense", roles: []Role{Interface},
	why: "if the answer of the IPAM plugin is no result", row: "PL-ADD-05",
	applies: delegates, answer: `echo '{"cniVersion":"%[1]s","ips":"none"}'`,
	change: With("ipam", map[string]any{"type": brokenIPAM}),
}, {
	name: "add-ipam-empty", roles: []Role{Interface}, why: "if the IPAM plugin returns no address",
	applies: delegates,
	answer:  `echo '{"cniVersion":"%[1]s"}'`, change: With("ipam", map[string]any{"type": brokenIPAM}),
}, {
	name: "add-ipam-missing", roles: []Role{Interface}, why: "if the IPAM plugin does not exist",
	row: "PL-ADD-05", applies: delegates,
	change: With("ipam", map[string]any{"type": "conform-missing"}),
}, {
	name: "add-ipam-unusable", roles: []Role{Interface},
	why: "if the kernel refuses a route of the IPAM plugin", applies: delegates,
	answer: `echo '{"cniVersion":"%[1]s","ips":[{%[2]s"address":"10.77.0.99/24","gateway":"10.77.0.1"}],` +
		`"routes":[{"dst":"192.0.2.0/24","gw":"203.0.113.1"}]}'`, change: With("ipam", map[string]any{"type": brokenIPAM}),
}, {
	name: "add-no-netns", roles: []Role{Interface}, why: "if the namespace does not exist",
	row:    "PL-ADD-05",
	change: Env("CNI_NETNS", script.Netns+"/none"),
}, {
	name: "add-no-interface", roles: []Role{Chained}, why: "if the interface does not exist",
	prepare: "ip -n c2 link set eth0 name other0",
	repair:  "ip -n c2 link set other0 name eth0",
}, {
	name: "add-no-prevresult", roles: []Role{Chained}, why: "without prevResult", row: "PL-ADD-08",
	change: Without("prevResult"),
}, {
	name: "add-disk-full", roles: []Role{Interface, Chained, IPAM}, why: "if the file system is full",
	first:   "mkdir -p /run/cni /run/mount", // mount(8) uses the second
	prepare: "for d in /var/lib /run/cni; do\nmount -t tmpfs -o size=4k,nr_inodes=2 full $d; echo >$d/full\ndone",
	repair:  "umount /run/cni /var/lib",
}}

// delegates returns a reason unless the plugin calls an IPAM plugin.
func delegates(s *Setup) string {
	if s.Config.ScriptedIPAM {
		return ""
	}
	return "the plugin calls no IPAM plugin"
}

func addCases() []*Case {
	return append(failureCases(), &Case{
		Name: "add-name-taken", Roles: []Role{Interface}, Once: true,
		Rows: []string{"PL-ADD-02", "PL-ADD-03", "PL-ADD-10", "R-72"},
		Script: func(s *Setup) (*script.Scenario, string) {
			if s.Config.IfName != "" {
				return nil, s.Config.IfName + " exists in all containers"
			}
			steps := Each(s.Call("add", cni.Add, 1), s.Call("del", cni.Del, 1), s.Call("add2", cni.Add, 2))
			steps[0].Quiet = true
			steps = slices.Insert(steps, 2, script.Step{Shell: "ip -n c2 link add eth0 type veth peer name other0"})
			return s.Scenario(2, steps...), ""
		},
		Judge: func(j *Judgment) {
			judgeTaken(j)
			if r, _ := j.Call("add2"); r.Status != 0 && j.Stopped == "" {
				j.Expect(strings.Contains(string(r.Stdout), ifName), Verdict{Row: "R-72", Severity: report.Low,
					Title:    "the error of ADD does not name the interface that already exists",
					Expected: "an error that names " + ifName, Actual: describe(r)})
			}
		},
	}, &Case{
		Name: "add-second", Roles: []Role{Interface}, Once: true,
		Rows: []string{"PL-ADD-02", "PL-ADD-03", "PL-ADD-10"},
		Script: func(s *Setup) (*script.Scenario, string) {
			if s.Config.IfName != "" {
				return nil, s.Config.IfName + " exists in all containers"
			}
			return s.Scenario(2, Each(s.Call("add", cni.Add, 1), s.Call("add2", cni.Add, 2, Env("CNI_NETNS", netns(1))))...), ""
		},
		Judge: judgeTaken,
	}, &Case{
		Name: "add-default-route", Roles: []Role{Interface}, Once: true, Rows: []string{"PL-ADD-13"},
		Script: func(s *Setup) (*script.Scenario, string) {
			if reason := delegates(s); reason != "" {
				return nil, reason
			}
			return s.Scenario(1, slices.Insert(Each(s.Call("add", cni.Add, 1)), 0, script.Step{Quiet: true,
				Shell: otherLink + "\nip -n c1 route add default via 192.0.2.1"})...), ""
		},
		Judge: func(j *Judgment) {
			j.Succeeded("add", Verdict{Row: "PL-ADD-13", Severity: report.Medium,
				Title: "ADD fails if the container has a default route",
				Hint:  "leave out a default route that already exists"})
		},
	}, &Case{
		Name: "chain", Roles: []Role{Chained}, Oldest: cni.V030, Variants: true,
		Rows: []string{"PL-ADD-06", "DNS-02"},
		Script: func(s *Setup) (*script.Scenario, string) {
			return s.Scenario(1, Each(s.Call("add", cni.Add, 1, With("prevResult", s.previous())))...), ""
		},
		Judge: func(j *Judgment) { judgeChain(j, j.Setup.previous()) },
	}, &Case{
		Name: "chain-second", Roles: []Role{Interface}, Oldest: cni.V100,
		Rows: []string{"PL-ADD-06", "DNS-02"},
		Script: func(s *Setup) (*script.Scenario, string) {
			if s.Config.IfName != "" {
				return nil, "a container has one interface " + s.Config.IfName
			}
			return s.Scenario(1, script.Step{Shell: otherLink, Quiet: true},
				script.Step{Calls: []script.Call{s.Call("add", cni.Add, 1, With("prevResult", s.other()))}}), ""
		},
		Judge: func(j *Judgment) { judgeChain(j, j.Setup.other()) },
	}, &Case{
		Name: "chain-version", Roles: []Role{Chained}, Oldest: cni.V030, Once: true,
		Rows: []string{"PL-ADD-07"},
		Script: func(s *Setup) (*script.Scenario, string) {
			previous := s.previous()
			delete(previous, "cniVersion")
			return s.Scenario(1, Each(s.Call("add", cni.Add, 1, With("prevResult", previous)))...), ""
		},
		Judge: func(j *Judgment) {
			j.Succeeded("add", Verdict{Row: "PL-ADD-07", Severity: report.Medium,
				Title: "ADD fails if prevResult has no cniVersion",
				Hint:  "take the version of the request for it"})
		},
	})
}

func failureCases() (cases []*Case) {
	for _, f := range failures {
		rows := []string{"PL-ADD-10", "PL-DEL-02"}
		if f.row != "" {
			rows = append(rows, f.row)
		}
		cases = append(cases, &Case{Name: f.name, Roles: f.roles, Once: true, Variants: f.name == "add-ipam-unusable", Rows: rows, Script: f.script, Judge: f.judge})
	}
	return cases
}

func (f failure) script(s *Setup) (*script.Scenario, string) {
	if f.applies != nil {
		if reason := f.applies(s); reason != "" {
			return nil, reason
		}
	}
	var change []func(*Draft)
	if f.change != nil {
		change = append(change, f.change)
	}
	steps := Each(s.Call("add", cni.Add, 1), s.Call("del", cni.Del, 1))
	steps[0].Quiet = true
	if f.first != "" {
		steps = slices.Insert(steps, 0, script.Step{Shell: f.first, Quiet: true})
	}
	if f.prepare != "" {
		steps = append(steps, script.Step{Shell: f.prepare, Quiet: true})
	}
	steps = append(steps, Each(s.Call("add2", cni.Add, 2, change...))...)
	if f.repair != "" {
		steps[len(steps)-1].Quiet = true
		steps = append(steps, script.Step{Shell: f.repair})
	}
	after := Each(s.Call("del2", cni.Del, 2, Without("prevResult")), s.Call("retry", cni.Add, 2))
	after[1].Quiet = true
	c := s.Scenario(2, append(steps, after...)...)
	if f.answer != "" {
		c.Files = append(c.Files, script.RecorderFile(brokenIPAM), script.Answers(brokenIPAM, "ADD", s.broken(f.answer)))
	}
	return c, ""
}

// broken fills the version into an answer, and the member that addresses need before 1.0.0.
func (s *Setup) broken(answer string) string {
	family := ""
	if s.Version < cni.V100 {
		family = `"version":"4",`
	}
	return fmt.Sprintf(answer+"%.0[1]s%.0[2]s\n", s.Version, family)
}

func (f failure) judge(j *Judgment) {
	if !j.Requires("add") || !j.Requires("del") {
		return
	}
	r, _ := j.Call("add2")
	failed := r.Status != 0 || r.Failed != ""
	if f.row != "" {
		if !j.Expect(failed, Verdict{Row: f.row, Severity: report.High, Title: "ADD succeeds " + f.why,
			Expected: "a non-zero exit status and an error object", Actual: describe(r)}) {
			return
		}
	} else if !failed {
		j.NotApplicable("PL-ADD-10", "ADD succeeds "+f.why)
		j.NotApplicable("PL-DEL-02", "ADD succeeds "+f.why)
		return
	}
	left := compare(j.After("del"), j.After("add2"))
	j.Expect(left.empty(), Verdict{Row: "PL-ADD-10", Severity: report.High,
		Title:    "a failed ADD leaves something behind",
		Expected: "the state before ADD", Actual: left.String() + "; ADD: " + describe(r),
		Hint: "undo all changes before the failure in reverse order"})
	if j.Succeeded("del2", Verdict{Row: "PL-DEL-02", Severity: report.High,
		Title: "DEL after a failed ADD fails",
		Hint:  "the runtime calls DEL after each failed ADD; treat missing objects as deleted"}) {
		j.Succeeded("retry", Verdict{Row: "PL-ADD-10", Severity: report.High,
			Title: "a failed ADD blocks the next one",
			Hint:  "undo all changes before the failure in reverse order"})
	}
}

// judgeTaken judges an ADD with the name of an existing interface.
func judgeTaken(j *Judgment) {
	if !j.Requires("add") {
		return
	}
	r, _ := j.Call("add2")
	changes := compare(j.Before("add2"), j.After("add2"))
	if r.Status == 0 {
		v := Verdict{Severity: report.High, Expected: "an error",
			Actual: describe(r) + "; changes: " + changes.String()}
		if slices.ContainsFunc(changes.more, func(text string) bool {
			return strings.HasPrefix(text, "container ") && strings.Contains(text, ": link ") && !strings.Contains(text, " changed ")
		}) {
			v.Row, v.Title, v.Hint = "PL-ADD-02", "ADD uses another name if the name in CNI_IFNAME is taken", "fail if the name is taken"
		} else {
			v.Row, v.Title, v.Hint = "PL-ADD-03", "ADD changes an existing interface instead of failing", "fail if the interface already exists"
		}
		j.Fail(v)
		return
	}
	j.Pass("PL-ADD-02")
	j.Pass("PL-ADD-03")
	j.Expect(changes.empty(), Verdict{Row: "PL-ADD-10", Severity: report.High,
		Title:    "a failed ADD leaves something behind",
		Expected: "the state before ADD", Actual: changes.String() + "; ADD: " + describe(r),
		Hint: "create the interface before anything else, and undo the rest if it fails"})
}

// resolver is the dns of previous results.
var resolver = map[string]any{"nameservers": []string{"192.0.2.53"}, "search": []string{"conform.example"}}

// previous returns the previous result of a chained plugin for container 1, with dns.
func (s *Setup) previous() map[string]any {
	var m map[string]any
	if err := json.Unmarshal([]byte(s.PrevResult(1)), &m); err != nil {
		panic(err) // PrevResult returns JSON
	}
	m["dns"] = resolver
	return m
}

// otherLink creates the interface of another plugin in container 1.
const otherLink = `ip link add other1 type veth peer name other0 netns c1
ip -n c1 link set other0 address 02:00:00:00:02:01 up
ip -n c1 address add 192.0.2.2/24 dev other0
ip link set other1 up`

// other returns the result of the plugin that has created otherLink.
func (s *Setup) other() map[string]any {
	return map[string]any{"cniVersion": s.Version.String(), "dns": resolver,
		"interfaces": []any{map[string]any{"name": "other0", "mac": "02:00:00:00:02:01", "sandbox": netns(1)}},
		"ips":        []any{map[string]any{"address": "192.0.2.2/24", "interface": 0}},
	}
}

// owner returns the name of the interface that a result assigns an address to, "" for none.
func owner(r *cni.Result, ip cni.IP) string {
	if i, ok := ip.Interface.Get(); ok && i >= 0 && i < len(r.Interfaces) {
		return r.Interfaces[i].Name
	}
	return ""
}

// judgeChain judges whether a plugin passes on the previous result.
func judgeChain(j *Judgment, previous map[string]any) {
	if !j.Requires("add") {
		return
	}
	text, err := json.Marshal(previous)
	if err != nil {
		panic(err) // the previous result contains a value that JSON does not have
	}
	before, err := cni.DecodeResult(text, j.Setup.Version)
	after := j.result("add")
	if err != nil || after == nil {
		r, _ := j.Call("add")
		j.Fail(Verdict{Row: "PL-ADD-06", Severity: report.High, Title: "ADD prints no result",
			Expected: "a result", Actual: describe(r)})
		return
	}
	var lost []string
	for _, i := range before.Interfaces {
		if !slices.ContainsFunc(after.Interfaces,
			func(x cni.Interface) bool { return x.Name == i.Name && x.Sandbox == i.Sandbox }) {
			lost = append(lost, "interface "+i.Name)
		}
	}
	for _, ip := range before.IPs {
		i := slices.IndexFunc(after.IPs, func(x cni.IP) bool { return x.Address == ip.Address })
		if i < 0 {
			lost = append(lost, "address "+ip.Address.String())
		} else if was, is := owner(before, ip), owner(after, after.IPs[i]); was != is {
			lost = append(lost, fmt.Sprintf("address %s on interface %q, not %q", ip.Address, was, is))
		}
	}
	if !j.Expect(len(lost) == 0, Verdict{Row: "PL-ADD-06", Severity: report.High,
		Title:    "the result lacks parts of prevResult",
		Expected: "prevResult with the changes of the plugin", Actual: "missing: " + list(lost),
		Hint: "start from prevResult and add to it"}) {
		return
	}
	j.Expect(slices.Contains(after.DNS.Nameservers, "192.0.2.53") && slices.Contains(after.DNS.Search, "conform.example"),
		Verdict{Row: "DNS-02", Severity: report.Medium, Title: "the result lacks dns of prevResult",
			Expected: "nameserver 192.0.2.53 and search domain conform.example",
			Actual:   fmt.Sprintf("%+v", after.DNS),
			Hint:     "start from prevResult and add to it"})
}
