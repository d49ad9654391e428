package plugins

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// variableCases judge the parameters in the environment.
var variableCases = []*Case{
	commandCase, variablesCase, identifiersCase, pathCase, attachmentVariablesCase, ownNamespaceCase, argsCase,
}

// commandCase sends verbs that do not exist.
var commandCase = &Case{
	Name: "command", Once: true, Rows: []string{"ENV-01", "ENV-02", "PL-CHK-10", "EXE-18"},
	Script: func(s *Setup) (*script.Scenario, string) {
		empty := s.Call("nothing", cni.VersionCommand, 1)
		empty.Env, empty.Stdin = nil, nil
		return s.Scenario(3,
			quiet(s.Call("unknown", cni.Add, 1, Env("CNI_COMMAND", "NOPE"))),
			quiet(s.Call("unknown-empty", cni.Add, 1, Env("CNI_COMMAND", "NOPE"), Stdin(""))),
			quiet(s.Call("lower-case", cni.Add, 2, Env("CNI_COMMAND", "add"))),
			quiet(s.Call("get", cni.Add, 3, Env("CNI_COMMAND", "GET"))),
			quiet(empty),
		), ""
	},
	Judge: func(j *Judgment) {
		calls := []string{"unknown", "lower-case"}
		wrong := j.refusals(calls, cni.CodeInvalidEnvironment)
		for _, name := range calls {
			r, _ := j.Call(name)
			if codeOf(r) == int(cni.CodeInvalidEnvironment) && lacksNames(r, "CNI_COMMAND") != nil {
				wrong = append(wrong, fmt.Sprintf("call %s: %s, which does not name CNI_COMMAND", name, describe(r)))
			}
		}
		ok := j.Expect(wrong == nil, Verdict{Row: "ENV-01", Severity: report.Medium,
			Title:    "an unknown CNI_COMMAND is not refused with code 4",
			Expected: "exit status 1, code 4, and a message with CNI_COMMAND for NOPE and add",
			Actual:   strings.Join(wrong, "; "), Hint: "compare the verb exactly"})
		early := j.refusals([]string{"unknown-empty"}, cni.CodeInvalidEnvironment)
		if ok || early == nil {
			j.Expect(early == nil, Verdict{Row: "ENV-02", Severity: report.Low,
				Title:    "standard input is read before the verb is known",
				Expected: "code 4 for an unknown verb with empty standard input", Actual: strings.Join(early, "; ")})
		}
		get := j.refusals([]string{"get"}, cni.CodeInvalidEnvironment)
		if ok || get == nil {
			j.Expect(get == nil, Verdict{Row: "PL-CHK-10", Severity: report.Low,
				Title: "GET is not an unknown command", Expected: "code 4", Actual: strings.Join(get, "; ")})
		}
		j.Claim("nothing")
		r, _ := j.Call("nothing")
		about := r.Failed == "" && r.Status == 0 && len(r.Stdout) == 0
		j.Expect(about || codeOf(r) == int(cni.CodeInvalidEnvironment), Verdict{Row: "EXE-18", Severity: report.Low,
			Title:    "a start without any variable is neither explained nor refused",
			Expected: "exit status 0, empty standard output and a text on standard error, or code 4",
			Actual:   describe(r)})
	},
}

// required are the variables that each verb needs.
var required = []struct {
	verb      cni.Command
	variables []string
}{
	{cni.Add, []string{"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"}},
	{cni.Del, []string{"CNI_CONTAINERID", "CNI_IFNAME"}},
	{cni.Check, []string{"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"}},
}

