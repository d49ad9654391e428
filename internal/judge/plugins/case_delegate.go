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

// exact is a value that only an exact copy of the configuration preserves: the number has no
// representation in floating point.
var exact = json.RawMessage(`{"number":9007199254740993,"null":null,"list":[3,1,2]}`)

// delegateCases judge how a plugin runs its IPAM plugin.
var delegateCases = []*Case{
	delegateCase, delegateErrorCase, delegateFailedCase, delegateReleaseCase, delegateGoneCase,
	delegateSearchCase, delegateResultCase,
}

var delegateCase = &Case{
	Name: "delegate", Roles: []Role{Interface},
	Rows: []string{"IPAM-01", "IPAM-04", "DLG-03", "DLG-04", "CFG-34", "DLG-05", "DLG-06", "PL-CHK-08", "PL-DEL-06"},
	Script: func(s *Setup) (*script.Scenario, string) {
		if reason := s.delegates(); reason != "" {
			return nil, reason
		}
		options := []func(*Draft){With("conform.dev/exact", exact), Env("CONFORM_VARIABLE", "a b=c")}
		steps := []script.Step{quiet(s.Call("add", cni.Add, 1, options...))}
		if s.Version >= cni.V040 {
			steps = append(steps, quiet(s.Call("check", cni.Check, 1, options...)))
		}
		steps = append(steps, quiet(s.Call("del", cni.Del, 1, options...)))
		out := s.Scenario(1, steps...)
		out.Files = append(out.Files, script.Answers(scriptedIPAM, "ADD", "echo "+refusal+" >&2\n"+s.addressesWithDNS()))
		return out, ""
	},
	Judge: judgeDelegate,
}

// addressesWithDNS is the answer of the scripted IPAM plugin with the key dns.
func (s *Setup) addressesWithDNS() string {
	return answerWith(strings.Replace(s.ipamResult(), `"routes":[`, `"dns":{"nameservers":["10.77.0.53"]},"routes":[`, 1))
}

func judgeDelegate(j *Judgment) {
	add, called := j.forwarded("add", cni.Add, "IPAM-01")
	if !called || !j.Requires("add") {
		return
	}
	calls := map[string]script.Recorded{"add": add}
	all := true
	for name, verb := range map[string]cni.Command{"check": cni.Check, "del": cni.Del} {
		row := map[string]string{"check": "PL-CHK-08", "del": "PL-DEL-06"}[name]
		if j.request(name).Name == "" {
			j.NotApplicable(row, "CHECK exists since 0.4.0")
			continue
		}
		if d, ok := j.forwarded(name, verb, row); ok {
			calls[name] = d
		} else {
			all = false
		}
	}
	if all {
		j.Pass("DLG-06")
	} else {
		j.NotApplicable("DLG-06", "judged by the rows of the verbs")
	}
	j.sameEnvironment(calls)
	j.sameConfiguration(calls)
	r, _ := j.Call("add")
	j.Expect(strings.Contains(string(r.Stderr), refusal), Verdict{Row: "DLG-05", Severity: report.Low,
		Title:    "the standard error of the IPAM plugin is lost",
		Expected: fmt.Sprintf("%q on standard error, as the IPAM plugin printed it", refusal),
		Actual:   fmt.Sprintf("standard error %.300q", r.Stderr),
		Hint:     "let the delegate inherit standard error"})
	j.sameAddresses(add)
}

// sameEnvironment judges the environment of delegates, by the name of the call of the subject.
func (j *Judgment) sameEnvironment(calls map[string]script.Recorded) {
	for _, name := range sortedKeys(calls) {
		if d := environment(j.request(name), calls[name]); d != nil {
			j.Fail(Verdict{Row: "DLG-03", Severity: report.Medium,
				Title:    "the IPAM plugin gets another environment",
				Expected: "all variables of the caller, with at most another CNI_COMMAND",
				Actual:   strings.ToUpper(name) + ": " + strings.Join(d, ", "),
				Hint:     "start the delegate with the environment of the plugin, not with a list of known variables"})
			return
		}
	}
	j.Pass("DLG-03")
}

