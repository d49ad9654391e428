package runtimes

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

var addCases = []*Case{{
	Name: "add", Rows: []string{
		"RT-ADD-01", "RT-ADD-02", "RT-ADD-09", "LIF-09", "EXE-03",
		"ENV-04", "ENV-06", "ENV-09", "ENV-11", "ENV-12", "ENV-14", "EXE-09",
		"REQ-01", "REQ-02", "REQ-06", "REQ-07", "REQ-08", "REQ-09", "REQ-11", "REQ-12", "REQ-17",
		"CFG-12", "CFG-34", "CFG-41", "DNS-04", "VER-10",
	},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.rich())
		return s.scenario(step(s.call("add", Add, richAttachment, environment("CONFORM=inherited"))))
	},
	Judge: judgeAdd,
}, {
	Name: "add-fails", Rows: []string{"RT-ADD-03", "RT-ADD-04", "ERR-08", "EXE-05"},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.three())
		s.answer(second, cni.Add, s.fails(cni.CodeTryAgainLater, "conform-details"))
		return s.scenario(step(s.call("add", Add)))
	},
	Judge: judgeAddFails,
}, {
	Name: "add-exit", Once: true, Rows: []string{"EXE-05"},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.three())
		s.answer(second, cni.Add, prints(results(second), s.Version)+"exit 3\n")
		return s.scenario(step(s.call("add", Add)))
	},
	Judge: func(j *Judgment) {
		j.refused("add", Verdict{Row: "EXE-05", Severity: report.High,
			Title: "ADD succeeds although a plugin exits with status 3",
			Hint:  "look at the exit status before the output"})
	},
}, {
	Name: "add-missing", Once: true, Rows: []string{"EXE-01"},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.list(netName, first, "conform-missing"))
		return s.scenario(step(s.call("add", Add)))
	},
	Judge: func(j *Judgment) {
		j.refused("add", Verdict{Row: "EXE-01", Severity: report.High,
			Title: "ADD succeeds although a plugin does not exist",
			Hint:  "report an error if no directory has the program named by type"})
	},
}, {
	Name: "add-again-after-failure", Verbs: []Verb{Del}, Once: true,
	Rows: []string{"RT-ADD-05", "LIF-04", "RT-DEL-08"},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.three())
		s.answer(second, cni.Add, s.fails(cni.CodeTryAgainLater, ""))
		return s.scenario(step(s.call("add", Add)), step(s.call("del", Del)))
	},
	Judge: judgeCleanUp,
}, {
	Name: "variables-stale", Once: true, Rows: []string{"ENV-12"},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.three())
		return s.scenario(step(s.call("add", Add, environment("CNI_ARGS=STALE=1"),
			environment("CNI_CONTAINERID=stale"), environment("CNI_NETNS=/stale"))))
	},
	Judge: func(j *Judgment) {
		if !j.Requires("add") {
			return
		}
		j.all(j.ran("add"), func(_ int, c script.Recorded) string {
			for _, key := range []string{"CNI_ARGS", "CNI_CONTAINERID", "CNI_NETNS"} {
				if v := c.Getenv(key); strings.Contains(strings.ToLower(v), "stale") {
					return fmt.Sprintf("%s=%q", key, v)
				}
			}
			return ""
		}, Verdict{Row: "ENV-12", Severity: report.Medium,
			Title:    "variables of the runtime's own environment reach plugins",
			Expected: "the variables of the attachment, and CNI_ARGS empty without arguments",
			Hint:     "set all six CNI variables for each call"})
	},
}, {
	Name: "identifiers", Once: true, Rows: []string{"ENV-05", "ENV-06", "ENV-15"},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.three())
		return s.scenario(step(s.call("add-id", Add, container("-x"))),
			step(s.call("add-path", Add, container("../x"))),
			step(s.call("add-ifname", Add, with("ifname", "et/h"))))
	},
	Judge: func(j *Judgment) {
		for _, c := range []struct{ call, row, what string }{
			{"add-id", "ENV-05", "the container ID -x"}, {"add-path", "ENV-05", "the container ID ../x"},
			{"add-ifname", "ENV-06", "the interface name et/h"},
		} {
			ran := j.ran(c.call)
			r, _ := j.Call(c.call)
			j.Expect(j.failed(c.call) && len(ran) == 0, Verdict{Row: c.row, Also: []string{"ENV-15"},
				Severity: report.Medium, Title: "ADD takes " + c.what,
				Expected: "an error, and no plugin runs", Actual: order(ran) + "; " + trial.Describe(r),
				Hint: "validate the identifiers before the first plugin starts"})
		}
	},
}, {
	Name: "input-unread", Once: true, Rows: []string{"EXE-04"},
	Script: func(s *Setup) *script.Scenario {
		list := s.list(netName, "conform-deaf")
		list["plugins"].([]any)[0].(map[string]any)["filler"] = strings.Repeat("x", 300<<10)
		s.network("10-judged", list)
		s.files = append(s.files, script.File{Path: script.Plugins + "/conform-deaf", Mode: 0o755,
			Data: "#!/bin/sh\ncase $CNI_COMMAND in\nVERSION)\n" + s.supported() + ";;\nADD)\n" +
				prints(results(first), s.Version) + ";;\nesac\n"})
		return s.scenario(step(s.call("add", Add)))
	},
	Judge: func(j *Judgment) {
		j.Succeeded("add", Verdict{Row: "EXE-04", Severity: report.Medium,
			Title: "ADD fails if a plugin does not read its input",
			Hint:  "ignore a broken pipe on the standard input of a plugin"})
	},
}, {
	Name: "namespace", Once: true, Rows: []string{"EXE-11"},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.list(netName, first))
		s.answer(first, cni.Add, "own=$(readlink /proc/self/ns/net)\n"+
			strings.ReplaceAll(prints(inNamespace(), s.Version), "'END-OF-RESULT'", "END-OF-RESULT"))
		return s.scenario(run("readlink /proc/self/ns/net"), step(s.call("add", Add)))
	},
	Judge: func(j *Judgment) {
		if !j.Requires("add") {
			return
		}
		r, _ := j.Call("add")
		host := ""
		for _, e := range j.Events {
			if strings.HasPrefix(e.Output, "net:") {
				host = strings.TrimSpace(e.Output)
			}
		}
		if host == "" || !strings.Contains(string(r.Stdout), "net:[") {
			j.Stopped = "the recording lacks a namespace"
			return
		}
		j.Expect(strings.Contains(string(r.Stdout), host), Verdict{Row: "EXE-11", Severity: report.High,
			Title:    "plugins run in another network namespace than the runtime",
			Expected: "namespace " + host, Actual: string(r.Stdout),
			Hint: "start plugins in the namespace of the runtime; they enter CNI_NETNS themselves"})
	},
}, {
	Name: "deadline", Once: true, Rows: []string{"EXE-12", "SEC-06"},
	Script: func(s *Setup) *script.Scenario {
		s.network("10-judged", s.three())
		s.answer(first, cni.Add, "exec sleep 30\n")
		return s.scenario(step(s.call("add", Add, with("timeoutMs", 300))))
	},
	Judge: func(j *Judgment) {
		r, _ := j.Call("add")
		ran := only(j.ran("add"), cni.Add)
		j.Expect(j.failed("add") && len(ran) <= 1 && r.Took.Seconds() < 20, Verdict{
			Row: "EXE-12", Also: []string{"SEC-06"}, Severity: report.High,
			Title:    "a plugin that hangs does not end ADD at the deadline",
			Expected: "an error soon after 300 ms, and no further plugin runs",
			Actual:   fmt.Sprintf("%s; %s after %.1f s", order(ran), trial.Describe(r), r.Took.Seconds()),
			Hint:     "kill the plugin when the deadline has passed, and do not start the next one"})
	},
}}

