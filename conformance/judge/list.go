package judge

import (
	"context"
	"slices"

	"github.com/tenon-cni/tenon/internal/judge/plugins"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

// Case is a scenario that [Plugins] or [Runtimes] would run.
type Case struct {
	Subject  string   `json:"subject"`
	Scenario string   `json:"scenario"`
	Role     string   `json:"role,omitzero"`
	Versions []string `json:"versions"`
	Rows     []string `json:"rows"`
	Reason   string   `json:"reason,omitzero"` // why it would not run
}

// List returns the scenarios that [Plugins] would run with the same arguments. It asks the plugins for
// their versions.
func List(ctx context.Context, paths []string, o Options) ([]Case, error) {
	if err := o.known(plugins.Knows); err != nil {
		return nil, err
	}
	configs, err := o.configs()
	if err != nil {
		return nil, err
	}
	list := []Case{}
	for _, path := range paths {
		s, err := o.subject(ctx, path, configs)
		if err != nil {
			return nil, err
		}
		trials, err := plugins.Plan(ctx, s, trial.Options{Only: o.Only})
		if err != nil {
			return nil, err
		}
		list = listed(list, s.Name, trials)
	}
	return list, nil
}

// listed adds trials to a list. The versions of a scenario are one case.
func listed(list []Case, subject string, trials []*trial.Trial) []Case {
	for _, t := range trials {
		i := slices.IndexFunc(list, func(c Case) bool {
			return c.Subject == subject && c.Scenario == t.Case && c.Role == t.Role && c.Reason == t.Reason
		})
		if i < 0 {
			i = len(list)
			list = append(list, Case{Subject: subject, Scenario: t.Case, Role: t.Role, Versions: []string{},
				Rows: t.Rows, Reason: t.Reason})
		}
		if t.Version != "" {
			list[i].Versions = append(list[i].Versions, t.Version)
		}
	}
	return list
}

// Scenario is a scenario of the judge with the rows that it judges.
type Scenario struct {
	Name string
	Rows []string
}

// PluginScenarios returns all scenarios for plugins, except those with faults.
func PluginScenarios() []Scenario { return scenarios(plugins.Cases()) }

func scenarios(cases []*trial.Trial) (list []Scenario) {
	for _, c := range cases {
		list = append(list, Scenario{Name: c.Case, Rows: c.Rows})
	}
	return list
}
