package text

import (
	"fmt"
	"io"

	"github.com/tenon-cni/tenon/internal/ops/why"
)

// Why prints the answer to the question why packets stop.
func Why(w io.Writer, r *why.Report) error {
	verdict := map[why.Verdict]string{
		why.Delivered: "delivered, and the reply too", why.Left: "leaves this host",
		why.Limited: "small packets only", why.Stopped: "STOPPED", why.Unknown: "not known",
	}[r.Verdict]
	fmt.Fprintf(w, "%s   %s\n", r.Title, verdict)
	marks := map[string]string{"ok": "✓", "stopped": "✗", "unknown": "?"}
	for i, s := range r.Steps {
		name := s.Name
		if s.Reply {
			name = "reply " + name
		}
		fmt.Fprintf(w, "%2d %s %-14s %-8s %s\n", i+1, marks[s.Result], name, s.Where, s.Text)
	}
	for _, d := range r.Doubts {
		fmt.Fprintf(w, " ? %s\n", d)
	}
	for _, c := range r.Culprits {
		fmt.Fprintf(w, "\n%s\n", c.Text)
		if c.Fix != "" {
			fmt.Fprintf(w, "fix  %s\n", c.Fix)
		}
		if c.See != "" {
			fmt.Fprintf(w, "see  %s\n", c.See)
		}
	}
	return nil
}
