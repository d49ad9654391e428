package plugins

import (
	"fmt"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

// Role is the task of a plugin.
type Role string

// The roles. A plugin can have several.
const (
	Interface Role = "interface" // creates an interface in the container
	Chained   Role = "chained"   // changes what earlier plugins created
	IPAM      Role = "ipam"      // allocates addresses
	Meta      Role = "meta"      // calls other interface plugins
)

// Case is a scenario of the judge with its checks.
type Case struct {
	Name  string
	Roles []Role // empty: all
	// Like are the well-known plugins with options and effects that the case relies on, see
	// [Config.Like]; empty: all plugins.
	Like []string
	// Needs is a text for sh(1) that fails if the host lacks a program that the case needs.
	Needs string
	// Oldest and Newest are the versions of the specification that the case concerns; zero values do
	// not limit them.
	Oldest, Newest cni.Version
	// Variants runs the case also with the second and further configurations of a role.
	Variants bool
	// Once runs the case in the newest announced version only.
	Once bool
	Rows []string // that the case judges, if it runs
	// Script builds the scenario. It returns a reason if the case does not apply to the subject.
	Script func(*Setup) (s *script.Scenario, reason string)
	// Judge adds the verdicts. It is nil for a case with only the checks of every call.
	Judge func(*Judgment)
}

// applies reports whether a case concerns a configuration in a version.
func (c *Case) applies(config *Config, v cni.Version) bool {
	return (len(c.Roles) == 0 || slices.Contains(c.Roles, config.Role)) &&
		(len(c.Like) == 0 || slices.Contains(c.Like, config.Like)) &&
		(c.Oldest == 0 || v >= c.Oldest) &&
		(c.Newest == 0 || v <= c.Newest)
}

// Judgment derives the verdicts of a case from its recording.
type Judgment struct {
	*trial.Judgment
	Setup *Setup
}

// Requires reports whether a call succeeded that the following checks depend on. ADD must also have
// printed a valid result, because later calls contain it. If not, the rows without a verdict are
// skipped.
func (j *Judgment) Requires(call string) bool {
	if !j.Judgment.Requires(call) {
		return false
	}
	r, _ := j.Call(call)
	asked, known := requested(r.Stdin)
	if !known || getenv(j.request(call).Env, "CNI_COMMAND") != string(cni.Add) {
		return true
	}
	f := form{version: asked, ipam: j.Setup.Role == IPAM}
	f.check(r.Stdout)
	for _, p := range f.problems {
		if p.row != "RES-12" && p.row != "DNS-03" { // which do no harm
			j.Stopped = fmt.Sprintf("call %s: %s", call, p.title)
			return false
		}
	}
	return true
}

// judge adds the verdicts of a case, and the verdicts that every case has.
func (j *Judgment) judge(c *Case) {
	if c.Judge != nil {
		c.Judge(j)
	}
	j.judgeRegressions(c)
	j.judgeEvery()
}

// Verdict is the outcome for one row.
type Verdict = trial.Verdict

// describe states how a call ended.
func describe(r script.Result) string { return trial.Describe(r) }
