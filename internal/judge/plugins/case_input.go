package plugins

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// inputCases judge what plugins do with wrong, unknown and hostile configurations.
var inputCases = []*Case{malformedCase, namesCase, typesCase, unknownKeysCase, capabilityTypesCase, hostileCase}

// wrongInput is a request that the plugin must refuse.
type wrongInput struct {
	name  string
	row   string // of a finding if the plugin accepts the request; "" if it may
	codes []cni.Code
	call  func(*Draft)
}

// Codes for requests that cannot be decoded, for wrong values, and for either.
var (
	undecodable = []cni.Code{cni.CodeDecodingFailure}
	invalid     = []cni.Code{cni.CodeInvalidConfig}
	anyRefusal  = []cni.Code{cni.CodeDecodingFailure, cni.CodeInvalidConfig, cni.CodeUnsupportedField}
)

// vectorRows are the rows of the requests in package conformance.
var vectorRows = map[string]string{
	"request-add-invalid-truncated-code6.json":                  "CFG-01",
	"request-add-invalid-empty-code6.json":                      "CFG-01",
	"request-add-invalid-array-code6.json":                      "CFG-01",
	"request-add-invalid-missing-name-code7.json":               "CFG-02",
	"request-add-invalid-name-slash-code7.json":                 "CFG-03",
	"request-add-invalid-prevresult-foreign-version-code6.json": "PL-ADD-07",
	"request-add-invalid-prevresult-string-code6.json":          "PL-ADD-07",
}

// malformed are requests that no plugin can use. Requests of package conformance replace members of the
// configuration of the subject.
func (s *Setup) malformed() (list []wrongInput) {
	vectors, err := conformance.Vectors()
	if err != nil {
		panic(err) // embedded tables
	}
	for _, v := range vectors {
		row, chosen := vectorRows[v.File]
		var o map[string]any
		switch {
		case !chosen || row == "PL-ADD-07" && (s.Role != Chained || s.Version < cni.V100):
			continue
		case json.Unmarshal(v.Data, &o) != nil || o == nil:
			list = append(list, wrongInput{v.File, row, v.Codes, Stdin(string(v.Data))})
		default:
			delete(o, "type")
			o["cniVersion"] = s.Version.String()
			list = append(list, wrongInput{v.File, row, v.Codes, func(d *Draft) {
				delete(d.Request, "name")
				maps.Copy(d.Request, o)
			}})
		}
	}
	list = append(list,
		wrongInput{"null", "CFG-01", anyRefusal, Stdin("null")},
		wrongInput{"text", "CFG-01", undecodable, Stdin(`"x"`)},
		wrongInput{"trailing", "CFG-01", undecodable, around("", " garbage")},
		wrongInput{"twice", "CFG-01", undecodable, around("", "{}")},
		wrongInput{"byte-order-mark", "CFG-01", undecodable, around("\ufeff", "")},
		wrongInput{"comment", "CFG-01", undecodable, around("// comment\n", "")},
		wrongInput{"name-empty", "CFG-02", invalid, With("name", "")},
		wrongInput{"name-number", "CFG-02", undecodable, With("name", 5)},
		wrongInput{"name-list", "CFG-02", undecodable, With("name", []any{"x"})},
	)
	if s.needsPath() || s.Role == IPAM {
		list = append(list,
			wrongInput{"ipam-text", "CFG-36", undecodable, With("ipam", "host-local")},
			wrongInput{"ipam-list", "CFG-36", undecodable, With("ipam", []any{"host-local"})})
	}
	if s.needsPath() {
		list = append(list,
			wrongInput{"ipam-type-number", "CFG-36", undecodable, With("ipam", map[string]any{"type": 5})},
			wrongInput{"ipam-type-path", "CFG-36", invalid, With("ipam", map[string]any{"type": "../x"})})
	}
	return list
}

// around sends the request with texts before and after it.
func around(before, after string) func(*Draft) {
	return func(d *Draft) {
		t, err := script.Object(d.Request)
		if err != nil {
			panic(err) // see Setup.Call
		}
		d.Stdin = slices.Concat(script.Literal(before), t, script.Literal(after))
	}
}