// variablesCase leaves out variables.
var variablesCase = &Case{
	Name: "variables", Once: true, Rows: []string{"ENV-03", "ENV-07", "ERR-09"},
	Script: func(s *Setup) (*script.Scenario, string) {
		var steps []script.Step
		for n, r := range required {
			if !s.Version.Has(r.verb) {
				continue
			}
			add := func(how, variable string, option func(*Draft)) {
				options := []func(*Draft){option}
				if r.verb != cni.Add {
					options = append(options, Without("prevResult"))
				}
				steps = append(steps, quiet(s.Call(variableCall(r.verb, how, variable), r.verb, n+1, options...)))
			}
			for _, v := range r.variables {
				add("without", v, Without(v))
			}
			add("without", "all", Without(r.variables...))
			add("empty", "CNI_IFNAME", Env("CNI_IFNAME", ""))
		}
		steps = append(steps, quiet(s.Call("add-order", cni.Add, 1, Without("CNI_IFNAME"), Stdin("garbage"))))
		return s.Scenario(3, steps...), ""
	},
	Judge: func(j *Judgment) {
		var wrong, unnamed, incomplete []string
		for _, r := range required {
			for _, how := range []string{"without", "empty"} {
				for _, v := range append(slices.Clone(r.variables), "all") {
					name := variableCall(r.verb, how, v)
					call, called := j.Call(name)
					if !called {
						continue
					}
					names := []string{v}
					if v == "all" {
						names = r.variables
					}
					lacks := lacksNames(call, names...)
					text := fmt.Sprintf("call %s: %s", name, describe(call))
					switch {
					case codeOf(call) != int(cni.CodeInvalidEnvironment):
						wrong = append(wrong, text)
					case len(lacks) == len(names):
						unnamed = append(unnamed, text)
					case len(lacks) > 0:
						incomplete = append(incomplete, text)
					}
				}
			}
		}
		v := Verdict{Row: "ENV-03", Severity: report.Medium, Title: "a missing variable is not refused with code 4",
			Expected: "exit status 1 with code 4 for each missing or empty variable", Actual: strings.Join(wrong, "; ")}
		if wrong == nil {
			v.Title, v.Expected = "the error does not name all missing variables", "a message with all missing variables"
			v.Actual, v.Hint = strings.Join(incomplete, "; "), "collect the missing variables before failing"
		}
		j.Expect(wrong == nil && incomplete == nil, v)
		j.Expect(unnamed == nil, Verdict{Row: "ENV-07", Severity: report.Low,
			Title: "an error about a missing variable does not name it", Expected: "the name of the variable in msg or details",
			Actual: strings.Join(unnamed, "; "), Hint: "write CNI_CONTAINERID, not \"container ID\""})
		order := j.refusals([]string{"add-order"}, cni.CodeInvalidEnvironment)
		if wrong == nil || order == nil {
			j.Expect(order == nil, Verdict{Row: "ERR-09", Severity: report.Low,
				Title:    "standard input is judged before the variables",
				Expected: "code 4 for a request with a missing variable and unreadable input", Actual: strings.Join(order, "; ")})
		}
	},
}

func variableCall(verb cni.Command, how, variable string) string {
	return fmt.Sprintf("%s-%s-%s", strings.ToLower(string(verb)), how, variable)
}

// odd are identifiers that the tables of package conformance lack.
var odd = []conformance.Identifier{
	{Field: conformance.FieldContainerID, Value: "../x", Verdict: conformance.Invalid},
	{Field: conformance.FieldContainerID, Value: "..", Verdict: conformance.Invalid},
}

// identifiers returns the identifiers of a field, with the names of their calls.
func identifiers(field conformance.Field) (list []conformance.Identifier, err error) {
	all, err := conformance.Identifiers()
	for _, i := range append(all, odd...) {
		if i.Field == field && i.Value != "" { // variables judges the empty ones
			list = append(list, i)
		}
	}
	return list, err
}

// identifierFields are the variables with identifiers.
var identifierFields = []struct {
	field     conformance.Field
	variable  string
	row       string
	container int
	ordinary  string // a value of which no attachment exists
	title     string
}{
	{conformance.FieldContainerID, "CNI_CONTAINERID", "ENV-05", 1, "conform-9",
		"a container ID is not validated by the rules of the specification"},
	{conformance.FieldIfName, "CNI_IFNAME", "ENV-06", 2, "other9",
		"an interface name is not validated by the rules of the system"},
}

