package runtimes

import (
	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

var checkCases = []*Case{{
	Name: "check", Verbs: []Verb{Check}, Oldest: cni.V040, Rows: []string{"RT-CHK-04", "RT-CHK-06", "REQ-03", "ENV-13"},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.rich())
		return s.scenario(step(s.call("add", Add, richAttachment)), step(s.call("check", Check, richAttachment)))
	},
	Judge: func(j *Judgment) {
		if !j.Requires("add") || !j.runs("check", sequence(cni.Check, first, second, third), Verdict{
			Row: "RT-CHK-04", Severity: report.High, Title: "CHECK does not run the plugins of the list in order"}) {
			return
		}
		if requests, ok := j.requests(j.ran("check")); ok {
			j.each(requests, func(_ int, r request) string { return r.unlessResult(results(third), j.Setup.Version) },
				Verdict{Row: "REQ-03", Severity: report.High, Title: "a plugin does not get the final result of ADD",
					Expected: "prevResult with the result of the last plugin, for each plugin",
					Hint:     "pass the stored result of the last plugin to all plugins"})
		}
		j.sameParameters("check", Verdict{Row: "RT-CHK-06", Also: []string{"ENV-13"}})
	},
}, {
	Name: "check-old", Verbs: []Verb{Check}, Oldest: cni.V040, Lists: cni.V031, Once: true, Rows: []string{"RT-CHK-01"},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.three())
		return s.scenario(step(s.call("add", Add)), step(s.call("check", Check)))
	},
	Judge: func(j *Judgment) {
		if j.Requires("add") {
			j.startsNothing("check", Verdict{Row: "RT-CHK-01", Severity: report.Medium,
				Title: "CHECK of a list of version 0.3.1 is executed", Hint: "CHECK exists from version 0.4.0 on"})
		}
	},
}, {
	Name: "check-disabled", Verbs: []Verb{Check}, Oldest: cni.V040, Rows: []string{"RT-CHK-02", "CFG-08"},
	Script: func(s *Setup) *script.Scenario {
		var steps []script.Step
		for _, v := range []struct {
			name  string
			value any
		}{{"boolean", true}, {"text", "TRUE"}} {
			list := s.list(v.name, first)
			list["disableCheck"] = v.value
			s.network(v.name, list)
			steps = append(steps, step(s.call("add-"+v.name, Add, network(v.name), with("ifname", v.name))),
				step(s.call("check-"+v.name, Check, network(v.name), with("ifname", v.name))))
		}
		return s.scenario(steps...)
	},
	Judge: func(j *Judgment) {
		for _, name := range []string{"boolean", "text"} {
			if !j.Requires("add-" + name) {
				return
			}
			j.runs("check-"+name, "no plugin", Verdict{Row: "CFG-08", Also: []string{"RT-CHK-02"}, Severity: report.Medium,
				Title: "CHECK runs plugins or fails although disableCheck is true, as " + name,
				Hint:  `accept true and "true" in any case, and succeed without a plugin`})
		}
	},
}, {
	Name: "check-unknown", Verbs: []Verb{Check, Del}, Oldest: cni.V040, Once: true, Rows: []string{"RT-CHK-03"},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.three())
		return s.scenario(step(s.call("before", Check)), step(s.call("add", Add)), step(s.call("del", Del)),
			step(s.call("after", Check)))
	},
	Judge: func(j *Judgment) {
		v := Verdict{Row: "RT-CHK-03", Severity: report.Medium, Title: "CHECK before ADD is executed",
			Hint: "return an error if there is no stored result"}
		j.startsNothing("before", v)
		if j.Requires("add") && j.Requires("del") {
			v.Title = "CHECK after DEL is executed"
			j.startsNothing("after", v)
		}
	},
}, {
	Name: "check-fails", Verbs: []Verb{Check}, Oldest: cni.V040, Once: true, Rows: []string{"RT-CHK-05", "ERR-08"},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.three())
		s.answer(second, cni.Check, s.fails(cni.CodeTryAgainLater, ""))
		return s.scenario(step(s.call("add", Add)), step(s.call("check", Check)))
	},
	Judge: func(j *Judgment) {
		if !j.Requires("add") {
			return
		}
		j.returns("check", cni.CodeTryAgainLater, Verdict{Row: "ERR-08", Severity: report.High,
			Title: "CHECK does not return the error of a plugin"})
		choice := "CHECK ends at the first plugin that fails"
		if order(j.ran("check")) == sequence(cni.Check, first, second, third) {
			choice = "CHECK continues after a plugin that fails"
		}
		j.Info("RT-CHK-05", choice)
	},
}, {
	Name: "check-record-unreadable", Verbs: []Verb{Check}, Oldest: cni.V040, Once: true, Rows: []string{"RT-CHK-08"},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.three())
		return s.scenario(step(s.call("add", Add)),
			run("find "+cacheDir+` -type f -exec sh -c 'for f; do : >"$f"; done' sh {} +`), step(s.call("check", Check)))
	},
	Judge: func(j *Judgment) {
		if j.Requires("add") {
			j.refused("check", Verdict{Row: "RT-CHK-08", Severity: report.Medium,
				Title: "CHECK succeeds although the files in the directory of the state are empty"})
		}
	},
}}
