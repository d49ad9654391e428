package runtimes

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

// Judgment derives the verdicts of a case from its recording.
type Judgment struct {
	*trial.Judgment
	Setup *Setup
}

// Verdict is the outcome for one row.
type Verdict = trial.Verdict

// ran returns the calls of scripted plugins during a call of the driver, in the order of their start.
// VERSION is left out: a runtime may call it at any time.
func (j *Judgment) ran(call string) []script.Recorded {
	r, _ := j.Call(call)
	return slices.DeleteFunc(slices.Clone(r.Recorded), func(d script.Recorded) bool {
		return d.Getenv("CNI_COMMAND") == string(cni.VersionCommand)
	})
}

// order describes the plugins that ran, and their commands: "first ADD, second ADD".
func order(calls []script.Recorded) string {
	var list []string
	for _, c := range calls {
		list = append(list, short(c.Plugin)+" "+c.Getenv("CNI_COMMAND"))
	}
	if list == nil {
		return "no plugin"
	}
	return strings.Join(list, ", ")
}

// short returns the name of a scripted plugin in reports.
func short(plugin string) string { return strings.TrimPrefix(plugin, "conform-") }

// sequence describes plugins that run for a command, as order does.
func sequence(verb cni.Command, plugins ...string) string {
	var list []string
	for _, p := range plugins {
		list = append(list, short(p)+" "+string(verb))
	}
	return strings.Join(list, ", ")
}

// only returns the calls with a command.
func only(calls []script.Recorded, verb cni.Command) []script.Recorded {
	return slices.DeleteFunc(slices.Clone(calls), func(d script.Recorded) bool {
		return d.Getenv("CNI_COMMAND") != string(verb)
	})
}

// request is what a scripted plugin got on standard input.
type request map[string]any

// requests decodes the standard inputs of calls. It stops the judgment if one of them is no object.
func (j *Judgment) requests(calls []script.Recorded) (list []request, ok bool) {
	for _, c := range calls {
		var r request
		if err := trial.DecodeExactly(c.Stdin, &r); err != nil {
			j.Fail(Verdict{Row: "REQ-01", Severity: report.High, Title: "a plugin gets no JSON object",
				Expected: "an object on the standard input of " + short(c.Plugin),
				Actual:   fmt.Sprintf("%v: %.200q", err, c.Stdin)})
			return nil, false
		}
		list = append(list, r)
	}
	return list, true
}

// failed reports whether the driver reported a failure as the protocol of drivers demands.
func (j *Judgment) failed(call string) bool {
	r, found := j.Call(call)
	return found && r.Failed == "" && r.Status == 1
}

// all records the verdict for calls: a pass unless wrong returns the text of a difference, which
// becomes the actual behavior of the finding.
func (j *Judgment) all(calls []script.Recorded, wrong func(i int, c script.Recorded) string, v Verdict) bool {
	var texts []string
	for i, c := range calls {
		if text := wrong(i, c); text != "" {
			texts = append(texts, short(c.Plugin)+": "+text)
		}
	}
	v.Actual = strings.Join(texts, "; ")
	return j.Expect(texts == nil, v)
}

// runs records that a call must succeed and run plugins for commands, in this order.
func (j *Judgment) runs(call, want string, v Verdict) bool {
	r, _ := j.Call(call)
	ran := order(j.ran(call))
	v.Expected, v.Actual = want+"; exit status 0", ran+"; "+trial.Describe(r)
	return j.Expect(ran == want && r.Status == 0 && r.Failed == "", v)
}

// startsNothing records that a call must fail without a plugin.
func (j *Judgment) startsNothing(call string, v Verdict) bool {
	r, _ := j.Call(call)
	ran := order(j.ran(call))
	v.Expected, v.Actual = "no plugin; exit status 1 with an error object", ran+"; "+trial.Describe(r)
	return j.Expect(j.failed(call) && len(j.ran(call)) == 0, v)
}

// returns records that a call must fail with the code of a plugin.
func (j *Judgment) returns(call string, code cni.Code, v Verdict) bool {
	r, _ := j.Call(call)
	e, err := cni.DecodeError(r.Stdout)
	v.Expected, v.Actual = fmt.Sprintf("exit status 1 with code %d", code), trial.Describe(r)
	return j.Expect(j.failed(call) && err == nil && e.Code == code, v)
}

// refused records that a call must fail.
func (j *Judgment) refused(call string, v Verdict) bool {
	r, _ := j.Call(call)
	v.Expected, v.Actual = "exit status 1 with an error object", trial.Describe(r)
	return j.Expect(j.failed(call), v)
}

// each records a verdict about requests: a pass unless wrong returns the text of a difference.
func (j *Judgment) each(requests []request, wrong func(i int, r request) string, v Verdict) bool {
	var texts []string
	for i, r := range requests {
		if text := wrong(i, r); text != "" {
			texts = append(texts, text)
		}
	}
	v.Actual = strings.Join(texts, "; ")
	return j.Expect(texts == nil, v)
}

// unless describes the value of a member that is not the one wanted.
func (r request) unless(key string, want any) string {
	got, ok := r[key]
	switch {
	case reflect.DeepEqual(got, want):
		return ""
	case !ok:
		return "no " + key
	}
	return key + " " + trial.Compact(got)
}

// without describes members that the request must not have.
func (r request) without(keys ...string) string {
	for _, k := range keys {
		if v, ok := r[k]; ok {
			return k + " " + trial.Compact(v)
		}
	}
	return ""
}

// unlessResult describes a prevResult that is not the one wanted. The form is the one of the version.
func (r request) unlessResult(want *cni.Result, v cni.Version) string {
	prev, ok := r["prevResult"]
	if !ok {
		return "no prevResult"
	}
	text, err := json.Marshal(prev)
	if err != nil {
		return err.Error()
	}
	got, err := cni.DecodeResult(text, v)
	if err != nil || !reflect.DeepEqual(got, want) {
		return fmt.Sprintf("prevResult %.400s", text)
	}
	return ""
}
