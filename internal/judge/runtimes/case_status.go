package runtimes

import (
	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

var statusCases = []*Case{{
	Name: "status", Verbs: []Verb{Status}, Oldest: cni.V110, Rows: []string{"RT-STA-02", "RT-STA-03", "RT-STA-05", "REQ-14"},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.rich())
		return s.scenario(step(s.call("status", Status)))
	},
	Judge: func(j *Judgment) {
		if !j.runs("status", sequence(cni.Status, first, second, third), Verdict{Row: "RT-STA-05", Also: []string{"RT-STA-02"},
			Severity: report.Medium, Title: "STATUS does not run the plugins of the list in order"}) {
			return
		}
		if requests, ok := j.requests(j.ran("status")); ok {
			j.each(requests, func(_ int, r request) string {
				if text := r.unless("name", netName); text != "" {
					return text
				}
				return r.without("prevResult", "runtimeConfig", validKey)
			}, Verdict{Row: "REQ-14", Severity: report.Low, Title: "STATUS gets a wrong name, or data of attachments",
				Expected: "the name and the version of the list, and no data of attachments"})
		}
		j.all(j.ran("status"), noAttachment, Verdict{Row: "RT-STA-03", Severity: report.Low,
			Title:    "STATUS gets variables of an attachment",
			Expected: "empty CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME and CNI_ARGS, and a CNI_PATH"})
	},
}, {
	Name: "status-fails", Verbs: []Verb{Status}, Oldest: cni.V110, Rows: []string{"RT-STA-02", "RT-STA-04"},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.three())
		s.answer(first, cni.Status, s.fails(cni.CodeNotAvailable, ""))
		return s.scenario(step(s.call("status", Status)), step(s.call("add", Add)))
	},
	Judge: func(j *Judgment) {
		r, _ := j.Call("status")
		ran := order(j.ran("status"))
		e, err := cni.DecodeError(r.Stdout)
		j.Expect(j.failed("status") && ran == sequence(cni.Status, first) && err == nil && e.Code == cni.CodeNotAvailable, Verdict{
			Row: "RT-STA-02", Severity: report.Medium, Title: "STATUS does not end with the error of the first plugin that fails",
			Expected: sequence(cni.Status, first) + "; exit status 1 with code 50", Actual: ran + "; " + trial.Describe(r)})
		j.Succeeded("add", Verdict{Row: "RT-STA-04", Severity: report.Medium, Title: "ADD fails after a failed STATUS"})
	},
}, {
	Name: "status-old", Verbs: []Verb{Status}, Oldest: cni.V110, Lists: cni.V100, Rows: []string{"RT-STA-01"},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.three())
		return s.scenario(step(s.call("status", Status)))
	},
	Judge: func(j *Judgment) {
		j.runs("status", "no plugin", Verdict{Row: "RT-STA-01", Severity: report.Low,
			Title: "STATUS of a list below 1.1.0 runs plugins, or fails"})
	},
}}
