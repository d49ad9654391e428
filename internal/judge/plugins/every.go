package plugins

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// everyRows are judged on every call of the subject in every scenario.
var everyRows = []string{
	"EXE-06", "EXE-13", "EXE-15", "EXE-16", "ERR-01", "ERR-02", "ERR-03", "ERR-05", "ERR-10", "PL-ADD-05",
	"PL-CHK-09", "PL-DEL-07", "PL-GC-09", "PL-VRS-04", "VER-02", "RES-01", "RES-03", "RES-09", "RES-12",
	"RES-18", "IPAM-03", "DNS-03",
}

// every collects the verdicts on all calls of a recording.
type every struct {
	*Judgment
	passed map[string]bool
	failed map[string]Verdict // the first for each row
	status int                // of the last failure that was not 1
}

// judgeEvery adds the verdicts that hold for every call. It leaves out calls that the case claims and
// calls that did not start.
func (j *Judgment) judgeEvery() {
	e := every{Judgment: j, passed: map[string]bool{}, failed: map[string]Verdict{}}
	for _, event := range j.Events {
		for _, r := range event.Calls {
			c := j.request(r.Name)
			if c.Path != script.Plugins+"/"+j.Setup.Subject.Name || slices.Contains(j.Claimed, r.Name) ||
				r.Failed != "" {
				continue
			}
			e.call(c, r)
		}
	}
	for _, row := range everyRows {
		if v, found := e.failed[row]; found {
			v.Row, v.Outcome, v.Every = row, report.Fail, true
			j.Verdicts = append(j.Verdicts, v)
		} else if e.passed[row] {
			j.Verdicts = append(j.Verdicts, Verdict{Row: row, Outcome: report.Pass, Every: true})
		}
	}
	if e.status != 0 {
		j.Verdicts = append(j.Verdicts, Verdict{Row: "ERR-10", Outcome: report.Info, Every: true,
			Reason: fmt.Sprintf("failures end with exit status %d", e.status)})
	}
}

// expect records an observation. The verdict describes the finding.
func (e *every) expect(ok bool, v Verdict) bool {
	if ok {
		e.passed[v.Row] = true
	} else if _, found := e.failed[v.Row]; !found {
		e.failed[v.Row] = v
	}
	return ok
}

// call judges one call.
func (e *every) call(c script.Call, r script.Result) {
	verb := cni.Command(getenv(c.Env, "CNI_COMMAND"))
	e.expect(len(r.Survivors) == 0, Verdict{Row: "EXE-13", Severity: report.Medium,
		Title: "processes outlive the call", Expected: "no process of the call is left when it has ended",
		Actual: fmt.Sprintf("call %s leaves %s", r.Name, strings.Join(r.Survivors, ", ")),
		Hint:   "wait for child processes; a daemon must not be started by a plugin"})
	if r.Late {
		return // the case of the verb reports it
	}
	if !e.expect(!r.Flooded, Verdict{Row: "EXE-16", Severity: report.Medium, Title: "the output has no end",
		Expected: "one JSON document", Actual: e.actual(r)}) {
		return
	}
	switch {
	case r.Status != 0:
		e.failure(verb, r)
	case verb == cni.Add:
		e.result(r)
	default:
		e.silence(verb, r)
	}
}

// actual describes a call.
func (e *every) actual(r script.Result) string { return "call " + r.Name + ": " + describe(r) }

// silence judges the output of a successful call that has no result.
func (e *every) silence(verb cni.Command, r script.Result) {
	rows := map[cni.Command][]string{
		cni.Del: {"PL-DEL-07", "EXE-15"}, cni.Status: {"EXE-15"}, cni.Check: {"PL-CHK-09"}, cni.GC: {"PL-GC-09"},
	}[verb]
	if rows == nil {
		return
	}
	out := bytes.TrimSpace(r.Stdout)
	if !e.expect(!isError(out), Verdict{Row: "ERR-01", Severity: report.High,
		Title: "a failing call exits with 0", Expected: "exit status 1 with an error object", Actual: e.actual(r)}) {
		return
	}
	if e.expect(len(out) == 0, Verdict{Row: rows[0], Also: rows[1:], Severity: report.Low,
		Title: fmt.Sprintf("%s prints to standard output", verb), Expected: "no output, exit status 0",
		Actual: e.actual(r), Hint: "only ADD and VERSION print an answer; log to standard error"}) {
		for _, row := range rows {
			e.passed[row] = true
		}
	}
}

// failure judges the output of a failed call.
func (e *every) failure(verb cni.Command, r script.Result) {
	row := "ERR-01"
	if verb == cni.Add {
		row = "PL-ADD-05"
	}
	o, rest := firstObject(r.Stdout)
	if o == nil {
		on, _ := firstObject(r.Stderr)
		if on["code"] != nil && on["msg"] != nil {
			e.expect(false, Verdict{Row: "EXE-06", Severity: report.High,
				Title:    "the error object is on standard error",
				Expected: "the error object on standard output", Actual: e.actual(r),
				Hint: "one sentence of the specification says standard error; runtimes read standard output"})
			return
		}
		e.expect(false, Verdict{Row: row, Severity: report.Medium, Title: "a failure has no error object",
			Expected: "an object with cniVersion, code and msg on standard output, exit status 1",
			Actual:   e.actual(r), Hint: "print the error object for every failure, panics included"})
		return
	}
	e.passed["EXE-06"] = true
	if !e.expect(rest == "", Verdict{Row: "EXE-16", Severity: report.Medium,
		Title:    "standard output of a failure holds more than the error object",
		Expected: "one JSON document", Actual: e.actual(r) + "; " + rest,
		Hint: "log to standard error, and print nothing before the outcome is known"}) {
		return
	}
	e.errorObject(row, o, r)
	if e.passed["ERR-10"] = true; r.Status > 1 {
		e.status = r.Status
	}
}

