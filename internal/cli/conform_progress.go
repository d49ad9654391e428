package cli

import (
	"fmt"

	"github.com/tenon-cni/tenon/conformance/judge"
	"github.com/tenon-cni/tenon/conformance/report"
)

// judgeProgress prints the progress to standard error: on a terminal one line that changes, otherwise
// a line for each subject if there are several.
type judgeProgress struct {
	*app
	live    bool
	several bool
	pending bool // the line of the terminal is not empty
}

func (p *judgeProgress) progress(now judge.Progress) {
	if !p.live {
		return
	}
	text := fmt.Sprintf("%s: %d of %d scenarios", now.Subject, now.Done, now.Total)
	if now.Total == 0 {
		text = now.Subject + ": first calls"
	}
	if now.Of > 1 {
		text = fmt.Sprintf("[%d/%d] %s", now.Number, now.Of, text)
	}
	if now.Current != "" {
		text += ": " + now.Current
	}
	p.print(text)
	p.pending = true
}

// print replaces the line of the terminal. A longer line than the terminal would not be replaced.
func (p *judgeProgress) print(text string) {
	line := []rune(string(harmless([]byte(text))))
	if width := p.stderr.Width(); width > 0 && len(line) >= width {
		line = line[:width-1]
	}
	fmt.Fprintf(p.stderr.file, "%s%s", clearLine, string(line))
}

func (p *judgeProgress) judged(s *report.Subject) {
	if p.several {
		p.end()
		fmt.Fprintf(p.stderr, "%s: %s: %s\n", s.Name, s.Summary.Verdict, s.Summary)
	}
}

// end clears the line.
func (p *judgeProgress) end() {
	if p.pending {
		p.print("")
		p.pending = false
	}
}
