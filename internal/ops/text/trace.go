package text

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tenon-cni/tenon/internal/ops/table"
	"github.com/tenon-cni/tenon/internal/ops/topology"
	"github.com/tenon-cni/tenon/internal/ops/traceview"
)

// Trace writes the steps of an operation as a tree, with the total time of each step, its own time
// without the steps below it, and the part spent waiting.
func Trace(w io.Writer, root *traceview.Step) error {
	t := tree{width: treeWidth}
	if terminal, ok := w.(interface{ Width() int }); ok && terminal.Width() > 0 {
		t.width = max(narrowestTree, terminal.Width()-timeColumns)
		t.cut = true
	}
	t.step(root, " ", " ")
	widest := 0
	for _, l := range t.lines {
		if n := utf8.RuneCountInString(l.text); n <= t.width {
			widest = max(widest, n)
		}
	}
	style := styleOf(w)
	heading := fmt.Sprintf("%-*s %9s %9s %9s ms", widest, "", "total", "own", "waiting")
	fmt.Fprintln(w, style.dim(heading))
	for _, l := range t.lines {
		line := l.text
		if l.times != "" {
			line = fmt.Sprintf("%-*s %s", widest, l.text, l.times)
		}
		line = l.coloured(style, strings.TrimRight(line, " "))
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// coloured colours the line of a step: its mark, an error, or the elements of a rule set.
func (l treeLine) coloured(style style, line string) string {
	switch {
	case l.failed:
		return strings.Replace(line, "✗", style.mark("✗"), 1)
	case l.aside == asideError:
		return style.bad(line)
	case l.aside == asideElement:
		return style.dim(line)
	}
	return line
}

const (
	treeWidth     = 100 // columns of the tree if the output is not a terminal
	narrowestTree = 40
	timeColumns   = 33
	maxElements   = 8 // lines for the elements of one step
)

// tree collects the lines of a tree.
type tree struct {
	width int
	cut   bool // shorten lines that are longer than width
	lines []treeLine
}

type treeLine struct {
	text, times string
	failed      bool // has the mark of a failed step
	aside       aside
}

// aside is the kind of a line that is no step.
type aside int

const (
	asideElement aside = iota + 1
	asideError
)

// step adds the lines of a step. Its first line begins with first, the other ones with rest.
func (t *tree) step(s *traceview.Step, first, rest string) {
	text := first
	if s.Failed {
		text += "✗ "
	}
	text += topology.Clean(s.Name)
	if len(s.Details) > 0 {
		text += "   " + topology.Clean(strings.Join(s.Details, ", "))
	}
	if s.Unfinished {
		text += "   not finished"
	}
	t.add(treeLine{text: text, times: times(s), failed: s.Failed})
	inner := rest
	if len(s.Children) > 0 {
		inner += "│  "
	} else {
		inner += "   "
	}
	if s.Error != "" {
		for line := range strings.Lines(s.Error) {
			text := inner + "error: " + topology.Clean(strings.TrimSpace(line))
			t.lines = append(t.lines, treeLine{text: text, aside: asideError})
		}
	}
	for i, element := range s.Lines {
		if i == maxElements && len(s.Lines) > maxElements+1 {
			more := fmt.Sprintf("%s… %d more", inner, len(s.Lines)-i)
			t.add(treeLine{text: more, aside: asideElement})
			break
		}
		t.add(treeLine{text: inner + topology.Clean(element), aside: asideElement})
	}
	for i, c := range s.Children {
		if i < len(s.Children)-1 {
			t.step(c, rest+"├─ ", rest+"│  ")
		} else {
			t.step(c, rest+"└─ ", rest+"   ")
		}
	}
}

func (t *tree) add(l treeLine) {
	if runes := []rune(l.text); t.cut && len(runes) > t.width {
		l.text = string(runes[:t.width-1]) + "…"
	}
	t.lines = append(t.lines, l)
}

func times(s *traceview.Step) string {
	own, wait := "", ""
	if len(s.Children) > 0 {
		own = traceview.Milliseconds(s.Own)
	}
	if s.Wait > 0 {
		wait = traceview.Milliseconds(s.Wait)
	}
	return fmt.Sprintf("%9s %9s %9s", traceview.Milliseconds(s.Total), own, wait)
}

// Operations writes a line for each operation.
func Operations(w io.Writer, operations []*traceview.Span) error {
	rows := [][]string{{"START", "OPERATION", "TIME", "OUTCOME"}}
	for _, o := range operations {
		outcome := "ok"
		switch {
		case o.Error != "":
			outcome = topology.Clean(o.Error)
		case o.Unfinished:
			outcome = "not finished"
		}
		rows = append(rows, []string{
			time.Unix(0, o.Start).Format("2006-01-02 15:04:05.000"), topology.Clean(o.Name),
			traceview.Milliseconds(o.Duration()) + " ms", outcome,
		})
	}
	return table.Write(w, rows)
}