// sameConfiguration judges the standard input of delegates, by the name of the call of the subject.
func (j *Judgment) sameConfiguration(calls map[string]script.Recorded) {
	for _, name := range sortedKeys(calls) {
		r, _ := j.Call(name)
		missing, changed, err := configuration(r.Stdin, calls[name].Stdin)
		if err != nil {
			missing = []string{err.Error()}
		}
		if missing != nil {
			j.Fail(Verdict{Row: "DLG-04", Severity: report.High,
				Title:    "the IPAM plugin does not get the complete configuration",
				Expected: "the standard input of the plugin",
				Actual:   fmt.Sprintf("%s: missing: %s; standard input %.300q", strings.ToUpper(name), strings.Join(missing, ", "), calls[name].Stdin),
				Hint:     "pass on the bytes that the plugin read, not the ipam section or an encoded structure"})
			return
		}
		if changed != nil {
			j.Pass("DLG-04")
			j.Fail(Verdict{Row: "CFG-34", Severity: report.Medium,
				Title:    "values of the configuration change on the way to the IPAM plugin",
				Expected: "the values that the plugin got",
				Actual:   strings.ToUpper(name) + ": " + strings.Join(changed, "; "),
				Hint:     "pass on the bytes that the plugin read; JSON numbers lose digits in floating point"})
			return
		}
	}
	j.Pass("DLG-04")
	j.Pass("CFG-34")
}

// sameAddresses compares the result of ADD with the answer of the delegate.
func (j *Judgment) sameAddresses(d script.Recorded) {
	if j.Setup.Version < cni.V030 {
		j.NotApplicable("IPAM-04", "results have interfaces since 0.3.0")
		return
	}
	r, _ := j.Call("add")
	got := j.result("add")
	if got == nil {
		j.Stopped = "the result of ADD is invalid"
		return
	}
	want := j.Setup.allocation(1)
	var problems []string
	for _, ip := range want.IPs {
		i := slices.IndexFunc(got.IPs, func(g cni.IP) bool { return g.Address == ip.Address && g.Gateway == ip.Gateway })
		if i < 0 {
			problems = append(problems, fmt.Sprintf("ips lacks %s with gateway %s", ip.Address, ip.Gateway))
		} else if _, set := got.IPs[i].Interface.Get(); !set {
			problems = append(problems, fmt.Sprintf("ips[%d] lacks the index of its interface", i))
		}
	}
	for _, route := range want.Routes {
		if !slices.ContainsFunc(got.Routes, func(g cni.Route) bool { return g.Dst == route.Dst }) {
			problems = append(problems, fmt.Sprintf("routes lacks %s", route.Dst))
		}
	}
	if !slices.Contains(got.DNS.Nameservers, "10.77.0.53") {
		problems = append(problems, "dns lacks the nameserver 10.77.0.53")
	}
	j.Expect(problems == nil, Verdict{Row: "IPAM-04", Severity: report.Medium,
		Title:    "the result differs from the IPAM plugin's",
		Expected: "ips, routes and dns as the IPAM plugin returned them, with indexes of interfaces",
		Actual:   strings.Join(problems, ", ") + "; " + describe(r)})
}

// delegateErrorCase lets the IPAM plugin fail on CHECK and DEL.
var delegateErrorCase = &Case{
	Name: "delegate-error", Roles: []Role{Interface}, Once: true,
	Rows: []string{"PL-CHK-08", "PL-DEL-06", "DLG-06"},
	Script: func(s *Setup) (*script.Scenario, string) {
		if reason := s.delegates(); reason != "" {
			return nil, reason
		}
		steps := []script.Step{quiet(s.Call("add", cni.Add, 1))}
		if s.Version >= cni.V040 {
			steps = append(steps, answer(cni.Check, s.refuses(refusalCode)), quiet(s.Call("check", cni.Check, 1)))
		}
		return s.Scenario(1, append(steps, answer(cni.Del, s.refuses(refusalCode)), quiet(s.Call("del", cni.Del, 1)),
			answer(cni.Del, ""), quiet(s.Call("del2", cni.Del, 1)))...), ""
	},
	Judge: func(j *Judgment) {
		if !j.Requires("add") {
			return
		}
		if j.request("check").Name == "" {
			j.NotApplicable("PL-CHK-08", "CHECK exists since 0.4.0")
		} else {
			j.reportsRefusal("check", "PL-CHK-08", "CHECK succeeds although the IPAM plugin fails")
		}
		if !j.reportsRefusal("del", "PL-DEL-06", "DEL succeeds although the IPAM plugin fails") {
			return
		}
		j.Succeeded("del2", Verdict{Row: "DLG-06", Severity: report.High,
			Title: "DEL fails forever after an error of the IPAM plugin",
			Hint:  "release everything that is left, even if the first DEL removed the interface"})
	},
}

