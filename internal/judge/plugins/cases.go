package plugins

import (
	"slices"
	"strings"
	"sync"

	"github.com/tenon-cni/tenon/internal/judge/trial"
)

// cases are all scenarios of the judge for plugins.
var cases = sync.OnceValue(func() []*Case {
	return slices.Concat(
		versionCases,
		variableCases,
		inputCases,
		resultCases,
		lifeCases,
		addCases(),
		delCases(),
		checkCases(),
		concurrentCases(),
		delegateCases,
		gcCases,
		ipamCases,
		statusCases,
		portmapCases,
		firewallCases,
		masqueradeCases,
		bridgeCases,
		hostLocalCases,
		tuningCases,
		routingCases,
		linkCases,
		parentCases,
		deviceCases,
		limitCases,
	)
})

// Rows returns the rows that some case judges, and the rows that are judged on every call.
func Rows() (rows []string) {
	rows = slices.Clone(everyRows)
	for _, c := range cases() {
		rows = append(rows, c.Rows...)
		for _, r := range regressions()[c.Name] {
			rows = append(rows, r.row)
		}
	}
	slices.Sort(rows)
	return slices.Compact(rows)
}

// Cases returns the names and rows of all scenarios, except those with faults.
func Cases() (list []*trial.Trial) {
	for _, c := range cases() {
		list = append(list, &trial.Trial{Case: c.Name, Rows: c.Rows})
	}
	return list
}

// Knows reports whether a scenario has a name. The scenarios of further configurations have the one of
// the configuration in addition: "life/vlan".
func Knows(name string) bool {
	name, _, _ = strings.Cut(name, "/")
	return slices.ContainsFunc(cases(), func(c *Case) bool { return c.Name == name }) ||
		slices.ContainsFunc(faultCases, func(c faultCase) bool { return strings.HasPrefix(name, c.name) })
}
