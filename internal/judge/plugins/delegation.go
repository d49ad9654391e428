package plugins

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

// The error of a scripted IPAM plugin that fails.
const (
	refusal     = "conform-refusal"
	refusalCode = cni.CodeTryAgainLater
)

// delegates returns a reason if the subject has no scripted IPAM plugin.
func (s *Setup) delegates() (reason string) {
	if !s.Config.ScriptedIPAM {
		return "the plugin calls no IPAM plugin"
	}
	return ""
}

// refuses is an answer of the scripted IPAM plugin that fails with a code.
func (s *Setup) refuses(code cni.Code) string {
	return fmt.Sprintf("echo '{\"cniVersion\":%q,\"code\":%d,\"msg\":%q}'\nexit 1\n", s.Version, code, refusal)
}

// answer returns a step that changes the answer of the scripted IPAM plugin to a verb.
func answer(verb cni.Command, text string) script.Step {
	f := script.Answers(scriptedIPAM, string(verb), text)
	return script.Step{Quiet: true, Shell: fmt.Sprintf("mkdir -p %s/answers\ncat >%s <<'END-OF-ANSWER'\n%sEND-OF-ANSWER\n",
		script.Dir, f.Path, f.Data)}
}

// call returns a step with a call.
func call(c script.Call) script.Step { return script.Step{Calls: []script.Call{c}} }

// quiet returns a step with a call and without a snapshot.
func quiet(c script.Call) script.Step { return script.Step{Calls: []script.Call{c}, Quiet: true} }

// delegated returns the calls of the scripted IPAM plugin during a call of the subject.
func (j *Judgment) delegated(call string) []script.Recorded {
	r, _ := j.Call(call)
	return slices.DeleteFunc(slices.Clone(r.Recorded), func(d script.Recorded) bool { return d.Plugin != scriptedIPAM })
}

// verbs returns the verbs of recorded calls, in their order.
func verbs(calls []script.Recorded) string {
	var list []string
	for _, c := range calls {
		list = append(list, c.Getenv("CNI_COMMAND"))
	}
	if list == nil {
		return "no call"
	}
	return strings.Join(list, ", ")
}

// forwarded returns the first recorded call of the scripted IPAM plugin with the verb. If there is
// none, it records a finding for the row.
func (j *Judgment) forwarded(call string, verb cni.Command, row string) (script.Recorded, bool) {
	calls := j.delegated(call)
	i := slices.IndexFunc(calls, func(r script.Recorded) bool { return r.Getenv("CNI_COMMAND") == string(verb) })
	r, _ := j.Call(call)
	severity := report.Medium
	if verb == cni.Add || verb == cni.Del {
		severity = report.High
	}
	if j.Expect(i >= 0, Verdict{Row: row, Severity: severity,
		Title:    fmt.Sprintf("%s does not run the IPAM plugin", verb),
		Expected: fmt.Sprintf("a call of the IPAM plugin with CNI_COMMAND=%s", verb),
		Actual:   verbs(calls) + "; " + describe(r),
		Hint:     "run the program named by ipam.type, found in CNI_PATH, with the same standard input and environment",
	}) {
		return calls[i], true
	}
	return script.Recorded{}, false
}

// failed reports whether a call failed with an exit status of its own.
func (j *Judgment) failed(call string) bool {
	r, found := j.Call(call)
	return found && r.Failed == "" && r.Status > 0
}

// environment returns the variables of a call that a delegate did not get as they were, except
// CNI_COMMAND.
func environment(c script.Call, d script.Recorded) (differences []string) {
	got := map[string]string{}
	for _, kv := range d.Env {
		k, v, _ := strings.Cut(kv, "=")
		got[k] = v
	}
	for _, kv := range c.Env {
		k, want, _ := strings.Cut(kv, "=")
		if v, ok := got[k]; k == "CNI_COMMAND" || ok && v == want {
			continue
		} else if ok {
			differences = append(differences, fmt.Sprintf("%s=%q instead of %q", k, v, want))
		} else {
			differences = append(differences, k+" is missing")
		}
	}
	return differences
}

// configuration compares the configuration that a plugin got with the one it gave to a delegate:
// missing are keys, changed are paths with both values.
func configuration(sent, got []byte) (missing, changed []string, err error) {
	var a, b map[string]any
	if err := trial.DecodeExactly(sent, &a); err != nil {
		return nil, nil, err
	}
	if err := trial.DecodeExactly(got, &b); err != nil {
		return nil, nil, err
	}
	for _, k := range slices.Sorted(maps.Keys(a)) {
		v, ok := b[k]
		if !ok {
			missing = append(missing, k)
		} else if !reflect.DeepEqual(a[k], v) {
			changed = append(changed, fmt.Sprintf("%s: %s instead of %s", k, trial.Compact(v), trial.Compact(a[k])))
		}
	}
	return missing, changed, nil
}

// request returns the call of a name in the scenario.
func (j *Judgment) request(name string) script.Call {
	for _, step := range j.Scenario.Steps {
		for _, c := range step.Calls {
			if c.Name == name {
				return c
			}
		}
	}
	return script.Call{}
}

// allocation is the result of the scripted IPAM plugin for container n.
func (s *Setup) allocation(n int) *cni.Result {
	var r cni.Result
	for _, family := range []struct{ address, gateway, route string }{
		{fmt.Sprintf("10.77.0.%d/24", n+1), "10.77.0.1", "0.0.0.0/0"},
		{fmt.Sprintf("fd77::%x/64", n+1), "fd77::1", "::/0"},
	} {
		r.IPs = append(r.IPs, cni.IP{Address: netip.MustParsePrefix(family.address), Gateway: netip.MustParseAddr(family.gateway)})
		r.Routes = append(r.Routes, cni.Route{Dst: netip.MustParsePrefix(family.route)})
	}
	return &r
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
