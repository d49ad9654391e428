package text

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/host/probe"
	"github.com/tenon-cni/tenon/internal/ops/why"
)

// Why prints the answer to the question why packets stop. Unless verbose, it prints no commands,
// and after the first cause only further causes.
func Why(w io.Writer, r *why.Report, verbose bool) error {
	style := styleOf(w)
	fmt.Fprintf(w, "%s   %s\n", style.bold(r.Title), outcome(r))
	marks := map[string]string{"ok": "✓", "stopped": "✗", "unknown": "?"}
	for i, s := range r.Steps {
		if s.Assuming != "" && !verbose {
			continue
		}
		mark := marks[s.Result]
		if s.Assuming != "" {
			mark = "-"
		}
		name := s.Name
		if s.Direction == "reply" {
			name = "reply " + name
		}
		fmt.Fprintf(w, "%2d %s %-16s %-8s %s\n", i+1, style.mark(mark), name, s.Where, s.Text)
		if verbose && s.Evidence != "" {
			fmt.Fprintf(w, "%32s%s\n", "", style.dim("$ "+s.Evidence))
		}
	}
	for _, d := range r.Doubts {
		fmt.Fprintf(w, " %s %s\n", style.mark("?"), d)
	}
	for i, c := range r.Culprits {
		before := "\n"
		if i > 0 {
			before = "\nBehind it: "
		}
		fmt.Fprintf(w, "%s%s\n", before, style.bold(c.Text))
		for line := range strings.Lines(c.Fix) {
			fmt.Fprintf(w, "fix     %s\n", strings.TrimSpace(line))
		}
		if c.Advice != "" {
			fmt.Fprintf(w, "advice  %s\n", c.Advice)
		}
		if c.See != "" {
			fmt.Fprintf(w, "see     %s\n", c.See)
		}
	}
	if r.Probe != nil {
		probed(w, r.Probe, verbose)
	}
	_, err := fmt.Fprintf(w, "\nAssumed: %s.\n", strings.Join(r.Assumptions, "; "))
	return err
}

// probed prints what a probe found. Unless verbose, it prints no decisions for the packet.
func probed(w io.Writer, p *why.Probe, verbose bool) {
	result := fmt.Sprintf("%s: %s", p.Outcome, p.Error)
	switch p.Outcome {
	case probe.Silent:
		result = fmt.Sprintf("no answer within %s", probe.Patience)
	case probe.Answered:
		result = fmt.Sprintf("answered after %.1f ms", p.Seconds*1000)
	}
	style := styleOf(w)
	fmt.Fprintf(w, "\nprobe   %s; %s\n", style.bold(result), map[why.Agreement]string{
		why.Confirms: "this confirms the evaluation",
		why.Differs:  style.bad("this DIFFERS from the evaluation: " + string(p.Evaluated)),
		why.Decides:  "this decides what the evaluation did not know",
		why.Open:     "this proves nothing",
	}[p.Agreement])
	if len(p.Way) > 0 {
		fmt.Fprintf(w, "        seen in %s\n", strings.Join(p.Way, ", "))
	}
	lines := p.Dropped
	if verbose {
		lines = slices.Concat(p.Passed, p.Dropped)
	}
	for _, line := range slices.Concat(lines, p.Rose) {
		fmt.Fprintf(w, "        %s\n", line)
	}
	if p.Lost {
		fmt.Fprintln(w, "        some decisions are missing: the kernel reported more than could be read")
	}
	fmt.Fprintf(w, "        The probe does not see: %s.\n", strings.Join(p.Blind, "; "))
}

// outcome describes the verdict.
func outcome(r *why.Report) string {
	if r.Probe != nil {
		switch r.Probe.Agreement {
		case why.Differs:
			return "not known: the probe and the evaluation differ"
		case why.Decides:
			return map[why.Verdict]string{why.Delivered: "delivered: the probe was answered",
				why.Stopped: "STOPPED: the probe failed"}[r.Verdict]
		}
	}
	switch r.Verdict {
	case why.Delivered:
		return "delivered, and the reply too"
	case why.Left:
		return "leaves this host"
	case why.Limited:
		return "small packets only"
	case why.Stopped:
		at := slices.IndexFunc(r.Steps, func(s why.Step) bool { return s.Result == "stopped" })
		return fmt.Sprintf("STOPPED at step %d", at+1)
	}
	if n := len(r.Doubts); n > 0 {
		return fmt.Sprintf("not known: nothing stops it, except perhaps the objects marked ? (%d)", n)
	}
	return "not known"
}