// inNamespace is a result with the namespace of a plugin: the shell replaces $own.
func inNamespace() *cni.Result {
	r := results(first)
	r.DNS = cni.DNS{Domain: "$own"}
	return r
}

// rich returns a list with members that a runtime must change, drop, or leave as they are.
func (s *Setup) rich() map[string]any {
	list := s.list(netName)
	list["owner"] = "judge"
	list["plugins"] = []any{
		plugin(first, ours, map[string]any{
			"name": "inner", "cniVersion": "0.2.0", "cni.dev/conform": "of the file",
			"capabilities": map[string]any{"portMappings": true, "mac": false},
			"prevResult":   map[string]any{"cniVersion": s.Version.String(), "dns": map[string]any{"domain": "stray"}},
		}),
		plugin(second, map[string]any{"capabilities": map[string]any{"mac": true, "aliases": true}}),
		plugin(third),
	}
	return list
}

// ours are the members of a plugin that the runtime passes on.
var ours = map[string]any{
	"big":    json.Number("9007199254740993"),
	"small":  json.Number("0.1234567890123456789"),
	"nested": map[string]any{"list": []any{json.Number("3"), nil, "ä<&>\u2028", map[string]any{}}},
	"dns":    map[string]any{"nameservers": []any{"10.77.0.99"}},
}

