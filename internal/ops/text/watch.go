package text

import (
	"fmt"
	"io"
	"strings"

	"github.com/tenon-cni/tenon/internal/ops/plural"
	"github.com/tenon-cni/tenon/internal/ops/topology"
	"github.com/tenon-cni/tenon/internal/ops/watch"
)

// few is the number of objects that a line lists by name.
const few = 3

// Watch writes an event of watch on one line: the cause, the lost and the restored objects, or a
// problem with a hint.
func Watch(w io.Writer, e watch.Event) error {
	line := repaired(e)
	if e.Problem != "" {
		line = strings.TrimSpace(e.Attachment + " " + e.Problem)
		if e.Hint != "" {
			line += " (hint: " + e.Hint + ")"
		}
	}
	line = topology.Clean(strings.ReplaceAll(line, "\n", "; ")) // containers choose names
	_, err := fmt.Fprintf(w, "%s %s\n", e.Time.Format("15:04:05"), line)
	return err
}

// repaired describes a repair.
func repaired(e watch.Event) string {
	lost := plural.Count(e.Lost, "object")
	if len(e.Objects) == e.Lost && e.Lost <= few {
		lost = strings.Join(e.Objects, ", ")
	}
	of := plural.Count(e.Attachments, "attachment")
	if e.DryRun {
		return fmt.Sprintf("%s: %s; missing in %s, not restored (--dry-run)", e.Cause, lost, of)
	}
	done := "restored"
	if e.Restored < e.Lost {
		done = fmt.Sprintf("restored %d of %d", e.Restored, e.Lost)
	}
	line := fmt.Sprintf("%s: %s; %s for %s in %d ms", e.Cause, lost, done, of, e.Millis)
	if e.Suppressed > 0 {
		line += fmt.Sprintf("; %s had waited", plural.Count(e.Suppressed, "repair"))
	}
	return line
}
