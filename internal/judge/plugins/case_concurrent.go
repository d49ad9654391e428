package plugins

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// race is a series of rounds, in each of which other containers are attached and detached at the same
// time. A round with one container shows what the calls do alone.
type race struct {
	name   string
	rounds []int // numbers of containers
	// compared compares the state after each round with that before, which takes time for each container.
	compared bool
	// fresh removes before each round what a round leaves, so that its calls compete for creating what
	// attachments share.
	fresh bool
}

var races = []race{
	{name: "concurrent-2", rounds: []int{2, 1}},
	{name: "concurrent-16", rounds: []int{16, 16, 16, 1}, fresh: true},
	{name: "concurrent-64", rounds: []int{1, 1, 64}, compared: true},
}

// freshHost removes the bridges of the host, and lets the IPAM plugin wait again.
const freshHost = `rm -rf /run/conform/met /run/conform/meeting
for bridge in $(ip -o link show type bridge | sed 's/^[0-9]*: \([^:@]*\).*/\1/'); do ip link del $bridge; done`

func concurrentCases() (cases []*Case) {
	for _, r := range races {
		cases = append(cases, &Case{Name: r.name, Roles: []Role{Interface, Chained}, Once: true,
			Rows:   []string{"LIF-07", "R-65"},
			Script: func(s *Setup) (*script.Scenario, string) { return s.race(r), "" },
			Judge:  r.judge})
	}
	return cases
}

func (s *Setup) race(r race) *script.Scenario {
	var steps []script.Step
	first := 1
	for _, n := range r.rounds {
		if r.fresh && first > 1 && n > 1 {
			steps = append(steps, script.Step{Shell: freshHost, Quiet: true})
		}
		round := s.together(first, n)
		round[len(round)-1].Quiet = !r.compared
		steps = append(steps, round...)
		first += n
	}
	c := s.Scenario(first-1, steps...)
	c.Files = append(c.Files, script.Answers(scriptedIPAM, "ADD", fmt.Sprintf(meet, r.rounds[0])+s.addresses()))
	return c
}

// meet lets calls of the IPAM plugin wait until %d of them run, so that the plugins which call it continue
// at the same time. A plugin that makes its calls wait for each other is recognized after a second.
const meet = `mkdir -p /run/conform/meeting
: >/run/conform/meeting/$CNI_CONTAINERID
tries=0
until [ -e /run/conform/met ]; do
	set -- /run/conform/meeting/*
	if [ $# -ge %d ] || [ $tries -ge 20 ]; then : >/run/conform/met; fi
	tries=$((tries + 1))
	sleep 0.05
done
`

// eachTogether is the time that each call of a round adds to the deadline of all: a slow host runs them one
// after the other.
const eachTogether = 2 * time.Second

// together returns the steps of a round: ADD of n containers at the same time, CHECK, and DEL.
func (s *Setup) together(first, n int) (steps []script.Step) {
	verbs := []cni.Command{cni.Add, cni.Del}
	if s.Version >= cni.V040 {
		verbs = []cni.Command{cni.Add, cni.Check, cni.Del}
	}
	for _, verb := range verbs {
		var calls []script.Call
		for i := first; i < first+n; i++ {
			name := fmt.Sprint(strings.ToLower(string(verb)), i)
			if i == 1 {
				name = strings.ToLower(string(verb)) // the name to which CHECK and DEL refer
			}
			c := s.Call(name, verb, i)
			if n > 1 {
				c.Deadline = script.DefaultDeadline + time.Duration(n)*eachTogether
			}
			calls = append(calls, c)
		}
		steps = append(steps, script.Step{Calls: calls, Quiet: true})
	}
	return steps
}

func (r race) judge(j *Judgment) {
	for _, e := range j.Events {
		var failed []string
		for _, c := range e.Calls {
			if c.Status != 0 {
				failed = append(failed, c.Name+": "+describe(c))
			}
		}
		if len(failed) == 0 {
			continue
		}
		verb := verbOf(e.Calls)
		if verb == string(cni.Check) && r.failsAlone(j, verb) {
			continue // a finding of PL-CHK-07
		}
		v := Verdict{Row: "LIF-07", Severity: report.High,
			Title:    fmt.Sprintf("%s fails if it runs for several containers at the same time", verb),
			Expected: fmt.Sprintf("%d calls with exit status 0", len(e.Calls)),
			Actual:   fmt.Sprintf("%d of %d calls fail: %s", len(failed), len(e.Calls), list(failed)),
			Hint:     "lock what attachments share; treat it as success if another call creates it first"}
		j.Fail(v)
		return
	}
	j.Pass("R-65")
	if !r.compared {
		j.Pass("LIF-07")
		return
	}
	if alone := compare(j.After("del"), j.After("del2")); !alone.empty() {
		j.Pass("LIF-07") // also calls one after the other leave something: a finding of PL-DEL-01
		return
	}
	left := compare(j.After("del2"), j.last())
	j.Expect(left.empty(), Verdict{Row: "LIF-07", Severity: report.High,
		Title:    "something stays after parallel calls of ADD and DEL, but not after the same calls one by one",
		Expected: "the state before the calls", Actual: left.String(),
		Hint: "lock what attachments share while it is read and changed"})
}

// failsAlone reports whether a verb fails also in a round with one container.
func (r race) failsAlone(j *Judgment, verb string) bool {
	return slices.ContainsFunc(j.Events, func(e script.Event) bool {
		return len(e.Calls) == 1 && verbOf(e.Calls) == verb && e.Calls[0].Status != 0
	})
}

// verbOf returns the verb of calls at the same time.
func verbOf(calls []script.Result) string {
	return strings.ToUpper(strings.TrimRight(calls[0].Name, "0123456789"))
}
