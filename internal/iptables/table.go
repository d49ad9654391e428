package iptables

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/netns"
)

// Table is a table of iptables, for example "nat" or "filter".
type Table struct {
	Family Family
	Name   string
	Legacy bool // change the table with the tools of the legacy variant, if they are installed
}

// commands returns the tools that change the table.
func (t Table) commands() commands {
	if t.Legacy {
		return t.Family.legacyCommands()
	}
	return t.Family.commands()
}

// Works returns nil if the tool can read the table, else an error. It starts a process, and may
// make the kernel load the table.
func (t Table) Works(ctx context.Context, ns *netns.NS) error {
	_, err := t.commands().saved(ctx, ns, t.Name)
	return err
}

// String names the table with its tool.
func (t Table) String() string {
	return [...]string{"iptables",
		"ip6tables"}[t.Family] + " " + t.Name
}

// table is the content of a table, parsed from the output of iptables-save.
type table struct {
	chains map[string]bool // by name
	rules  []string
}

func parseTable(lines []string) table {
	t := table{chains: map[string]bool{}}
	for _, line := range lines {
		if rest, ok := strings.CutPrefix(line, ":"); ok {
			name, _, _ := strings.Cut(rest, " ")
			t.chains[name] = true
		} else if strings.HasPrefix(line, "-A ") {
			t.rules = append(t.rules, line)
		}
	}
	return t
}

// position is a rule and its place in its chain.
type position struct {
	rule string
	at   int // from 1
}

// each calls yield for every rule.
func (t table) each(yield func(position, Rule)) {
	at := map[string]int{}
	for _, line := range t.rules {
		rule, _ := parseRule(line)
		at[rule.Chain]++
		yield(position{line, at[rule.Chain]}, rule)
	}
}

// attempts is the number of tries of an edit while other programs change the same table.
const attempts = 3

// change makes the changes that plan returns for the current content of a table. fresh means that
// the table contains nothing that plan needs, so that change does not read it first. If the changes
// fail, perhaps because another program made the same ones meanwhile, change reads the table and
// tries again. iptables-restore applies all changes or none.
func (c commands) change(ctx context.Context, ns *netns.NS, name string, fresh bool,
	plan func(table) []string) error {
	var failed error
	var tried []string
	for range attempts {
		var lines []string
		var err error
		if !fresh || failed != nil {
			if lines, err = c.saved(ctx, ns, name); err != nil {
				return errors.Join(failed, err)
			}
		}
		commands := plan(parseTable(lines))
		if len(commands) == 0 {
			return nil
		}
		if failed != nil && slices.Equal(commands, tried) {
			return failed
		}
		failed = c.apply(ctx, ns, name, commands)
		if failed == nil || ctx.Err() != nil || errors.Is(failed, ErrNoTool) {
			return failed
		}
		tried = commands
	}
	return failed
}
