package runtimes

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

var delCases = []*Case{{
	Name: "del", Verbs: []Verb{Del}, Rows: []string{
		"RT-DEL-01", "RT-DEL-02", "RT-DEL-04", "RT-DEL-06", "RT-DEL-07", "LIF-10", "REQ-04", "REQ-05",
		"ENV-13", "CACHE-01", "CACHE-10",
	},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.rich())
		return s.scenario(step(s.call("add", Add, richAttachment)), step(s.call("del", Del, richAttachment)),
			step(s.call("again", Del, richAttachment)))
	},
	Judge: judgeDel,
}, {
	Name: "del-netns-gone", Verbs: []Verb{Del}, Once: true, Rows: []string{"RT-DEL-07"},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.three())
		return s.scenario(step(s.call("add", Add)), run("ip netns delete "+netnsName),
			step(s.call("del", Del, with("netns", ""))))
	},
	Judge: func(j *Judgment) {
		if j.Requires("add") {
			j.runs("del", sequence(cni.Del, third, second, first), Verdict{Row: "RT-DEL-07", Severity: report.High,
				Title: "DEL does not run all plugins if the namespace no longer exists",
				Hint:  "run DEL with an empty CNI_NETNS"})
		}
	},
}, {
	Name: "del-fails", Verbs: []Verb{Del}, Rows: []string{"RT-DEL-03", "R-01"},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.three())
		s.answer(second, cni.Del, s.fails(cni.CodeTryAgainLater, "conform-details"))
		return s.scenario(step(s.call("add", Add)), step(s.call("del", Del)),
			run("rm "+script.Answers(second, string(cni.Del), "").Path), step(s.call("again", Del)))
	},
	Judge: judgeDelFails,
}, {
	Name: "del-changed", Verbs: []Verb{Del}, Once: true, Rows: []string{"CACHE-05"},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.three())
		changed := script.File{Path: script.Dir + "/changed", Data: document(s.list(netName, first))}
		s.files = append(s.files, changed)
		return s.scenario(step(s.call("add", Add)),
			run("cp "+changed.Path+" "+confDir+"/10-judged.conflist"), step(s.call("del", Del)))
	},
	Judge: func(j *Judgment) {
		if j.Requires("add") {
			j.runs("del", sequence(cni.Del, third, second, first), Verdict{Row: "CACHE-05", Severity: report.High,
				Title: "DEL runs the plugins of a file that was changed after ADD",
				Hint:  "keep the configuration of ADD, and use it for DEL"})
		}
	},
}, {
	Name: "del-record-lost", Verbs: []Verb{Del}, Once: true, Rows: []string{"RT-DEL-06", "REQ-04"},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.three())
		return s.scenario(step(s.call("add", Add)), run("find "+cacheDir+" -mindepth 1 -delete"), step(s.call("del", Del)))
	},
	Judge: func(j *Judgment) {
		if !j.Requires("add") {
			return
		}
		if j.runs("del", sequence(cni.Del, third, second, first), Verdict{Row: "RT-DEL-06", Severity: report.High,
			Title: "DEL without a stored result does not run all plugins",
			Hint:  "run DEL without prevResult"}) {
			j.Pass("REQ-04")
		}
	},
}, {
	Name: "del-record-unreadable", Verbs: []Verb{Del}, Once: true, Rows: []string{"RT-DEL-05", "R-08"},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.three())
		return s.scenario(step(s.call("add", Add)),
			run("find "+cacheDir+` -type f -exec sh -c 'for f; do : >"$f"; done' sh {} +`), step(s.call("del", Del)))
	},
	Judge: func(j *Judgment) {
		if j.Requires("add") {
			j.runs("del", sequence(cni.Del, third, second, first), Verdict{Row: "RT-DEL-05", Also: []string{"R-08"},
				Severity: report.High, Title: "an empty file in the directory of the state blocks DEL",
				Hint: "drop a record that cannot be read, and run DEL without prevResult"})
		}
	},
}, {
	Name: "add-twice", Verbs: []Verb{Del}, Oldest: cni.V040, Once: true, Rows: []string{"RT-ADD-10"},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.list(netName, first))
		return s.scenario(step(s.call("add", Add)), step(s.call("again", Add)))
	},
	Judge: func(j *Judgment) {
		if !j.Requires("add") {
			return
		}
		ran := order(j.ran("again"))
		j.Expect(!strings.HasPrefix(ran, sequence(cni.Add, first)), Verdict{Row: "RT-ADD-10", Severity: report.Medium,
			Title: "a second ADD runs plugins without DEL", Expected: "an error and no plugin, or DEL before ADD",
			Actual: ran, Hint: "refuse ADD while the attachment exists"})
	},
}}

