package plugins

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// versionCases judge the verb VERSION, and the versions of requests.
var versionCases = []*Case{versionCase, unsupportedVersionCase, noVersionCase, verbVersionCase}

// versionCase asks for the versions with several inputs. VERSION needs no other variable and no
// input.
var versionCase = &Case{
	Name: "version", Once: true,
	Rows: []string{"PL-VRS-01", "PL-VRS-02", "PL-VRS-03", "PL-VRS-05", "VER-01", "VER-11"},
	Script: func(s *Setup) (*script.Scenario, string) {
		var steps []script.Step
		for _, c := range versionCalls(s) {
			steps = append(steps, quiet(c))
		}
		return s.Scenario(0, steps...), ""
	},
	Judge: judgeVersion,
}

// versionCalls are calls of VERSION. The first is as a runtime sends it.
func versionCalls(s *Setup) []script.Call {
	with := func(name, stdin string, env ...string) script.Call {
		c := versionCall(s.Subject.Name)
		c.Name, c.Env = name, append(c.Env, env...)
		if c.Stdin = nil; stdin != "" {
			c.Stdin = script.Literal(stdin)
		}
		return c
	}
	calls := []script.Call{
		versionCall(s.Subject.Name),
		with("version-empty", ""),
		with("version-garbage", "garbage"),
		with("version-list", "[1]"),
		with("version-object", "{}"),
		with("version-dummies", `{"cniVersion":"1.1.0"}`, "CNI_NETNS=dummy", "CNI_IFNAME=dummy", "CNI_PATH=dummy"),
	}
	open := with("version-open", "")
	open.Open = true
	calls = append(calls, open)
	for _, v := range s.Subject.Versions {
		if v >= cni.V100 {
			calls = append(calls, with("version-"+v.String(), fmt.Sprintf(`{"cniVersion":%q}`, v)))
		}
	}
	return calls
}