// reportsRefusal expects that a call fails because the IPAM plugin refuses it, if that was called.
func (j *Judgment) reportsRefusal(name, row, title string) bool {
	if len(j.delegated(name)) == 0 {
		j.Skip(row, "the IPAM plugin was not called")
		return false
	}
	r, _ := j.Call(name)
	if !j.failed(name) {
		j.Fail(Verdict{Row: row, Severity: report.High, Title: title,
			Expected: "an exit status other than 0 and the error of the IPAM plugin", Actual: describe(r),
			Hint: "return the error of the delegate, after the own work is done"})
		return false
	}
	return j.Expect(strings.Contains(string(r.Stdout)+string(r.Stderr), refusal), Verdict{Row: row, Severity: report.Low,
		Title:    fmt.Sprintf("the error of %s hides the error of the IPAM plugin", strings.ToUpper(name)),
		Expected: fmt.Sprintf("a message that contains %q", refusal), Actual: describe(r)})
}

// delegateFailedCase lets the IPAM plugin fail on ADD in several ways.
var delegateFailedCase = &Case{
	Name: "delegate-failed-add", Roles: []Role{Interface}, Once: true,
	Rows: []string{"DLG-07", "PL-ADD-09", "DLG-08", "DLG-05", "IPAM-08", "PL-ADD-10"},
	Script: func(s *Setup) (*script.Scenario, string) {
		if reason := s.delegates(); reason != "" {
			return nil, reason
		}
		return s.Scenario(4,
			answer(cni.Add, "echo conform-warning >&2\n"+s.refuses(refusalCode)), quiet(s.Call("refused", cni.Add, 1)),
			answer(cni.Add, s.addresses()+"exit 3\n"), quiet(s.Call("status", cni.Add, 2)),
			answer(cni.Add, "echo nonsense\n"), quiet(s.Call("nonsense", cni.Add, 3)),
			answer(cni.Add, fmt.Sprintf("echo '{\"cniVersion\":%q}'\n", s.Version)), quiet(s.Call("empty", cni.Add, 4)),
		), ""
	},
	Judge: func(j *Judgment) {
		calls := j.delegated("refused")
		if len(calls) == 0 {
			j.Stopped = "ADD does not run the IPAM plugin"
			return
		}
		r, _ := j.Call("refused")
		ok := strings.HasPrefix(verbs(calls), "ADD, DEL")
		j.Expect(ok, Verdict{Row: "PL-ADD-09", Severity: report.Medium,
			Title:    "an IPAM plugin that fails ADD gets no DEL",
			Expected: "ADD, DEL", Actual: verbs(calls),
			Hint: "run the delegate again with CNI_COMMAND=DEL before failing; the upstream plugins do not"})
		if ok {
			j.Pass("DLG-07")
		} else {
			j.NotApplicable("DLG-07", "judged as PL-ADD-09")
		}
		j.Expect(strings.Contains(string(r.Stderr), "conform-warning"), Verdict{Row: "DLG-05", Severity: report.Low,
			Title:    "the standard error of an IPAM plugin that fails is lost",
			Expected: "\"conform-warning\" on standard error, as the IPAM plugin printed it",
			Actual:   fmt.Sprintf("standard error %.300q", r.Stderr),
			Hint:     "let the delegate inherit standard error; libcni passes it on only if the delegate succeeds"})
		if j.Expect(j.failed("refused"), Verdict{Row: "DLG-08", Severity: report.High,
			Title:    "ADD succeeds although the IPAM plugin fails",
			Expected: "an exit status other than 0", Actual: describe(r)}) {
			j.mustFail("status", "DLG-08", "ADD ignores the exit status of the IPAM plugin",
				"the IPAM plugin printed a result but exited with status 3, so it failed")
			j.mustFail("nonsense", "DLG-08", "ADD succeeds although the IPAM plugin prints no result",
				"the IPAM plugin printed a text that is no JSON")
		}
		j.mustFail("empty", "IPAM-08", "ADD succeeds although the IPAM plugin returns no address",
			"a plugin that needs an address must not report a container without one as ready")
		if j.failed("empty") {
			j.released("empty")
		} else {
			j.Skip("PL-ADD-10", "ADD without an address succeeds")
		}
	},
}