var malformedCase = &Case{
	Name: "malformed", Once: true, Rows: []string{"CFG-01", "CFG-02", "CFG-36", "PL-ADD-07", "ERR-12"},
	Script: func(s *Setup) (*script.Scenario, string) {
		var steps []script.Step
		for _, w := range s.malformed() {
			steps = append(steps, quiet(s.Call(w.name, cni.Add, 1, w.call)))
		}
		return s.Scenario(1, steps...), ""
	},
	Judge: func(j *Judgment) {
		list := j.Setup.malformed()
		j.refused(list, map[string]Verdict{
			"CFG-01": {Severity: report.Medium, Title: "standard input that is not one JSON object is accepted",
				Hint: "decode the whole input, and refuse what follows the object"},
			"CFG-02": {Severity: report.Medium, Title: "a configuration without a usable name is accepted",
				Hint: "the name of the network is required; state is kept by network"},
			"CFG-03": {Severity: report.High, Title: "a name with a slash is accepted",
				Hint: "the name becomes part of paths: ^[a-zA-Z0-9][a-zA-Z0-9_.-]*$"},
			"CFG-36": {Severity: report.Medium, Title: "an unusable ipam section is accepted",
				Hint: "a configuration without addresses must not result from a mistake"},
			"PL-ADD-07": {Severity: report.Medium, Title: "an unreadable prevResult is accepted"},
		})
		for _, row := range []string{"CFG-36", "PL-ADD-07"} {
			if !slices.ContainsFunc(list, func(w wrongInput) bool { return w.row == row }) {
				j.NotApplicable(row, "the plugin does not use it")
			}
		}
	},
}

// refused judges requests that the plugin must refuse. findings describe the acceptance of requests by
// row. Wrong codes are findings of ERR-12.
func (j *Judgment) refused(list []wrongInput, findings map[string]Verdict) {
	wrong := map[string][]string{}
	var codes []string
	// The interface exists in containers of accepted requests, and later calls fail for this reason.
	accepted := map[string]bool{}
	for _, w := range list {
		r, called := j.Call(w.name)
		if !called || r.Failed != "" || r.Late || r.Flooded || r.Signal != 0 {
			continue
		}
		container := getenv(j.request(w.name).Env, "CNI_CONTAINERID")
		if r.Status == 0 {
			accepted[container] = true
			wrong[w.row] = append(wrong[w.row], w.name)
		} else if code := codeOf(r); code >= 0 && !accepted[container] && !slices.Contains(w.codes, cni.Code(code)) {
			codes = append(codes, fmt.Sprintf("%s: code %d instead of %d: %s", w.name, code, w.codes[0], describe(r)))
		}
	}
	for _, row := range sortedKeys(findings) {
		v := findings[row]
		v.Row, v.Expected, v.Actual = row, "exit status 1 with an error object", "accepted: "+strings.Join(wrong[row], ", ")
		if slices.ContainsFunc(list, func(w wrongInput) bool { return w.row == row }) {
			j.Expect(wrong[row] == nil, v)
		}
	}
	j.Expect(codes == nil, Verdict{Row: "ERR-12", Every: true, Severity: report.Low, Title: "a wrong configuration has another code than 6 or 7",
		Expected: "6 for input that cannot be decoded and values of the wrong JSON type, 7 for other wrong values",
		Actual:   strings.Join(codes, "; "), Hint: "libcni reports errors without a code as 999"})
}

// namesCase sends the network names of package conformance: ADD with the invalid ones must fail, and
// DEL with the valid ones must end like DEL with an ordinary one.
var namesCase = &Case{
	Name: "names", Once: true, Rows: []string{"CFG-03"},
	Script: func(s *Setup) (*script.Scenario, string) {
		steps := []script.Step{quiet(s.Call("ordinary", cni.Del, 1, Without("prevResult")))}
		for i, id := range networkNames() {
			name := fmt.Sprintf("name-%d", i+1)
			c := s.Call(name, cni.Add, 1, With("name", id.Value))
			if id.Verdict == conformance.Valid {
				c = s.Call(name, cni.Del, 1, With("name", id.Value), Without("prevResult"))
			}
			steps = append(steps, quiet(c))
		}
		last := s.Call("path", cni.Add, 1, With("name", "../../../tmp/conform"))
		return s.Scenario(1, append(steps, call(last))...), ""
	},
	Judge: func(j *Judgment) {
		ordinary, _ := j.Call("ordinary")
		var wrong []string
		for i, id := range networkNames() {
			r, _ := j.Call(fmt.Sprintf("name-%d", i+1))
			if valid := id.Verdict == conformance.Valid; valid && refusesMore(r, ordinary) || !valid && r.Status == 0 {
				wrong = append(wrong, fmt.Sprintf("%s name %.40q: %s", id.Verdict, id.Value, describe(r)))
			}
		}
		severity := report.Medium
		if r, _ := j.Call("path"); r.Status == 0 {
			severity = report.High
			wrong = append(wrong, "name \"../../../tmp/conform\" is accepted")
			for _, c := range j.changes("path", "path") {
				if strings.HasPrefix(c, "write ") {
					wrong = append(wrong, c)
				}
			}
		}
		j.Expect(wrong == nil, Verdict{Row: "CFG-03", Severity: severity, Title: "the name of the network is not validated",
			Expected: "failure for invalid names, and success for valid ones", Actual: strings.Join(wrong, "; "),
			Hint: "the name becomes part of paths: ^[a-zA-Z0-9][a-zA-Z0-9_.-]*$, without a trailing newline"})
	},
}