func judgeDel(j *Judgment) {
	if !j.Requires("add") || !j.runs("del", sequence(cni.Del, third, second, first), Verdict{
		Row: "RT-DEL-01", Also: []string{"LIF-10"}, Severity: report.High,
		Title: "DEL does not run the plugins of the list in reverse order"}) {
		return
	}
	requests, ok := j.requests(j.ran("del"))
	if !ok {
		return
	}
	if j.Setup.Version >= cni.V040 {
		j.each(requests, func(_ int, r request) string { return r.unlessResult(results(third), j.Setup.Version) },
			Verdict{Row: "RT-DEL-02", Also: []string{"REQ-04", "CACHE-01"}, Severity: report.High,
				Title:    "DEL does not get the result of ADD",
				Expected: "prevResult with the result of the last plugin", Hint: "store the result of ADD"})
	} else {
		j.each(requests, func(_ int, r request) string { return r.without("prevResult") },
			Verdict{Row: "REQ-05", Severity: report.Low, Title: "DEL below 0.4.0 gets a prevResult", Expected: "no prevResult"})
		j.Pass("RT-DEL-02")
		j.Pass("CACHE-01")
	}
	j.sameParameters("del", Verdict{Row: "RT-DEL-07", Also: []string{"ENV-13"}})
	if !j.runs("again", sequence(cni.Del, third, second, first), Verdict{Row: "RT-DEL-06", Severity: report.High,
		Title: "DEL of an attachment without a record does not run all plugins"}) {
		return
	}
	if requests, ok = j.requests(j.ran("again")); ok {
		j.each(requests, func(_ int, r request) string { return r.without("prevResult") },
			Verdict{Row: "RT-DEL-04", Also: []string{"CACHE-10", "REQ-04"}, Severity: report.Medium,
				Title: "the stored result outlives DEL", Expected: "no prevResult in the second DEL",
				Hint: "delete the stored result when DEL has succeeded"})
	}
}

// sameParameters compares the variables and runtimeConfig of a call with the ones in the call "add". The
// plugins of both are matched by their names.
func (j *Judgment) sameParameters(call string, v Verdict) {
	adds := only(j.ran("add"), cni.Add)
	v.Severity, v.Title = report.Medium, call+" does not get the parameters of ADD"
	v.Expected = "the variables and runtimeConfig of ADD, except CNI_COMMAND and CNI_PATH"
	var texts []string
	for _, c := range j.ran(call) {
		i := slices.IndexFunc(adds, func(a script.Recorded) bool { return a.Plugin == c.Plugin })
		if text := "no ADD"; i >= 0 {
			text = differentParameters(adds[i], c)
			texts = append(texts, text)
		}
	}
	texts = slices.DeleteFunc(texts, func(s string) bool { return s == "" })
	v.Actual = strings.Join(texts, "; ")
	j.Expect(len(texts) == 0, v)
}

func differentParameters(add, c script.Recorded) string {
	for _, key := range []string{"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS"} {
		if want, got := add.Getenv(key), c.Getenv(key); want != got {
			return fmt.Sprintf("%s: %s=%q instead of %q", short(c.Plugin), key, got, want)
		}
	}
	var a, b request
	if trial.DecodeExactly(add.Stdin, &a) == nil && trial.DecodeExactly(c.Stdin, &b) == nil &&
		!reflect.DeepEqual(a["runtimeConfig"], b["runtimeConfig"]) {
		return short(c.Plugin) + ": runtimeConfig " + trial.Compact(b["runtimeConfig"])
	}
	return ""
}

func judgeDelFails(j *Judgment) {
	if !j.Requires("add") {
		return
	}
	ran := order(j.ran("del"))
	r, _ := j.Call("del")
	e, err := cni.DecodeError(r.Stdout)
	begins := strings.HasPrefix(ran, sequence(cni.Del, third, second))
	if !j.Expect(j.failed("del") && begins && err == nil && e.Code == cni.CodeTryAgainLater && strings.Contains(e.Msg, refusal), Verdict{
		Row: "RT-DEL-03", Severity: report.High, Title: "DEL does not return the error of a plugin",
		Expected: fmt.Sprintf("%s; exit status 1, code %d with the message of the plugin", sequence(cni.Del, third, second), cni.CodeTryAgainLater),
		Actual:   ran + "; " + trial.Describe(r)}) {
		return
	}
	choice := "DEL ends at the first plugin that fails"
	if ran == sequence(cni.Del, third, second, first) {
		choice = "DEL continues after a plugin that fails"
	}
	j.Info("R-01", choice)
	j.repeats("again", Verdict{Row: "RT-DEL-03", Severity: report.High,
		Title: "a failed DEL cannot be repeated with the stored result",
		Hint:  "delete the stored result only when DEL has succeeded"})
}

// repeats records that a call must run DEL of all plugins with the stored result.
func (j *Judgment) repeats(call string, v Verdict) {
	ran := j.ran(call)
	requests, ok := j.requests(ran)
	if !ok {
		return
	}
	actual := order(ran)
	for _, r := range requests {
		if text := r.unlessResult(results(third), j.Setup.Version); j.Setup.Version >= cni.V040 && text != "" {
			actual += "; " + text
		}
	}
	v.Expected, v.Actual = sequence(cni.Del, third, second, first), actual
	j.Expect(actual == v.Expected, v)
}