// mustFail expects that a call fails.
func (j *Judgment) mustFail(name, row, title, hint string) {
	r, _ := j.Call(name)
	j.Expect(j.failed(name), Verdict{Row: row, Severity: report.High, Title: title,
		Expected: "an exit status other than 0", Actual: describe(r), Hint: hint})
}

// released expects that a failed ADD released the addresses that it got.
func (j *Judgment) released(name string) {
	calls := j.delegated(name)
	r, _ := j.Call(name)
	j.Expect(len(calls) > 0 && calls[len(calls)-1].Getenv("CNI_COMMAND") == string(cni.Del), Verdict{
		Row: "PL-ADD-10", Severity: report.High,
		Title:    "a failed ADD does not release its addresses",
		Expected: "a call of the IPAM plugin with CNI_COMMAND=DEL after its ADD",
		Actual:   verbs(calls) + "; " + describe(r),
		Hint:     "run the IPAM plugin with CNI_COMMAND=DEL before failing, whatever the error is"})
}

// delegateReleaseCase makes ADD fail after the IPAM plugin has allocated addresses.
var delegateReleaseCase = &Case{
	Name: "delegate-release", Roles: []Role{Interface}, Once: true, Rows: []string{"PL-ADD-10"},
	Script: func(s *Setup) (*script.Scenario, string) {
		if reason := s.delegates(); reason != "" {
			return nil, reason
		}
		route := answerWith(strings.ReplaceAll(s.ipamResult(), `{"dst":"0.0.0.0/0"}`, `{"dst":"198.51.100.0/24","gw":"203.0.113.1"}`))
		return s.Scenario(2,
			script.Step{Shell: fmt.Sprintf("ip -n c1 link add %s type veth peer name conform9", ifName), Quiet: true},
			quiet(s.Call("taken", cni.Add, 1)),
			answer(cni.Add, route), quiet(s.Call("route", cni.Add, 2)),
		), ""
	},
	Judge: func(j *Judgment) {
		judged := false
		for _, name := range []string{"taken", "route"} {
			if j.failed(name) && len(j.delegated(name)) > 0 {
				judged = true
				j.released(name)
			}
		}
		if !judged {
			j.NotApplicable("PL-ADD-10", "ADD fails before it runs the IPAM plugin, or succeeds")
		}
	},
}

// delegateGoneCase calls DEL without a namespace and without a previous result.
var delegateGoneCase = &Case{
	Name: "delegate-gone", Roles: []Role{Interface}, Once: true, Rows: []string{"PL-DEL-03", "PL-DEL-04", "PL-DEL-05"},
	Script: func(s *Setup) (*script.Scenario, string) {
		if reason := s.delegates(); reason != "" {
			return nil, reason
		}
		return s.Scenario(3,
			quiet(s.Call("add", cni.Add, 1)), quiet(s.Call("add2", cni.Add, 2)), quiet(s.Call("add3", cni.Add, 3)),
			script.Step{Shell: "ip netns del c1", Quiet: true}, quiet(s.Call("gone", cni.Del, 1)),
			quiet(s.Call("empty", cni.Del, 2, Env("CNI_NETNS", ""))),
			quiet(s.Call("plain", cni.Del, 3, Without("prevResult"))),
		), ""
	},
	Judge: func(j *Judgment) {
		if !j.Requires("add") || !j.Requires("add2") || !j.Requires("add3") {
			return
		}
		j.releasesBy("gone", "PL-DEL-03", "after the namespace of the container is gone")
		j.releasesBy("empty", "PL-DEL-04", "without CNI_NETNS")
		row := "PL-DEL-05"
		if j.failed("plain") {
			row = "PL-DEL-04"
		}
		j.releasesBy("plain", row, "without prevResult")
	},
}

// releasesBy expects that a DEL runs the IPAM plugin.
func (j *Judgment) releasesBy(name, row, circumstance string) {
	r, _ := j.Call(name)
	j.Expect(strings.Contains(verbs(j.delegated(name)), string(cni.Del)), Verdict{Row: row, Severity: report.High,
		Title:    "DEL does not release the addresses " + circumstance,
		Expected: "a call of the IPAM plugin with CNI_COMMAND=DEL",
		Actual:   verbs(j.delegated(name)) + "; " + describe(r),
		Hint:     "run the IPAM plugin on every DEL, first of all"})
}

