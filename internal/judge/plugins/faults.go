package plugins

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/judge/trial"
	"github.com/tenon-cni/tenon/internal/tracer"
)

// faultCase is a verb that is disturbed at each of its changes, for one container and then for another,
// with undisturbed calls of a third one before and between. The verbs that clean up must succeed and
// leave nothing of a container.
type faultCase struct {
	name   string
	verb   cni.Command
	oldest cni.Version
	fails  string // row of a clean-up that fails
	leaves string // row of a clean-up that leaves something
}

var faultCases = []faultCase{
	{"fault-add", cni.Add, cni.V010, "PL-DEL-03", "PL-DEL-01"},
	{"fault-del", cni.Del, cni.V010, "PL-DEL-02", "PL-DEL-05"},
	{"fault-gc", cni.GC, cni.V110, "PL-GC-04", "PL-GC-01"},
}

func (c faultCase) rows() []string { return []string{c.fails, c.leaves} }

// trialName returns the name of the trials with an effect.
func (c faultCase) trialName(e script.Effect) string { return c.name + "-" + string(e) }

func (c faultCase) chosen(only []string) bool {
	return trial.Chosen(only, c.name, c.rows()) || slices.Contains(only, c.trialName(script.KillBefore)) ||
		slices.Contains(only, c.trialName(script.FailWith))
}

// scenario returns the scenario of a fault.
func (c faultCase) scenario(s *Setup, fault script.Fault) *script.Scenario {
	const other = 3
	plain := Without("prevResult")
	undisturbed := func(name string) []script.Step {
		return []script.Step{quiet(s.Call(name, cni.Add, other)), call(s.Call(name+"-del", cni.Del, other, plain))}
	}
	steps := undisturbed("before")
	for n := 1; n <= 2; n++ {
		if c.verb != cni.Add {
			steps = append(steps, quiet(s.Call(round("add", n), cni.Add, n)))
		}
		disturbed := s.Call(round("disturbed", n), c.verb, n)
		switch c.verb {
		case cni.Del:
			disturbed = s.Call(round("disturbed", n), c.verb, n, plain)
		case cni.GC:
			disturbed = s.Call(round("disturbed", n), c.verb, n, valid())
		}
		disturbed.Fault = &fault
		steps = append(steps, quiet(disturbed))
		if c.verb == cni.GC {
			steps = append(steps, quiet(s.Call(round("again", n), cni.GC, n, valid())))
		}
		steps = append(steps, call(s.Call(round("del", n), cni.Del, n, plain)))
		if n == 1 {
			steps = append(steps, undisturbed("between")...)
		}
	}
	return s.Scenario(other, steps...)
}

// left returns what the disturbed calls left: objects that the first container left and that
// undisturbed calls of another one did not replace. Tables, chains and rules, which containers share,
// count only if the second container left more of them.
func (j *Judgment) left() (words []string) {
	before, del, between, del2 := j.After("before-del"), j.After("del"), j.After("between-del"), j.After("del2")
	first, remains := compare(before, del).more, compare(before, between).more
	for _, what := range first {
		if slices.Contains(remains, what) && !ofFirewall(what) {
			words = append(words, what)
		}
	}
	known := compare(j.Start, before).more
	for _, what := range compare(between, del2).more {
		if ofFirewall(what) && !slices.Contains(known, what) {
			words = append(words, what)
		}
	}
	return words
}

// ofFirewall reports whether a difference is one of nftables or iptables.
func ofFirewall(what string) bool {
	for _, kind := range []host.Kind{host.KindTable, host.KindChain, host.KindSet, host.KindElement, host.KindRule} {
		if strings.HasPrefix(what, "host: "+string(kind)+" ") {
			return true
		}
	}
	return false
}

// round returns the name of a call for container n.
func round(name string, n int) string {
	if n == 1 {
		return name
	}
	return name + strconv.Itoa(n)
}

// planFaults returns the trials with faults, after runs that count the changes of each verb.
func planFaults(ctx context.Context, s *Subject, o trial.Options) (trials []*trial.Trial, err error) {
	unable := tracer.Supported()
	seen := map[Role]bool{}
	for i := range s.Configs {
		config := &s.Configs[i]
		if seen[config.Role] {
			continue
		}
		seen[config.Role] = true
		lacks, err := s.lacks(ctx, config, o.Play)
		if err != nil {
			return nil, err
		}
		setup := &Setup{Subject: s, Config: config, Role: config.Role, Version: slices.Max(s.Versions), Lacks: lacks}
		if unable != nil {
			setup.Lacks = unable.Error()
		}
		for _, c := range faultCases {
			if setup.Version < c.oldest || !c.chosen(o.Only) {
				continue
			}
			more, err := c.plan(ctx, setup, o)
			if err != nil {
				return nil, err
			}
			trials = append(trials, more...)
		}
	}
	return trials, nil
}