// The arguments of the attachment for [Setup.rich].
var (
	richCapabilities = map[string]any{
		"portMappings": []any{map[string]any{"hostPort": json.Number("8080"), "containerPort": json.Number("80"), "protocol": "tcp"}},
		"mac":          "02:00:00:00:00:09",
		"bandwidth":    map[string]any{"ingressRate": json.Number("9007199254740993")},
	}
	richArgs = "IgnoreUnknown=1;B=2;A=1"
)

func richAttachment(i *input) {
	var pairs []any
	for pair := range strings.SplitSeq(richArgs, ";") {
		k, v, _ := strings.Cut(pair, "=")
		pairs = append(pairs, []string{k, v})
	}
	i.members["args"], i.members["capabilityArgs"] = pairs, richCapabilities
}

func judgeAdd(j *Judgment) {
	ran := j.ran("add")
	r, _ := j.Call("add")
	if !j.Expect(order(ran) == sequence(cni.Add, first, second, third) && r.Status == 0, Verdict{
		Row: "RT-ADD-01", Also: []string{"LIF-09", "EXE-03"}, Severity: report.High,
		Title:    "ADD does not run the plugins of the list in order",
		Expected: sequence(cni.Add, first, second, third) + "; exit status 0",
		Actual:   order(ran) + "; " + trial.Describe(r),
	}) {
		return
	}
	requests, ok := j.requests(ran)
	if !ok {
		return
	}
	j.judgeVariables(ran)
	j.judgeRequests(requests)
	j.judgeResult(r.Stdout)
}

// judgeVariables judges the environments of plugins for ADD.
func (j *Judgment) judgeVariables(ran []script.Recorded) {
	for _, v := range []struct{ row, key, want string }{
		{"ENV-12", "CNI_COMMAND", "ADD"}, {"ENV-04", "CNI_CONTAINERID", id}, {"ENV-12", "CNI_NETNS", netnsPath},
		{"ENV-06", "CNI_IFNAME", ifName}, {"ENV-09", "CNI_PATH", script.Plugins}, {"ENV-11", "CNI_ARGS", richArgs},
		{"EXE-09", "CONFORM", "inherited"},
	} {
		j.all(ran, func(_ int, c script.Recorded) string {
			if got := c.Getenv(v.key); got != v.want {
				return fmt.Sprintf("%s=%q", v.key, got)
			}
			return ""
		}, Verdict{Row: v.row, Severity: report.High, Title: "plugins get a wrong " + v.key,
			Expected: fmt.Sprintf("%s=%q", v.key, v.want)})
	}
	j.all(ran, func(_ int, c script.Recorded) string {
		return difference(variables(ran[0]), variables(c))
	}, Verdict{Row: "ENV-14", Severity: report.Medium, Title: "the plugins of one ADD get different variables",
		Expected: "the same CNI variables for each plugin"})
}