// second is a directory in CNI_PATH, in addition to [script.Plugins].
const second = script.Dir + "/second"

// delegateSearchCase judges how the IPAM plugin is found.
var delegateSearchCase = &Case{
	Name: "delegate-search", Roles: []Role{Interface}, Rows: []string{"DLG-02"}, Once: true,
	Script: func(s *Setup) (*script.Scenario, string) {
		if reason := s.delegates(); reason != "" {
			return nil, reason
		}
		other := func(ipam string) func(*Draft) { return With("ipam", map[string]any{"type": ipam}) }
		path := func(dirs ...string) func(*Draft) { return Env("CNI_PATH", strings.Join(dirs, ":")) }
		const directory = script.Dir + "/third"
		out := s.Scenario(4,
			script.Step{Shell: "mkdir -p " + directory + "/" + scriptedIPAM, Quiet: true},
			quiet(s.Call("first", cni.Add, 1, path(script.Plugins, second))),
			quiet(s.Call("later", cni.Add, 2, path(script.Plugins, second), other("conform-second"))),
			quiet(s.Call("directory", cni.Add, 3, path(directory, script.Plugins))),
			quiet(s.Call("missing", cni.Add, 4, other("conform-missing"))),
		)
		out.Files = append(out.Files,
			script.File{Path: second + "/" + scriptedIPAM, Data: "#!/bin/sh\necho wrong directory\nexit 1\n", Mode: 0o755},
			script.File{Path: second + "/conform-second", Data: script.Recorder, Mode: 0o755},
			script.Answers("conform-second", "ADD", s.addresses()))
		return out, ""
	},
	Judge: func(j *Judgment) {
		if !j.Succeeded("first", Verdict{Row: "DLG-02", Severity: report.Medium,
			Title: "the IPAM plugin is not the one of the first directory in CNI_PATH"}) {
			return
		}
		j.Succeeded("later", Verdict{Row: "DLG-02", Severity: report.Medium,
			Title: "the IPAM plugin is not found in the second directory in CNI_PATH",
			Hint:  "split CNI_PATH at the colons and search all directories in their order"})
		j.Succeeded("directory", Verdict{Row: "DLG-02", Severity: report.Low,
			Title: "a directory with the name of the IPAM plugin hides it",
			Hint:  "skip entries of directories in CNI_PATH that are no regular files"})
		r, _ := j.Call("missing")
		j.Expect(j.failed("missing"), Verdict{Row: "DLG-02", Severity: report.High,
			Title:    "ADD succeeds although the IPAM plugin does not exist",
			Expected: "an exit status other than 0", Actual: describe(r)})
	},
}

// delegateResultCase lets the IPAM plugin answer in another version.
var delegateResultCase = &Case{
	Name: "delegate-result", Roles: []Role{Interface}, Oldest: cni.V030, Once: true, Rows: []string{"DLG-09"},
	Script: func(s *Setup) (*script.Scenario, string) {
		if reason := s.delegates(); reason != "" {
			return nil, reason
		}
		old := *s
		old.Version = cni.V020
		return s.Scenario(1, answer(cni.Add, old.addresses()), quiet(s.Call("add", cni.Add, 1))), ""
	},
	Judge: func(j *Judgment) {
		if !j.Succeeded("add", Verdict{Row: "DLG-09", Severity: report.Medium,
			Title: "ADD fails if the IPAM plugin answers in version 0.2.0",
			Hint:  "convert the result of the delegate to the requested version"}) {
			return
		}
		r, _ := j.Call("add")
		got := j.result("add")
		if got == nil {
			j.Stopped = "the result of ADD is invalid"
			return
		}
		for _, ip := range j.Setup.allocation(1).IPs {
			j.Expect(slices.ContainsFunc(got.IPs, func(g cni.IP) bool { return g.Address == ip.Address }), Verdict{
				Row: "DLG-09", Severity: report.High,
				Title:    "an address is lost if the IPAM plugin answers in version 0.2.0",
				Expected: fmt.Sprintf("ips with %s", ip.Address), Actual: describe(r)})
		}
	},
}
