package plugins

import (
	"slices"
	"sync"

	"github.com/tenon-cni/tenon/conformance/report"
)

// regression is a row about a former defect that a case also judges.
type regression struct {
	row  string
	like []string // well-known plugins that the row concerns; empty: all
}

// of returns a regression of some well-known plugins.
func of(row string, like ...string) regression { return regression{row, like} }

// regressions are the rows about former defects of which the observation is the one of another row, by
// case.
var regressions = sync.OnceValue(func() map[string][]regression {
	return map[string][]regression{
		"add-ipam-unusable":  {of("R-48")},
		"add-name-taken":     {of("R-80", "dummy")},
		"concurrent-16":      {of("R-99", "bridge", "portmap", "firewall")},
		"del-empty-netns":    {of("R-21", "host-device"), of("R-29", "sbr"), of("R-35", "bridge", "ptp"), of("R-40", "loopback")},
		"del-interface-gone": {of("R-30", "sbr"), of("R-31", "vrf")},
		"del-netns-gone":     {of("R-22", "host-device"), of("R-28", "sbr"), of("R-35", "bridge", "ptp"), of("R-39", "tuning")},
		"del-no-prevresult":  {of("R-27", "ipvlan")},
		"del-parent-gone":    {of("R-25", "vlan"), of("R-26", "macvlan")},
		"gc-pool":            {of("R-15")},
	}
})

// rows returns the rows that the case judges with a configuration.
func (c *Case) rows(config *Config) []string {
	rows := slices.Clone(c.Rows)
	for _, r := range regressions()[c.Name] {
		if len(r.like) == 0 || slices.Contains(r.like, config.Like) {
			rows = append(rows, r.row)
		}
	}
	return rows
}

// judgeRegressions adds the verdicts of regressions: they pass if the other rows of the case do, and
// depend on the finding otherwise.
func (j *Judgment) judgeRegressions(c *Case) {
	failed := func(v Verdict) bool { return v.Outcome == report.Fail }
	passed := func(v Verdict) bool { return v.Outcome == report.Pass }
	if j.Stopped != "" || slices.ContainsFunc(j.Verdicts, failed) {
		return
	}
	judged := slices.ContainsFunc(j.Verdicts, passed)
	for _, row := range c.rows(j.Setup.Config)[len(c.Rows):] {
		if judged {
			j.Pass(row)
		} else {
			j.NotApplicable(row, "no other row of the scenario applies")
		}
	}
}
