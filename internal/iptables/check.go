package iptables

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tenon-cni/tenon/internal/netns"
)

// ErrMissing reports that a rule does not exist.
var ErrMissing = errors.New("rule is missing")

// Check looks for rules, in the form of [Edit], and changes nothing. Rules that another version of
// iptables wrote in other words count as well. The error names the first rule that does not exist,
// and then wraps [ErrMissing].
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
	err := t.commands().apply(ctx, ns, t.Name, questions)
	var failed *failure
	if !errors.As(err, &failed) {
		return err
	}
	const first = 2 // after the name of the table
	switch n := lineNumber(failed.text); {
	case n == 0:
		return err
	case n-first < len(rules):
		return fmt.Errorf("%s: %w: %s", t, ErrMissing, appended(rules[n-first]))
	}
	// For example because the chain does not exist.
	return fmt.Errorf("%s: %w: %s", t, ErrMissing, failed.text)
}

// lineNumber returns the number of the line that iptables-restore complains about, 0 if it names
// none.
func lineNumber(text string) (n int) {
	_, after, _ := strings.Cut(text, "line")
	if _, err := fmt.Sscanf(strings.TrimLeft(after, ": "), "%d", &n); err != nil || n < 2 {
		return 0
	}
	return n
}