// errorObject judges the members of an error object.
func (e *every) errorObject(row string, o map[string]json.RawMessage, r script.Result) {
	var code uint
	var msg string
	if !e.expect(json.Unmarshal(o["code"], &code) == nil && json.Unmarshal(o["msg"], &msg) == nil && msg != "",
		Verdict{Row: row, Severity: report.Medium, Title: "the error object has no code or no message",
			Expected: "code, an unsigned number, and msg, a text that is not empty", Actual: fmt.Sprintf("call %s: %s", r.Name, r.Stdout)}) {
		return
	}
	asked, known := requested(r.Stdin)
	var said string
	_ = json.Unmarshal(o["cniVersion"], &said) // remains empty
	_, err := cni.ParseVersion(said)
	ok, want := said != "" && err == nil, "cniVersion, a published version"
	if known && asked >= cni.V100 && slices.Contains(e.Setup.Subject.Versions, asked) {
		ok, want = said == asked.String(), fmt.Sprintf("cniVersion %q, as in the request", asked)
	}
	e.expect(ok, Verdict{Row: "ERR-02", Severity: report.Low, Title: "the error object does not name the version",
		Expected: want, Actual: fmt.Sprintf("call %s: %.300s", r.Name, r.Stdout),
		Hint: "the error type of libcni has no cniVersion; add the version of the request when printing"})
	assigned := code >= 1 && code <= 8 || code == 11 || code == 50 || code == 51 || code >= 100
	e.expect(assigned, Verdict{Row: "ERR-03", Severity: report.Low, Title: "the code of an error is reserved",
		Expected: "an assigned code below 100, or 100 and above", Actual: e.actual(r)})
	e.expect(string(o["details"]) != `""`, Verdict{Row: "ERR-05", Severity: report.Low,
		Title: "an error object has empty details", Expected: "no details if there are none",
		Actual: fmt.Sprintf("call %s: %.300s", r.Name, r.Stdout)})
	verb := cni.Command(getenv(e.request(r.Name).Env, "CNI_COMMAND"))
	delegate := slices.ContainsFunc(r.Recorded, func(d script.Recorded) bool { return d.Status != 0 })
	if known && verb.Valid() && asked.Has(verb) && slices.Contains(e.Setup.Subject.Versions, asked) && !delegate {
		e.expect(code != uint(cni.CodeIncompatibleVersion), Verdict{Row: "PL-VRS-04", Severity: report.High,
			Title:    "the plugin refuses a version that it announces",
			Expected: fmt.Sprintf("%s works in %s, which supportedVersions lists", verb, asked), Actual: e.actual(r)})
	}
}

// result judges the output of a successful ADD.
func (e *every) result(r script.Result) {
	o, rest := firstObject(r.Stdout)
	if !e.expect(o != nil && rest == "", Verdict{Row: "EXE-16", Severity: report.High,
		Title: "standard output of ADD is not one JSON document", Expected: "one JSON object, nothing before or after",
		Actual: e.actual(r) + "; " + rest, Hint: "log to standard error"}) {
		return
	}
	if !e.expect(!isError(r.Stdout), Verdict{Row: "PL-ADD-05", Severity: report.High,
		Title: "a failing ADD exits with 0", Expected: "exit status 1 with the error object", Actual: e.actual(r)}) {
		return
	}
	asked, known := requested(r.Stdin)
	if !known {
		return
	}
	f := form{version: asked, ipam: e.Setup.Role == IPAM}
	f.check(r.Stdout)
	for _, row := range f.rows() {
		e.passed[row] = true
	}
	for _, p := range f.problems {
		severity := report.Medium
		switch p.row {
		case "RES-12", "DNS-03":
			severity = report.Low
		case "RES-03":
			severity = report.High
		}
		e.expect(false, Verdict{Row: p.row, Severity: severity, Title: p.title, Expected: p.want,
			Actual: fmt.Sprintf("call %s: %s: %.1000s", r.Name, p.got, r.Stdout), Hint: p.hint})
	}
}

// requested returns the version that a request states, if it is a published one.
func requested(stdin []byte) (cni.Version, bool) {
	var header struct {
		CNIVersion string `json:"cniVersion"`
	}
	if json.Unmarshal(stdin, &header) != nil || header.CNIVersion == "" {
		return 0, false
	}
	v, err := cni.ParseVersion(header.CNIVersion)
	return v, err == nil
}

// firstObject returns the first JSON object in an output and describes the rest, "" if there is only
// white space. The object is nil if there is none.
func firstObject(out []byte) (o map[string]json.RawMessage, rest string) {
	start := bytes.IndexByte(out, '{')
	if start < 0 {
		return nil, ""
	}
	d := json.NewDecoder(bytes.NewReader(out[start:]))
	if d.Decode(&o) != nil {
		return nil, ""
	}
	before, after := bytes.TrimSpace(out[:start]), bytes.TrimSpace(out[start+int(d.InputOffset()):])
	switch {
	case len(before) > 0:
		rest = fmt.Sprintf("before the object: %.100q", before)
	case len(after) > 0:
		rest = fmt.Sprintf("after the object: %.100q", after)
	}
	return o, rest
}

// isError reports whether an output is an error object.
func isError(out []byte) bool {
	o, _ := firstObject(out)
	return o["code"] != nil && o["msg"] != nil && o["ips"] == nil && o["interfaces"] == nil
}

// getenv returns a variable of an environment.
func getenv(env []string, key string) string {
	for _, kv := range env {
		if k, v, _ := strings.Cut(kv, "="); k == key {
			return v
		}
	}
	return ""
}