// identifiersCase sends the container IDs and interface names of package conformance: ADD with the
// invalid ones must fail, and DEL with the valid ones must end like DEL with an ordinary one.
var identifiersCase = &Case{
	Name: "identifiers", Once: true, Rows: []string{"ENV-04", "ENV-05", "ENV-06", "ENV-07", "SEC-01"},
	Script: func(s *Setup) (*script.Scenario, string) {
		var steps []script.Step
		for _, f := range identifierFields {
			list, err := identifiers(f.field)
			if err != nil {
				panic(err) // embedded tables
			}
			steps = append(steps, quiet(s.Call(fmt.Sprintf("%s-ordinary", f.field), cni.Del, f.container,
				Env(f.variable, f.ordinary), Without("prevResult"))))
			for i, id := range list {
				name := fmt.Sprintf("%s-%d", f.field, i+1)
				c := s.Call(name, cni.Add, f.container, Env(f.variable, id.Value))
				if id.Verdict == conformance.Valid {
					c = s.Call(name, cni.Del, f.container, Env(f.variable, id.Value), Without("prevResult"))
				}
				steps = append(steps, quiet(c))
			}
		}
		steps = append(steps,
			call(s.Call("empty-id", cni.Add, 1, Env("CNI_CONTAINERID", ""))),
			call(s.Call("del-path", cni.Del, 1, Without("prevResult"), Env("CNI_CONTAINERID", "../../x"))))
		return s.Scenario(2, steps...), ""
	},
	Judge: judgeIdentifiers,
}

func judgeIdentifiers(j *Judgment) {
	var unnamed, all []string
	for _, f := range identifierFields {
		list, err := identifiers(f.field)
		if err != nil {
			panic(err) // embedded tables
		}
		ordinary, _ := j.Call(fmt.Sprintf("%s-ordinary", f.field))
		var wrong []string
		for i, id := range list {
			name := fmt.Sprintf("%s-%d", f.field, i+1)
			r, _ := j.Call(name)
			text := fmt.Sprintf("%s %.40q: %s", f.variable, id.Value, describe(r))
			switch {
			case id.Verdict == conformance.Valid:
				if refusesMore(r, ordinary) {
					wrong = append(wrong, "DEL with the valid "+text)
				}
			case codeOf(r) != int(cni.CodeInvalidEnvironment):
				wrong = append(wrong, "ADD with "+text)
			case lacksNames(r, f.variable) != nil:
				unnamed = append(unnamed, text)
			}
		}
		all = append(all, wrong...)
		j.Expect(wrong == nil, Verdict{Row: f.row, Severity: report.Medium, Title: f.title,
			Expected: "code 4 for invalid identifiers, and success for valid ones", Actual: strings.Join(wrong, "; "),
			Hint: map[string]string{
				"ENV-05": "^[a-zA-Z0-9][a-zA-Z0-9_.-]*$, without a trailing newline",
				"ENV-06": "1 to 15 bytes, not \".\" or \"..\", without slash, colon and white space"}[f.row]})
	}
	j.Expect(unnamed == nil, Verdict{Row: "ENV-07", Severity: report.Low,
		Title: "an error about an invalid variable does not name it", Expected: "the name of the variable in msg or details",
		Actual: strings.Join(unnamed, "; "), Hint: "write CNI_CONTAINERID, not \"container ID\""})
	empty := j.refusals([]string{"empty-id"}, cni.CodeInvalidEnvironment)
	j.Expect(empty == nil, Verdict{Row: "ENV-04", Severity: report.Medium, Title: "an empty container ID is not refused",
		Expected: "exit status 1 with code 4", Actual: strings.Join(empty, "; ")})
	if changes := j.changes("del-path", "del-path"); all == nil {
		path := j.accepted([]string{"del-path"})
		j.Expect(path == nil && changes == nil, Verdict{Row: "SEC-01", Severity: report.High,
			Title:    "DEL with a path as container ID is executed",
			Expected: "an error before any path is formed", Actual: strings.Join(append(path, changes...), "; "),
			Hint: "validate identifiers on every verb"})
	}
}

// needsPath reports whether the plugin runs other plugins.
func (s *Setup) needsPath() bool {
	ipam, _ := s.Request(1)["ipam"].(map[string]any)
	return s.Role == Meta || s.Role != IPAM && ipam["type"] != nil
}