// variables returns the variables of the protocol of a call.
func variables(c script.Recorded) (list []string) {
	for _, kv := range c.Env {
		if strings.HasPrefix(kv, "CNI_") {
			list = append(list, kv)
		}
	}
	slices.Sort(list)
	return list
}

// difference describes how two sorted lists differ, "" if they do not.
func difference(want, got []string) string {
	if slices.Equal(want, got) {
		return ""
	}
	return fmt.Sprintf("%q instead of %q", got, want)
}

// judgeRequests judges the standard inputs of the plugins of [Setup.rich] for ADD.
func (j *Judgment) judgeRequests(requests []request) {
	version := j.Setup.Version.String()
	j.each(requests, func(_ int, r request) string { return r.unless("cniVersion", version) },
		Verdict{Row: "VER-10", Also: []string{"REQ-01"}, Severity: report.High,
			Title: "plugins get another version than the list has", Expected: "cniVersion " + version})
	j.each(requests, func(_ int, r request) string { return r.unless("name", netName) },
		Verdict{Row: "CFG-41", Severity: report.High, Title: "plugins get another name than the list has",
			Expected: "name " + netName, Hint: "replace name and cniVersion of the plugin by those of the list"})
	j.each(requests, func(_ int, r request) string { return r.without("owner", "plugins") },
		Verdict{Row: "CFG-12", Severity: report.Low, Title: "keys of the list reach plugins",
			Expected: "only keys of the plugin, name and cniVersion"})
	j.each(requests, func(_ int, r request) string { return r.without("capabilities") },
		Verdict{Row: "REQ-09", Severity: report.Low, Title: "plugins get capabilities",
			Expected: "no key capabilities", Hint: "remove the key; plugins get the values in runtimeConfig"})
	j.each(requests, func(_ int, r request) string { return r.without("cni.dev/conform") },
		Verdict{Row: "REQ-11", Severity: report.Low, Title: "reserved keys of the file reach plugins",
			Expected: "no key that begins with cni.dev/"})
	j.each(requests[:1], func(_ int, r request) string {
		var wrong []string
		for k := range ours {
			wrong = append(wrong, r.unless(k, ours[k]))
		}
		slices.Sort(wrong)
		return strings.Join(slices.DeleteFunc(wrong, func(s string) bool { return s == "" }), ", ")
	}, Verdict{Row: "CFG-34", Also: []string{"REQ-12", "REQ-17", "DNS-04"}, Severity: report.High,
		Title: "keys of a plugin change on the way to it", Expected: "the values of the file: " + trial.Compact(ours),
		Hint: "keep the text of numbers; do not decode them into floating point"})
	j.judgePrevResults(requests)
	j.judgeCapabilities(requests)
}

// judgePrevResults judges prevResult in a chain of ADD.
func (j *Judgment) judgePrevResults(requests []request) {
	j.Expect(requests[0].without("prevResult") == "", Verdict{Row: "REQ-02", Severity: report.High,
		Title: "the first plugin gets a prevResult", Expected: "no prevResult", Actual: requests[0].without("prevResult"),
		Hint: "drop a prevResult that the file contains"})
	before := []string{"", first, second}
	j.each(requests, func(i int, r request) string {
		if i == 0 {
			return ""
		}
		return r.unlessResult(results(before[i]), j.Setup.Version)
	}, Verdict{Row: "RT-ADD-02", Also: []string{"REQ-02"}, Severity: report.High,
		Title: "a plugin does not get the result of the plugin before", Expected: "prevResult with the result of the plugin before",
		Hint: "pass the result of each plugin to the next one as prevResult"})
	j.each(requests[1:], func(_ int, r request) string {
		prev, _ := r["prevResult"].(map[string]any)
		return request(prev).unless("cniVersion", j.Setup.Version.String())
	}, Verdict{Row: "REQ-06", Severity: report.Medium, Title: "prevResult has another version than the request",
		Expected: "the version of the request in prevResult"})
}

