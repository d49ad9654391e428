package text

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/ops/plan"
	"github.com/tenon-cni/tenon/internal/ops/plural"
)

// Plan prints a plan, with the list of drift if it is asked for.
func Plan(w io.Writer, p *plan.Plan, drift bool) error {
	width, place := 0, 0
	for _, s := range p.Steps {
		if s.Counted() {
			width, place = max(width, len(s.Kind)), max(place, len(s.Where))
		}
	}
	parts := map[string]int{}
	for _, s := range p.Steps {
		if s.Part != "" {
			parts[s.Where+s.Part]++
		}
	}
	for _, s := range p.Steps {
		if !s.Counted() {
			continue
		}
		fmt.Fprintf(w, " %s %-*s  %-*s  %s\n", planMark(s.Action), place, s.Where, width, s.Kind,
			planLine(s, parts[s.Where+s.Object]))
	}
	fmt.Fprintf(w, " = %s and %s unchanged\n",
		plural.Count(p.Untouched, "attachment"), plural.Count(p.Unchanged, "object"))
	for _, n := range p.Notes {
		fmt.Fprintf(w, " note: %s\n", n)
	}
	if drift {
		for _, d := range p.Drift {
			fmt.Fprintf(w, " drift: %s: %s %s\n", d.Attachment, d.Object, d.Text)
		}
	}
	return planSummary(w, p, drift)
}

func planMark(a host.Action) string {
	return map[host.Action]string{host.Added: "+", host.Changed: "~", host.Deleted: "-", plan.Ask: "?"}[a]
}

// planLine writes the object of a step, its states, owner and reason.
func planLine(s plan.Step, parts int) string {
	var b strings.Builder
	b.WriteString(s.Object)
	if s.Predicted {
		b.WriteString(" ?")
	}
	switch {
	case s.Action == host.Changed && (s.Before != "" || s.After != ""):
		fmt.Fprintf(&b, " %s -> %s", cmp.Or(s.Before, "none"), cmp.Or(s.After, "none"))
	case s.Action == host.Added && s.After != "":
		fmt.Fprintf(&b, " (%s)", s.After)
	}
	if parts > 0 {
		fmt.Fprintf(&b, " with %d chains, sets, elements and rules", parts)
	}
	if s.Owner != "" && s.Kind != plan.KindRecord {
		fmt.Fprintf(&b, "  of %s", s.Owner)
	}
	if s.Reason != "" {
		reason := s.Reason
		if s.Plugin != "" && s.Action != plan.Ask {
			reason = s.Plugin + ": " + reason
		}
		fmt.Fprintf(&b, "  [%s]", reason)
	}
	if s.Uncertain {
		b.WriteString("  uncertain")
	}
	return b.String()
}

func planSummary(w io.Writer, p *plan.Plan, listed bool) error {
	end := ""
	if n := len(p.Drift); n > 0 {
		end = " Drift outside Tenon: " + plural.Count(n, "object")
		if !listed {
			end += " (--drift)"
		}
		end += "."
	}
	s := p.Summary
	if f := p.Failure; f != nil {
		fmt.Fprintf(w, "Plan: tenon %s would fail with code %d: %s\n", p.Command, f.Code, f.Error)
		if f.Details != "" {
			fmt.Fprintf(w, "hint: %s\n", f.Details)
		}
		for _, h := range f.Hints {
			fmt.Fprintf(w, "hint: %s\n", h)
		}
		if n := rolledBack(p); n > 0 {
			fmt.Fprintf(w, "It would roll back %s.%s\n", plural.Count(n, "change"), end)
		}
		return nil
	}
	if !s.Changes() {
		_, err := fmt.Fprintf(w, "Plan: no changes.%s\n", end)
		return err
	}
	unknown := ""
	if s.Unknown > 0 {
		unknown = fmt.Sprintf(", %d with unknown effect", s.Unknown)
	}
	_, err := fmt.Fprintf(w, "Plan: %d to add, %d to change, %d to delete%s. Run `%s` to apply.%s\n",
		s.Add, s.Change, s.Delete, unknown, p.Apply, end)
	return err
}

// rolledBack returns the number of described changes of an operation that fails.
func rolledBack(p *plan.Plan) (n int) {
	for _, o := range p.Operations {
		if o.Text != "" {
			n++
		}
	}
	return n
}
