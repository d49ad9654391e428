package runtimes

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

// Case is a scenario of the judge with its checks.
type Case struct {
	Name string
	// Verbs are the verbs that the driver needs. Without one of them, the case does not apply.
	Verbs []Verb
	// Oldest and Newest are the versions of the specification that the case concerns; zero values do
	// not limit them.
	Oldest, Newest cni.Version
	// Lists is the version of the lists, if the case concerns a list of an older version; the zero value
	// stands for the version in which the case runs.
	Lists cni.Version
	// Once runs the case in the newest version of the runtime only.
	Once bool
	Rows []string // that the case judges, if it runs
	// Script builds the scenario, and Judge adds the verdicts.
	Script func(*Setup) *script.Scenario
	Judge  func(*Judgment)
}

// cases are all scenarios of the judge for runtimes.
var cases = sync.OnceValue(func() []*Case {
	return slices.Concat(addCases, configCases, lookupCases, resultCases, delCases, checkCases, gcCases, statusCases)
})

// Rows returns the rows that some case judges.
func Rows() (rows []string) {
	for _, c := range cases() {
		rows = append(rows, c.Rows...)
	}
	slices.Sort(rows)
	return slices.Compact(rows)
}

// Cases returns the names and rows of all scenarios.
func Cases() (list []*trial.Trial) {
	for _, c := range cases() {
		list = append(list, &trial.Trial{Case: c.Name, Rows: c.Rows})
	}
	return list
}

// Knows reports whether a scenario has a name.
func Knows(name string) bool {
	return slices.ContainsFunc(cases(), func(c *Case) bool { return c.Name == name })
}

// Judge runs all cases and returns what they found.
func Judge(ctx context.Context, s *Subject, o trial.Options) (*report.Subject, error) {
	out, err := s.Report()
	if err != nil {
		return nil, err
	}
	return out, trial.Run(ctx, out, Plan(s, o), o)
}

// Plan returns the trials for a subject.
func Plan(s *Subject, o trial.Options) (trials []*trial.Trial) {
	for _, c := range cases() {
		if !trial.Chosen(o.Only, c.Name, c.Rows) {
			continue
		}
		versions := c.versions(s)
		if len(versions) == 0 {
			trials = append(trials, &trial.Trial{Case: c.Name, Role: Role, Rows: c.Rows,
				Reason: "the runtime supports no version that the scenario concerns"})
		}
		for _, v := range versions {
			trials = append(trials, c.trial(s, v))
		}
	}
	return trials
}

// versions returns the versions in which a case runs.
func (c *Case) versions(s *Subject) (list []cni.Version) {
	for _, v := range s.Versions {
		if (c.Oldest == 0 || v >= c.Oldest) && (c.Newest == 0 || v <= c.Newest) {
			list = append(list, v)
		}
	}
	if c.Once && len(list) > 1 {
		list = []cni.Version{slices.Max(list)}
	}
	return list
}

func (c *Case) trial(s *Subject, v cni.Version) *trial.Trial {
	setup := &Setup{Subject: s, Version: cmp.Or(c.Lists, v)}
	t := &trial.Trial{Case: c.Name, Role: Role, Version: v.String(), Rows: c.Rows,
		Judge: func(j *trial.Judgment) { c.Judge(&Judgment{Judgment: j, Setup: setup}) }}
	if !slices.Contains(s.Versions, setup.Version) {
		t.Reason = "the runtime does not support version " + setup.Version.String()
		return t
	}
	for _, verb := range append([]Verb{Add}, c.Verbs...) {
		if slices.Contains(s.Lacks, verb) {
			t.Reason = fmt.Sprintf("the driver has no verb %s", verb)
			return t
		}
	}
	t.Scenario = c.Script(setup)
	return t
}