// pathCase leaves out CNI_PATH, and adds variables that concern no plugin.
var pathCase = &Case{
	Name: "environment", Once: true, Rows: []string{"ENV-10", "ENV-17", "TRC-05"},
	Script: func(s *Setup) (*script.Scenario, string) {
		steps := []script.Step{
			quiet(s.Call("add", cni.Add, 1)),
			quiet(s.Call("add-odd", cni.Add, 2, Env("CNI_VERSION", "0.1.0"), Env("TRACEPARENT", "garbage"), Env("TRACESTATE", "="), Env("BAGGAGE", "%"))),
		}
		if !s.needsPath() {
			steps = append(steps, quiet(s.Call("add-pathless", cni.Add, 3, Without("CNI_PATH"))))
		}
		return s.Scenario(3, steps...), ""
	},
	Judge: func(j *Judgment) {
		if !j.Requires("add") {
			return
		}
		if j.Setup.needsPath() {
			j.NotApplicable("ENV-10", "the plugin runs other plugins")
		} else {
			j.Succeeded("add-pathless", Verdict{Row: "ENV-10", Severity: report.Low,
				Title: "CNI_PATH is required although the plugin runs no other plugin",
				Hint:  "plugins that use libcni do so; the specification requires CNI_PATH only for GC"})
		}
		j.Pass("ENV-17")
		j.Succeeded("add-odd", Verdict{Row: "TRC-05", Severity: report.Medium,
			Title: "ADD fails with an invalid trace context, or CNI_VERSION"})
	},
}

// attachmentVariablesCase sets the variables of attachments on GC and STATUS, which do not have them.
var attachmentVariablesCase = &Case{
	Name: "attachment-variables", Once: true, Oldest: cni.V110, Rows: []string{"ENV-08"},
	Script: func(s *Setup) (*script.Scenario, string) {
		valid := With("cni.dev/valid-attachments", []any{})
		bad := []func(*Draft){Env("CNI_CONTAINERID", "-bad"), Env("CNI_IFNAME", "a/b"), Env("CNI_NETNS", "/nonexistent"), valid}
		return s.Scenario(1,
			quiet(s.Call("status", cni.Status, 1)), quiet(s.Call("status-bad", cni.Status, 1, bad[:3]...)),
			quiet(s.Call("gc", cni.GC, 1, valid)), quiet(s.Call("gc-bad", cni.GC, 1, bad...))), ""
	},
	Judge: func(j *Judgment) {
		var wrong []string
		for _, name := range []string{"status", "gc"} {
			plain, _ := j.Call(name)
			bad, _ := j.Call(name + "-bad")
			if bad.Status != plain.Status || codeOf(bad) != codeOf(plain) {
				wrong = append(wrong, fmt.Sprintf("%s: %s", strings.ToUpper(name), describe(bad)))
			}
		}
		j.Expect(wrong == nil, Verdict{Row: "ENV-08", Severity: report.Medium,
			Title:    "GC or STATUS judges variables of attachments",
			Expected: "the same outcome with invalid CNI_CONTAINERID, CNI_IFNAME and CNI_NETNS as without",
			Actual:   strings.Join(wrong, "; ")})
	},
}

// ownNamespaceCase puts the path of the own namespace of the plugin into CNI_NETNS.
var ownNamespaceCase = &Case{
	Name: "own-namespace", Once: true, Rows: []string{"PL-ADD-11", "R-04", "ENV-16"},
	Script: func(s *Setup) (*script.Scenario, string) {
		own := Env("CNI_NETNS", "/proc/self/ns/net")
		return s.Scenario(1,
			call(s.Call("add-own", cni.Add, 1, own)),
			quiet(s.Call("del-own", cni.Del, 1, own, Without("prevResult"))),
			quiet(s.Call("add-override", cni.Add, 1, own, Env("CNI_NETNS_OVERRIDE", "1"))),
		), ""
	},
	Judge: func(j *Judgment) {
		j.Claim("add-own")
		r, _ := j.Call("add-own")
		_, rest := firstObject(r.Stdout)
		changes := j.changes("add-own", "add-own")
		actual := describe(r)
		if changes != nil {
			actual += "; it leaves " + strings.Join(changes, ", ")
		}
		v := Verdict{Row: "PL-ADD-11", Severity: report.High,
			Title:    "ADD in the namespace of the plugin is not refused before it changes anything",
			Expected: "one error object with code 8, and no change", Actual: actual,
			Hint: "compare CNI_NETNS with the own namespace first; libcni does it after the work"}
		if r.Status != 0 && rest == "" && changes == nil {
			v.Severity, v.Title = report.Low, "ADD in the namespace of the plugin has another code than 8"
		}
		ok := j.Expect(codeOf(r) == int(cni.CodeOwnNamespace) && rest == "" && changes == nil, v)
		if ok {
			j.Pass("R-04")
		} else {
			j.NotApplicable("R-04", "judged by PL-ADD-11")
		}
		over, _ := j.Call("add-override")
		j.Expect(codeOf(over) != int(cni.CodeOwnNamespace) && !over.Late, Verdict{Row: "ENV-16", Severity: report.Low,
			Title:    "CNI_NETNS_OVERRIDE does not allow the namespace of the plugin",
			Expected: "success, or failure with another code than 8", Actual: describe(over)})
	},
}