var fullVersion = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)$`)
})

func judgeVersion(j *Judgment) {
	calls := versionCalls(j.Setup)
	for _, c := range calls {
		j.Claim(c.Name)
	}
	var failed []string
	for _, c := range calls {
		r, _ := j.Call(c.Name)
		if r.Failed != "" || r.Status != 0 || len(strings.TrimSpace(string(r.Stdout))) == 0 {
			failed = append(failed, fmt.Sprintf("call %s: %s", c.Name, describe(r)))
		}
	}
	j.Expect(failed == nil, Verdict{Row: "PL-VRS-03", Severity: report.High,
		Title:    "VERSION fails",
		Expected: "an answer to CNI_COMMAND=VERSION without other variables, with any input or none, also while standard input stays open",
		Actual:   strings.Join(failed, "; "),
		Hint:     "answer VERSION before reading other variables and standard input"})
	r, _ := j.Call("version")
	if r.Status != 0 || len(r.Stdout) == 0 {
		return
	}
	o, rest := firstObject(r.Stdout)
	if !j.Expect(o != nil && rest == "", Verdict{Row: "PL-VRS-05", Severity: report.Medium,
		Title: "the answer to VERSION is not one JSON object", Expected: "one JSON object", Actual: describe(r)}) {
		return
	}
	var reply struct {
		CNIVersion string   `json:"cniVersion"`
		Supported  []string `json:"supportedVersions"`
	}
	err := json.Unmarshal(r.Stdout, &reply)
	if !j.Expect(err == nil && reply.CNIVersion != "" && len(reply.Supported) > 0, Verdict{Row: "PL-VRS-01", Severity: report.High,
		Title:    "the answer to VERSION lacks cniVersion or supportedVersions",
		Expected: `cniVersion, a text, and supportedVersions, an array of at least one text`, Actual: string(r.Stdout),
		Hint: "runtimes then assume that the plugin supports only 0.1.0"}) {
		return
	}
	wrong := slices.DeleteFunc(slices.Clone(reply.Supported), fullVersion().MatchString)
	j.Expect(len(wrong) == 0, Verdict{Row: "VER-01", Severity: report.Medium,
		Title: "supportedVersions contains an incomplete version", Expected: "three decimal numbers in each version",
		Actual: fmt.Sprintf("%q", wrong)})
	j.Info("VER-11", fmt.Sprintf("supports %d published versions", len(j.Setup.Subject.Versions)))
	j.echoes()
}

// echoes judges cniVersion of the answers to requests since 1.0.0.
func (j *Judgment) echoes() {
	var wrong []string
	asked := 0
	for _, v := range j.Setup.Subject.Versions {
		r, called := j.Call("version-" + v.String())
		if !called {
			continue
		}
		asked++
		var reply struct {
			CNIVersion string `json:"cniVersion"`
		}
		if json.Unmarshal(r.Stdout, &reply); reply.CNIVersion != v.String() {
			wrong = append(wrong, fmt.Sprintf("%q to a request with %q", reply.CNIVersion, v))
		}
	}
	if asked == 0 {
		j.NotApplicable("PL-VRS-02", "the plugin supports no version since 1.0.0")
		return
	}
	j.Expect(wrong == nil, Verdict{Row: "PL-VRS-02", Severity: report.Low,
		Title: "the answer to VERSION has another cniVersion than the request", Expected: "the cniVersion of the request",
		Actual: strings.Join(wrong, "; "), Hint: "plugins that use libcni answer with the newest version of the library"})
}

// unsupported are versions that no plugin supports, but for the published ones.
func unsupported(s *Setup) []string {
	list := []string{"99.0.0", "1.0.7"}
	for _, v := range cni.Versions() {
		if v >= cni.V020 && !slices.Contains(s.Subject.Versions, v) {
			list = append(list, v.String())
		}
	}
	return list
}

// unsupportedVersionCase sends versions that the plugin does not announce, and texts that are no
// versions. The plugin must refuse them before it does anything.
var unsupportedVersionCase = &Case{
	Name: "unsupported-version", Once: true, Rows: []string{"VER-03", "CFG-06", "IPAM-05"},
	Script: func(s *Setup) (*script.Scenario, string) {
		var steps []script.Step
		for _, v := range unsupported(s) {
			steps = append(steps, quiet(s.Call("add-"+v, cni.Add, 1, With("cniVersion", v))))
		}
		for _, verb := range []cni.Command{cni.Del, cni.Check, cni.GC, cni.Status} {
			if s.Version.Has(verb) {
				steps = append(steps, quiet(s.Call(unsupportedName(verb), verb, 1, unsupportedRequest(verb)...)))
			}
		}
		for i, v := range malformedVersions {
			steps = append(steps, quiet(s.Call(fmt.Sprintf("malformed-%d", i+1), cni.Add, 1, With("cniVersion", v))))
		}
		steps[0].Quiet, steps[len(steps)-1].Quiet = false, false
		return s.Scenario(1, steps...), ""
	},
	Judge: judgeUnsupportedVersion,
}

func unsupportedName(verb cni.Command) string { return strings.ToLower(string(verb)) + "-99.0.0" }

func unsupportedRequest(verb cni.Command) []func(*Draft) {
	options := []func(*Draft){With("cniVersion", "99.0.0"), Without("prevResult")}
	if verb == cni.GC {
		options = append(options, With("cni.dev/valid-attachments", []any{}))
	}
	return options
}

// malformedVersions are values of cniVersion that are not published as any version.
var malformedVersions = []any{"latest", "1.0", "v1.0.0", "1.0.0-rc1", " 1.0.0", 1, true, []any{"1.0.0"}, map[string]any{}}

func judgeUnsupportedVersion(j *Judgment) {
	names := []string{}
	for _, v := range unsupported(j.Setup) {
		names = append(names, "add-"+v)
	}
	for _, verb := range []cni.Command{cni.Del, cni.Check, cni.GC, cni.Status} {
		names = append(names, unsupportedName(verb))
	}
	changes := j.changes("add-99.0.0", "malformed-"+fmt.Sprint(len(malformedVersions)))
	wrong := j.refusals(names, cni.CodeIncompatibleVersion)
	v := Verdict{Row: "VER-03", Severity: report.High, Title: "an unsupported version is not refused with code 1",
		Expected: "exit status 1 with code 1 on every verb that reads a configuration",
		Actual:   strings.Join(wrong, "; "), Hint: "compare cniVersion with the announced versions before anything else"}
	if wrong == nil {
		v.Title, v.Expected = "the plugin works before it refuses the version", "code 1 before any side effect"
		v.Actual = strings.Join(changes, "; ")
	}
	ok := j.Expect(wrong == nil && changes == nil, v)
	if j.Setup.Role == IPAM && ok {
		j.Pass("IPAM-05")
	} else {
		j.NotApplicable("IPAM-05", "judged by VER-03 and VER-02")
	}
	var malformed []string
	for i := range malformedVersions {
		malformed = append(malformed, fmt.Sprintf("malformed-%d", i+1))
	}
	wrong = j.refusals(malformed, cni.CodeDecodingFailure, cni.CodeIncompatibleVersion)
	j.Expect(wrong == nil, Verdict{Row: "CFG-06", Severity: report.Medium,
		Title: "a malformed cniVersion is not refused", Expected: "exit status 1 with code 6, or 1 for a text",
		Actual: strings.Join(wrong, "; "), Hint: "cniVersion is a text with three decimal numbers"})
}

// noVersionCase compares requests without cniVersion with requests of 0.1.0.
var noVersionCase = &Case{
	Name: "no-version", Once: true, Rows: []string{"VER-04", "R-14"},
	Script: func(s *Setup) (*script.Scenario, string) {
		old := *s
		old.Version = cni.V010
		c := old.Scenario(3,
			quiet(old.Call("add", cni.Add, 1)),
			quiet(old.Call("add-empty", cni.Add, 2, With("cniVersion", ""))),
			quiet(old.Call("add-absent", cni.Add, 3, Without("cniVersion"))),
		)
		s.containers, c.Version = old.containers, s.Version.String()
		return c, ""
	},
	Judge: func(j *Judgment) {
		j.Claim("add", "add-empty", "add-absent")
		explicit, _ := j.Call("add")
		var wrong []string
		version := ""
		for _, name := range []string{"add-empty", "add-absent"} {
			r, _ := j.Call(name)
			if r.Status != explicit.Status || codeOf(r) != codeOf(explicit) {
				wrong = append(wrong, fmt.Sprintf("%s: %s", name, describe(r)))
			} else if r.Status == 0 {
				var result struct {
					CNIVersion string `json:"cniVersion"`
				}
				_ = json.Unmarshal(r.Stdout, &result) // remains empty
				if version = result.CNIVersion; version != "0.1.0" && version != "0.2.0" {
					wrong = append(wrong, fmt.Sprintf("%s: result with cniVersion %q", name, version))
				}
			}
		}
		if !j.Expect(wrong == nil, Verdict{Row: "VER-04", Severity: report.Medium,
			Title:    "a request without cniVersion is not treated as 0.1.0",
			Expected: "the same outcome as with cniVersion 0.1.0: " + describe(explicit),
			Actual:   strings.Join(wrong, "; "), Hint: `runtimes that use libcni send "cniVersion": "" for old configurations`}) {
			j.NotApplicable("R-14", "judged by VER-04")
			return
		}
		j.Pass("R-14")
	},
}

// verbVersionCase sends verbs in versions that lack them.
var verbVersionCase = &Case{
	Name: "verb-version", Once: true, Oldest: cni.V040, Rows: []string{"PL-CHK-01", "PL-STA-06", "PL-GC-07"},
	Script: func(s *Setup) (*script.Scenario, string) {
		var calls []script.Call
		for _, v := range s.Subject.Versions {
			old := *s
			old.Version = v
			if v < cni.V110 && s.Version >= cni.V110 {
				calls = append(calls, old.Call("status-"+v.String(), cni.Status, 1),
					old.Call("gc-"+v.String(), cni.GC, 1, With("cni.dev/valid-attachments", []any{})))
			}
			if v < cni.V040 {
				prev := With("prevResult", script.Literal(old.PrevResult(1)))
				calls = append(calls, old.Call("check-"+v.String(), cni.Check, 1, prev))
			}
		}
		if calls == nil {
			return nil, "no verb is missing in only a part of the versions"
		}
		var steps []script.Step
		for _, c := range calls {
			steps = append(steps, quiet(c))
		}
		return s.Scenario(1, steps...), ""
	},
	Judge: func(j *Judgment) {
		for _, verb := range []struct {
			call, row string
			first     cni.Version
		}{{"check", "PL-CHK-01", cni.V040}, {"status", "PL-STA-06", cni.V110}, {"gc", "PL-GC-07", cni.V110}} {
			var calls []string
			for _, v := range j.Setup.Subject.Versions {
				if v < verb.first && j.Setup.Version >= verb.first {
					calls = append(calls, verb.call+"-"+v.String())
				}
			}
			if calls == nil {
				j.NotApplicable(verb.row, "either no or every version of the plugin has the verb")
				continue
			}
			wrong := j.refusals(calls, cni.CodeIncompatibleVersion)
			j.Expect(wrong == nil, Verdict{Row: verb.row, Severity: report.Medium,
				Title:    fmt.Sprintf("%s is not refused below %s", strings.ToUpper(verb.call), verb.first),
				Expected: "exit status 1 with code 1", Actual: strings.Join(wrong, "; ")})
		}
	},
}
