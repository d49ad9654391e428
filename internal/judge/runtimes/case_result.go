package runtimes

import (
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

// answering returns a scenario in which the first of two plugins has an answer to ADD.
func answering(answer func(*Setup) string) func(*Setup) *script.Scenario {
	return func(s *Setup) *script.Scenario {
		s.network("10-judged", s.list(netName, first, second))
		s.answer(first, cni.Add, answer(s))
		return s.scenario(step(s.call("add", Add)))
	}
}

// refusedResult returns a case in which ADD must fail because of the output of a plugin that succeeds.
func refusedResult(name, row, what, shell string) *Case {
	return &Case{Name: name, Once: true, Rows: []string{row},
		Script: answering(func(*Setup) string { return shell }),
		Judge: func(j *Judgment) {
			j.refused("add", Verdict{Row: row, Severity: report.Medium, Title: "ADD succeeds although a plugin prints " + what,
				Hint: "check the output of a plugin before the next one runs"})
		}}
}

var resultCases = []*Case{
	refusedResult("result-empty", "RES-05", "nothing", ":\n"),
	refusedResult("result-text", "RES-05", "text instead of a result", "echo done\n"),
	refusedResult("result-unknown-version", "RES-07", "a result of version 99.0.0", `echo '{"cniVersion":"99.0.0","ips":[]}'`+"\n"),
	refusedResult("result-error", "RES-14", "an error object and exits with 0", `echo '{"code":7,"msg":"conform-refusal"}'`+"\n"),
	{
		Name: "result-without-version", Rows: []string{"RES-06", "REQ-06"},
		Script: answering(func(s *Setup) string {
			return strings.Replace(prints(results(first), s.Version), `"cniVersion":"`+s.Version.String()+`",`, "", 1)
		}),
		Judge: judgePassedOn("RES-06", "a result without cniVersion is not taken for one in the version of the request"),
	}, {
		Name: "result-other-version", Oldest: cni.V100, Rows: []string{"VER-12", "REQ-06"},
		Script: answering(func(*Setup) string { return prints(results(first), cni.V040) }),
		Judge:  judgePassedOn("VER-12", "a result in version 0.4.0 is not accepted"),
	}, {
		Name: "error-text", Once: true, Rows: []string{"ERR-06"},
		Script: answering(func(*Setup) string { return "echo conform-broken\nexit 1\n" }),
		Judge: func(j *Judgment) {
			r, _ := j.Call("add")
			e, err := cni.DecodeError(r.Stdout)
			j.Expect(j.failed("add") && err == nil && strings.Contains(e.Msg+e.Details, "conform-broken"), Verdict{
				Row: "ERR-06", Severity: report.Low, Title: "the error does not quote the output of a plugin that prints no error object",
				Expected: "exit status 1 with conform-broken in the message or the details", Actual: trial.Describe(r)})
		},
	},
}

// judgePassedOn returns a judgment about the result of the first plugin, which the second one must get in
// the version of the request.
func judgePassedOn(row, title string) func(*Judgment) {
	return func(j *Judgment) {
		if !j.runs("add", sequence(cni.Add, first, second), Verdict{Row: row, Severity: report.High, Title: title}) {
			return
		}
		if requests, ok := j.requests(j.ran("add")); ok {
			version := j.Setup.Version.String()
			j.each(requests[1:], func(_ int, r request) string {
				prev, _ := r["prevResult"].(map[string]any)
				return request(prev).unless("cniVersion", version)
			}, Verdict{Row: "REQ-06", Severity: report.Medium, Title: "prevResult has another version than the request",
				Expected: "prevResult in version " + version, Hint: "convert results to the version of the request"})
			j.each(requests[1:], func(_ int, r request) string {
				return r.unlessResult(results(first), j.Setup.Version)
			}, Verdict{Row: row, Severity: report.High, Title: title, Expected: "the result of the first plugin as prevResult"})
		}
	}
}
