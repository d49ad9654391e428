package xtables

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/tenon-cni/tenon/internal/kernel/netns"
)

// ErrMissing says that a rule is not there.
var ErrMissing = errors.New("rule is missing")

// failedLine finds the number of the line in what iptables-restore prints.
var failedLine = regexp.MustCompile(`line (\d+) failed`)

// Check looks for rules, in the form of [Edit], in the words of any version of iptables, and changes nothing. The error
// names the first that is not there, and then wraps [ErrMissing].
func (t Table) Check(ctx context.Context, ns *netns.NS, rules []string) error {
	if len(rules) == 0 {
		return nil
	}
	var questions []string
	for _, rule := range rules {
		if !printable(rule) {
			return fmt.Errorf("rule %q: not printable ASCII", rule)
		}
		questions = append(questions, "-C"+deletion(rule)[len("-D"):])
	}
	err := t.Family.commands().apply(ctx, ns, t.Name, questions)
	var failed *failure
	if !errors.As(err, &failed) {
		return err
	}
	if match := failedLine.FindStringSubmatch(failed.text); match != nil {
		const first = 2 // after the name of the table
		if n, err := strconv.Atoi(match[1]); err == nil && n >= first && n < first+len(rules) {
			return fmt.Errorf("%s: %w: %s", t, ErrMissing, appended(rules[n-first]))
		}
	}
	return err
}