// The values of CNI_ARGS that a plugin which knows none of the keys must accept or refuse, if it reads
// the variable at all.
var (
	acceptedArgs = []string{"IgnoreUnknown=1;FOO=BAR", "FOO=BAR;IgnoreUnknown=true", "IgnoreUnknown=True;FOO=",
		"IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_UID=u1"}
	refusedArgs = []string{"IgnoreUnknown=0;FOO=BAR", "IgnoreUnknown=yes", "IgnoreUnknown=1;FOO",
		"IgnoreUnknown=1;", "IgnoreUnknown=1;A=b=c", "ignoreunknown=1;FOO=BAR"}
)

// argsCase sends CNI_ARGS.
var argsCase = &Case{
	Name: "args", Once: true, Rows: []string{"ENV-11", "CONV-22", "CONV-23", "CONV-25"},
	Script: func(s *Setup) (*script.Scenario, string) {
		steps := []script.Step{quiet(s.Call("add", cni.Add, 1)),
			quiet(s.Call("add-unknown", cni.Add, 2, Env("CNI_ARGS", "FOO=BAR")))}
		n := 2
		for i, args := range acceptedArgs {
			n++
			steps = append(steps, quiet(s.Call(fmt.Sprintf("accepted-%d", i+1), cni.Add, n, Env("CNI_ARGS", args))))
		}
		for i, args := range refusedArgs {
			steps = append(steps, quiet(s.Call(fmt.Sprintf("refused-%d", i+1), cni.Add, n+1, Env("CNI_ARGS", args))))
		}
		return s.Scenario(n+1, steps...), ""
	},
	Judge: judgeArgs,
}

func judgeArgs(j *Judgment) {
	if !j.Requires("add") {
		return
	}
	var wrong []string
	for i, args := range acceptedArgs {
		if r, _ := j.Call(fmt.Sprintf("accepted-%d", i+1)); r.Status != 0 {
			wrong = append(wrong, fmt.Sprintf("CNI_ARGS %q: %s", args, describe(r)))
		}
	}
	j.Expect(wrong == nil, Verdict{Row: "CONV-25", Severity: report.High,
		Title:    "CNI_ARGS with IgnoreUnknown make ADD fail",
		Expected: "success for keys of Kubernetes and other unknown keys with IgnoreUnknown=1", Actual: strings.Join(wrong, "; "),
		Hint: "IgnoreUnknown holds wherever it stands; its value is 1, 0, true or false in any case"})
	j.Pass("ENV-11")
	if r, _ := j.Call("add-unknown"); r.Status == 0 {
		for _, row := range []string{"CONV-22", "CONV-23"} {
			j.Info(row, "the plugin does not read CNI_ARGS, or accepts unknown keys")
		}
		return
	}
	var unknown, syntax []string
	for i, args := range refusedArgs {
		if r, _ := j.Call(fmt.Sprintf("refused-%d", i+1)); r.Status != 0 {
			continue
		}
		if strings.Contains(args, "nknown=1;") && !strings.Contains(args, "FOO=BAR") {
			syntax = append(syntax, fmt.Sprintf("%q", args))
		} else {
			unknown = append(unknown, fmt.Sprintf("%q", args))
		}
	}
	j.Expect(unknown == nil, Verdict{Row: "CONV-22", Severity: report.Low, Title: "an unknown key of CNI_ARGS is accepted",
		Expected: "failure unless IgnoreUnknown is 1 or true", Actual: strings.Join(unknown, ", ")})
	j.Expect(syntax == nil, Verdict{Row: "CONV-23", Severity: report.Low, Title: "malformed CNI_ARGS are accepted",
		Expected: "failure", Actual: strings.Join(syntax, ", "), Hint: "each piece between semicolons has exactly one equals sign"})
}