// plan counts the changes of a verb and returns a trial for each change and effect.
func (c faultCase) plan(ctx context.Context, s *Setup, o trial.Options) ([]*trial.Trial, error) {
	t := func(name string, f script.Fault) *trial.Trial {
		return &trial.Trial{Case: name, Role: string(s.Role), Version: s.Version.String(), Rows: c.rows(),
			Scenario: c.scenario(s, f), Lacks: s.Lacks}
	}
	count := t(c.name, script.Fault{Effect: script.NoEffect})
	if s.Lacks != "" {
		return []*trial.Trial{count}, nil
	}
	count.Scenario.Name = count.Case
	r, err := o.Play(ctx, count)
	if err != nil {
		return nil, err
	}
	if r.Broken != "" {
		return nil, errors.New(r.Broken)
	}
	clean := &Judgment{Judgment: &trial.Judgment{Recording: r}, Setup: s}
	count.Judge = func(j *trial.Judgment) {
		if (&Judgment{Judgment: j, Setup: s}).undisturbed(c) {
			j.Pass(c.fails)
			j.Pass(c.leaves)
		}
	}
	if !clean.undisturbed(c) {
		return []*trial.Trial{count}, nil
	}
	trials := []*trial.Trial{count}
	leftBehind := clean.left()
	disturbed, _ := r.Call("disturbed")
	for n, change := range disturbed.Changes {
		for _, effect := range []script.Effect{script.KillBefore, script.FailWith} {
			if effect == script.FailWith && !change.CanFail {
				continue
			}
			f := t(c.trialName(effect), script.Fault{Effect: effect, N: n})
			f.Judge = func(j *trial.Judgment) {
				c.judge(&Judgment{Judgment: j, Setup: s}, effect, n, leftBehind)
			}
			trials = append(trials, f)
		}
	}
	return trials, nil
}

// undisturbed reports whether all calls succeed without a fault. If not, faults cannot be judged.
func (j *Judgment) undisturbed(c faultCase) bool {
	for _, name := range []string{"before", "before-del", "disturbed", "del", "between", "between-del", "disturbed2", "del2"} {
		if !j.Requires(name) {
			return false
		}
	}
	return true
}

// judge judges the clean-up after a fault at change n. Objects that undisturbed calls leave behind are no finding.
func (c faultCase) judge(j *Judgment, effect script.Effect, n int, leftBehind []string) {
	disturbed, _ := j.Call("disturbed")
	if !disturbed.Hit || n >= len(disturbed.Changes) {
		for _, row := range c.rows() {
			j.NotApplicable(row, fmt.Sprintf("the number of changes varies; this call made only %d", len(disturbed.Changes)))
		}
		return
	}
	circumstance := fmt.Sprintf("%s was killed before change %d (%s)", c.verb, n+1, disturbed.Changes[n].Name)
	if effect == script.FailWith {
		circumstance = fmt.Sprintf("change %d of %s (%s) failed, and %[2]s ended with %[4]s",
			n+1, c.verb, disturbed.Changes[n].Name, describe(disturbed))
	}
	for _, name := range []string{"again", "del", "again2", "del2"} {
		r, found := j.Call(name)
		if !found {
			continue
		}
		verb := script.Recorded{Env: j.request(name).Env}.Getenv("CNI_COMMAND")
		if !j.Expect(r.Failed == "" && r.Status == 0, Verdict{Row: c.fails, Severity: report.High,
			Title:    fmt.Sprintf("%s fails after an interrupted %s", verb, c.verb),
			Expected: "exit status 0", Actual: fmt.Sprintf("%s; %s", describe(r), circumstance),
			Hint: "state of an interrupted call may be incomplete: go on past missing and unreadable objects"}) {
			return
		}
	}
	if !j.Requires("between") || !j.Requires("between-del") {
		return
	}
	left := slices.DeleteFunc(j.left(), func(what string) bool {
		return slices.Contains(leftBehind, what)
	})
	j.Expect(len(left) == 0, Verdict{Row: c.leaves, Severity: report.High,
		Title:    fmt.Sprintf("an interrupted %s leaves something that DEL does not remove", c.verb),
		Expected: "nothing of the container after DEL", Actual: fmt.Sprintf("left: %s; %s", list(left), circumstance),
		Hint: "record what a call is about to change before it does, or derive all names from the container ID"})
}