// judgeCapabilities judges runtimeConfig for [Setup.rich].
func (j *Judgment) judgeCapabilities(requests []request) {
	want := []map[string]any{
		{"portMappings": richCapabilities["portMappings"]}, {"mac": richCapabilities["mac"]},
	}
	j.each(requests[:2], func(i int, r request) string { return r.unless("runtimeConfig", want[i]) },
		Verdict{Row: "REQ-07", Severity: report.High,
			Title:    "runtimeConfig is not what the plugin declares",
			Expected: "the arguments of the capabilities that are true in the plugin's object",
			Hint:     "give each plugin the arguments of the capabilities that it declares as true"})
	j.each(requests[2:], func(_ int, r request) string { return r.without("runtimeConfig") },
		Verdict{Row: "REQ-08", Severity: report.Low, Title: "a plugin without capabilities gets runtimeConfig",
			Expected: "no key runtimeConfig"})
}

// judgeResult judges the output of ADD.
func (j *Judgment) judgeResult(stdout []byte) {
	r := request{"prevResult": nil}
	var out map[string]any
	if err := trial.DecodeExactly(stdout, &out); err == nil {
		r["prevResult"] = out
	}
	wrong := r.unlessResult(results(third), j.Setup.Version)
	if v := request(out).unless("cniVersion", j.Setup.Version.String()); wrong == "" {
		wrong = v
	}
	j.Expect(wrong == "", Verdict{Row: "RT-ADD-09", Severity: report.High,
		Title: "the caller does not get the result of the last plugin", Actual: wrong,
		Expected: "the result of the last plugin in version " + j.Setup.Version.String()})
}

func judgeAddFails(j *Judgment) {
	r, _ := j.Call("add")
	ran := only(j.ran("add"), cni.Add)
	if !j.refused("add", Verdict{Row: "EXE-05", Severity: report.High, Title: "ADD succeeds although a plugin fails"}) {
		return
	}
	e, err := cni.DecodeError(r.Stdout)
	intact := err == nil && e.Code == cni.CodeTryAgainLater && strings.Contains(e.Msg, refusal) &&
		strings.Contains(e.Details, "conform-details")
	j.Expect(intact && order(ran) == sequence(cni.Add, first, second), Verdict{Row: "RT-ADD-03", Severity: report.High,
		Title:    "the error of a plugin does not end ADD, or does not reach the caller",
		Expected: fmt.Sprintf("%s; code %d with the message and the details of the plugin", sequence(cni.Add, first, second), cni.CodeTryAgainLater),
		Actual:   fmt.Sprintf("%s; %s, output %.300q", order(ran), trial.Describe(r), r.Stdout),
		Hint:     "do not start the next plugin after an error, and return code, msg and details"})
	j.Expect(err == nil && strings.Contains(e.Msg+e.Details, second), Verdict{Row: "ERR-08", Severity: report.Low,
		Title: "the error does not name the plugin", Expected: second + " in the message", Actual: trial.Describe(r)})
	choice := "the runtime leaves the clean-up to its caller"
	if len(only(j.ran("add"), cni.Del)) > 0 {
		choice = "the runtime cleans up itself after a failed ADD"
	}
	j.Info("RT-ADD-04", choice)
}

// judgeCleanUp judges the DELs after a failed ADD, which the runtime runs itself or when DEL is called.
func judgeCleanUp(j *Judgment) {
	if !j.failed("add") {
		j.Stopped = "ADD does not fail"
		return
	}
	own, later := only(j.ran("add"), cni.Del), only(j.ran("del"), cni.Del)
	want := sequence(cni.Del, third, second, first)
	r, _ := j.Call("del")
	j.Expect(order(own) == want || order(later) == want && r.Status == 0, Verdict{
		Row: "RT-ADD-05", Also: []string{"LIF-04", "RT-DEL-08"}, Severity: report.High,
		Title:    "a failed ADD is not cleaned up by all plugins",
		Expected: want + ", in ADD or in DEL after it",
		Actual:   fmt.Sprintf("in ADD: %s; in DEL: %s, %s", order(own), order(later), trial.Describe(r)),
		Hint:     "run DEL for all plugins of the list in reverse order, also for plugins that did not run"})
}
