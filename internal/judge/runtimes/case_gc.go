package runtimes

import (
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

// The second attachment of the cases of GC.
const (
	otherID     = "conform-2"
	otherIfName = "net2"
)

func other(i *input) { i.members["containerID"], i.members["ifname"] = otherID, otherIfName }

// valid selects the attachments that GC keeps. The JSON texts are the ones of the protocol.
func valid(keep ...any) option {
	return with("validAttachments", append([]any{}, keep...))
}

func kept(id, ifName string) any { return map[string]any{"containerID": id, "ifname": ifName} }

const validKey = "cni.dev/valid-attachments"

// gcScript returns a scenario with two attachments, of which GC keeps the first.
func gcScript(change func(s *Setup, list map[string]any)) func(*Setup) *script.Scenario {
	return func(s *Setup) *script.Scenario {
		list := s.rich()
		if change != nil {
			change(s, list)
		}
		s.network("10-judged", list)
		return s.scenario(step(s.call("add", Add, richAttachment)), step(s.call("add2", Add, richAttachment, other)),
			step(s.call("gc", GC, valid(kept(id, ifName)))), step(s.call("gc-all", GC, valid())))
	}
}

var gcCases = []*Case{{
	Name: "gc", Verbs: []Verb{GC}, Oldest: cni.V110,
	Rows:   []string{"RT-GC-01", "RT-GC-02", "RT-GC-05", "RT-GC-09", "RT-GC-13", "REQ-13"},
	Script: gcScript(nil), Judge: judgeGC,
}, {
	Name: "gc-fails", Verbs: []Verb{GC}, Oldest: cni.V110, Rows: []string{"RT-GC-02", "RT-GC-07", "ERR-11"},
	Script: gcScript(func(s *Setup, _ map[string]any) {
		s.answer(first, cni.GC, strings.ReplaceAll(s.fails(cni.CodeTryAgainLater, ""), refusal, refusal+"-first"))
		s.answer(third, cni.GC, strings.ReplaceAll(s.fails(cni.CodeTryAgainLater, ""), refusal, refusal+"-third"))
		s.answer(second, cni.Del, s.fails(cni.CodeTryAgainLater, ""))
	}),
	Judge: func(j *Judgment) {
		if !j.Requires("add") || !j.Requires("add2") {
			return
		}
		ran := order(only(j.ran("gc"), cni.GC))
		r, _ := j.Call("gc")
		if !j.Expect(ran == sequence(cni.GC, first, second, third) && j.failed("gc"), Verdict{
			Row: "RT-GC-02", Also: []string{"RT-GC-07"}, Severity: report.High, Title: "GC ends at an error",
			Expected: sequence(cni.GC, first, second, third) + "; exit status 1", Actual: ran + "; " + trial.Describe(r),
			Hint: "run GC of all plugins, also if one of them or a DEL fails, and return all errors"}) {
			return
		}
		text := string(r.Stdout)
		j.Expect(strings.Contains(text, refusal+"-first") && strings.Contains(text, refusal+"-third"), Verdict{
			Row: "ERR-11", Severity: report.Low, Title: "GC does not report all errors",
			Expected: "the messages of both plugins that fail", Actual: trial.Describe(r)})
	},
}, {
	Name: "gc-disabled", Verbs: []Verb{GC}, Oldest: cni.V110, Rows: []string{"CFG-09", "RT-GC-03"},
	Script: gcScript(func(_ *Setup, list map[string]any) { list["disableGC"] = true }),
	Judge: func(j *Judgment) {
		if j.Requires("add") && j.Requires("add2") {
			j.runs("gc", "no plugin", Verdict{Row: "CFG-09", Also: []string{"RT-GC-03"}, Severity: report.High,
				Title: "GC runs plugins or fails although disableGC is true"})
		}
	},
}, {
	Name: "gc-old", Verbs: []Verb{GC}, Newest: cni.V100, Once: true, Rows: []string{"RT-GC-06"},
	Script: gcScript(nil),
	Judge: func(j *Judgment) {
		if j.Requires("add") && j.Requires("add2") {
			j.runs("gc", sequence(cni.Del, third, second, first), Verdict{Row: "RT-GC-06", Severity: report.Medium,
				Title: "GC of a list below 1.1.0 does not only run DEL of the stale attachment",
				Hint:  "run DEL of stored attachments that are not valid; the verb GC exists from 1.1.0 on"})
		}
	},
}, {
	Name: "gc-without-list", Verbs: []Verb{GC}, Oldest: cni.V110, Rows: []string{"RT-GC-08"},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.three())
		return s.scenario(step(s.call("add", Add)), step(s.call("gc", GC, func(i *input) { delete(i.members, "validAttachments") })))
	},
	Judge: func(j *Judgment) {
		if !j.Requires("add") {
			return
		}
		r, _ := j.Call("gc")
		ran := j.ran("gc")
		j.Expect(len(only(ran, cni.Del)) == 0, Verdict{Row: "RT-GC-08", Severity: report.Critical,
			Title:    "GC without a list of valid attachments removes all attachments",
			Expected: "an error, or no DEL", Actual: order(ran) + "; " + trial.Describe(r),
			Hint: "refuse GC if the list is missing; only an empty list means that no attachment is valid"})
	},
}}

func judgeGC(j *Judgment) {
	if !j.Requires("add") || !j.Requires("add2") {
		return
	}
	dels, gcs := sequence(cni.Del, third, second, first), sequence(cni.GC, first, second, third)
	if !j.runs("gc", dels+", "+gcs, Verdict{Row: "RT-GC-05", Also: []string{"RT-GC-02"}, Severity: report.High,
		Title: "GC does not run DEL of the stale attachment and then GC of all plugins"}) {
		return
	}
	ran := only(j.ran("gc"), cni.GC)
	requests, ok := j.requests(ran)
	if !ok {
		return
	}
	want := []any{kept(id, ifName)}
	j.each(requests, func(_ int, r request) string { return r.unless(validKey, want) },
		Verdict{Row: "RT-GC-01", Severity: report.Critical, Title: "plugins do not get the valid attachments",
			Expected: validKey + " " + trial.Compact(want)})
	j.each(requests, func(_ int, r request) string { return r.without("prevResult", "runtimeConfig") },
		Verdict{Row: "REQ-13", Severity: report.Low, Title: "GC gets data of an attachment",
			Expected: "no prevResult and no runtimeConfig"})
	j.all(ran, noAttachment, Verdict{Row: "RT-GC-13", Severity: report.Low, Title: "GC gets variables of an attachment",
		Expected: "empty CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME and CNI_ARGS, and a CNI_PATH"})
	if requests, ok = j.requests(only(j.ran("gc-all"), cni.GC)); ok {
		j.each(requests, func(_ int, r request) string { return r.unless(validKey, []any{}) },
			Verdict{Row: "RT-GC-09", Severity: report.Medium, Title: "an empty list of valid attachments is not sent as []",
				Expected: validKey + " []"})
	}
}

// noAttachment describes a variable of an attachment in a call that concerns none.
func noAttachment(_ int, c script.Recorded) string {
	for _, key := range []string{"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS"} {
		if v := c.Getenv(key); v != "" {
			return key + "=" + v
		}
	}
	if v := c.Getenv("CNI_PATH"); v != script.Plugins {
		return "CNI_PATH=" + v
	}
	return ""
}