func networkNames() (list []conformance.Identifier) {
	list, err := identifiers(conformance.FieldNetworkName)
	if err != nil {
		panic(err) // embedded tables
	}
	return list
}

// oddKey is a key that no plugin knows, with its value.
const oddKey, oddValue = "dev.conform.odd", "conform-odd-value"

// unknownKeysCase sends keys that no plugin knows.
var unknownKeysCase = &Case{
	Name: "unknown-keys", Once: true, Rows: []string{"CFG-40", "ERR-04", "CONV-02", "R-12"},
	Script: func(s *Setup) (*script.Scenario, string) {
		odd := map[string]any{oddKey: oddValue, "list": []any{nil, 1}}
		return s.Scenario(5,
			quiet(s.Call("add", cni.Add, 1)),
			quiet(s.Call("add-key", cni.Add, 2, With(oddKey, oddValue))),
			quiet(s.Call("add-args", cni.Add, 3, With("args", odd))),
			quiet(s.Call("add-args-cni", cni.Add, 4, With("args", map[string]any{"cni": odd}))),
			quiet(s.Call("add-null", cni.Add, 5, func(d *Draft) {
				if d.Request["prevResult"] == nil {
					d.Request["prevResult"] = nil
				}
			})),
			quiet(s.Call("del-null", cni.Del, 1, With("prevResult", nil))),
		), ""
	},
	Judge: func(j *Judgment) {
		if !j.Requires("add") {
			return
		}
		r, _ := j.Call("add-key")
		refused := codeOf(r) == int(cni.CodeUnsupportedField)
		named := r.Status == 0 || refused && lacksNames(r, oddKey, oddValue) == nil
		var wrong []string
		if r.Status != 0 && !refused {
			wrong = append(wrong, "unknown key: "+describe(r))
		}
		for _, name := range []string{"add-args", "add-args-cni"} {
			if r, _ := j.Call(name); r.Status != 0 {
				wrong = append(wrong, fmt.Sprintf("call %s: %s", name, describe(r)))
			}
		}
		if j.Expect(wrong == nil, Verdict{Row: "CFG-40", Severity: report.Medium,
			Title:    "ADD fails because of unknown keys",
			Expected: "success, or code 2 with key and value; success for unknown content of args",
			Actual:   strings.Join(wrong, "; "), Hint: "ignore unknown keys; runtimes and later versions add some"}) {
			j.Pass("CONV-02")
		} else {
			j.NotApplicable("CONV-02", "judged by CFG-40")
		}
		if refused {
			j.Expect(named, Verdict{Row: "ERR-04", Severity: report.Low, Title: "an error with code 2 does not name key and value",
				Expected: fmt.Sprintf("%q and %q in msg or details", oddKey, oddValue), Actual: describe(r)})
		} else {
			j.NotApplicable("ERR-04", "the plugin does not answer with code 2; ENV-07 judges code 4")
		}
		wrong = nil
		for _, name := range []string{"add-null", "del-null"} {
			if r, _ := j.Call(name); r.Status != 0 {
				wrong = append(wrong, fmt.Sprintf("call %s: %s", name, describe(r)))
			}
		}
		j.Expect(wrong == nil, Verdict{Row: "R-12", Severity: report.Medium, Title: "prevResult null is not treated as absent",
			Expected: "the outcome without prevResult", Actual: strings.Join(wrong, "; ")})
	},
}

// capabilityTypesCase sends capability arguments of the wrong JSON type.
var capabilityTypesCase = &Case{
	Name: "capability-types", Once: true, Oldest: cni.V030, Rows: []string{"CONV-07"},
	Script: func(s *Setup) (*script.Scenario, string) {
		keys := sortedKeys(s.Config.Capabilities)
		if len(keys) == 0 {
			return nil, "the configuration has no capabilities"
		}
		var steps []script.Step
		for i, k := range keys {
			capabilities, ok := s.Request(i + 1)["runtimeConfig"].(map[string]any)
			if !ok {
				return nil, "the configuration has no capabilities"
			}
			capabilities[k] = true // no capability is a boolean
			steps = append(steps, quiet(s.Call("add-"+k, cni.Add, i+1, With("runtimeConfig", capabilities))))
		}
		return s.Scenario(len(keys), steps...), ""
	},
	Judge: func(j *Judgment) {
		var calls []string
		for _, k := range sortedKeys(j.Setup.Config.Capabilities) {
			calls = append(calls, "add-"+k)
		}
		wrong := j.accepted(calls)
		j.Expect(wrong == nil, Verdict{Row: "CONV-07", Severity: report.Medium, Title: "a malformed capability argument is accepted",
			Expected: "failure if the value of a capability is true", Actual: "accepted: " + strings.Join(wrong, ", "),
			Hint: "the caller relies on capability arguments; a plugin that cannot obey them must fail"})
	},
}
