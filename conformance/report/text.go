package report

import (
	"fmt"
	"io"
	"strings"
)

// TextOptions change how [Text] writes.
type TextOptions struct {
	Color bool // use the colors of a terminal (ECMA-48 SGR)
}

// Text writes the report for people. The first line has the verdict and all counts, and the last lines
// are the findings.
func Text(w io.Writer, r *Report, o TextOptions) error {
	r = cleaned(r)
	t := textWriter{color: o.Color}
	t.line("%s", t.paint(colorOf(r.Summary.Verdict), r.Headline()))
	if len(r.Subjects) > 1 {
		t.overview(r.Subjects)
	}
	if notes := r.notes(); len(notes) > 0 {
		t.line("")
		for _, note := range notes {
			t.line("%s", wrap(note, "  "))
		}
	}
	t.skipped(r)
	for i := range r.Subjects {
		for j := range r.Subjects[i].Findings {
			if f := &r.Subjects[i].Findings[j]; f.state() == "" {
				t.finding(f)
			}
		}
	}
	t.others(r)
	t.closing(r)
	_, err := t.WriteTo(w)
	return err
}

// TextFinding writes one finding for people.
func TextFinding(w io.Writer, f *Finding, o TextOptions) error {
	r := cleaned(&Report{Subjects: []Subject{{Findings: []Finding{*f}}}})
	t := textWriter{color: o.Color}
	t.finding(&r.Subjects[0].Findings[0])
	_, err := t.WriteTo(w)
	return err
}

type textWriter struct {
	printer
	color bool
}

func (t *textWriter) paint(code, text string) string {
	if !t.color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// colorOf returns the color of a verdict: green, red or yellow.
func colorOf(v Verdict) string {
	switch v {
	case Passes:
		return "32"
	case Fails:
		return "31"
	}
	return "33"
}

// overview writes a line for each subject.
func (t *textWriter) overview(subjects []Subject) {
	width := 0
	for _, s := range subjects {
		width = max(width, len([]rune(s.Name)))
	}
	t.line("")
	for _, s := range subjects {
		t.line("  %-*s  %s  %s", width, s.Name,
			t.paint(colorOf(s.Summary.Verdict), fmt.Sprintf("%-10s", s.Summary.Verdict)), s.Summary)
	}
}

// skipped writes why checks were not made.
func (t *textWriter) skipped(r *Report) {
	for _, s := range r.Subjects {
		if len(s.Missing) > 0 || len(s.skips()) > 0 {
			t.line("")
		}
		for _, text := range s.open(r.Profile) {
			t.line("%s", wrap(text, "  "))
		}
	}
}

func (t *textWriter) finding(f *Finding) {
	t.line("\n%s  %s", t.paint("1", f.ID), t.paint(severityColor(f), f.Subject+": "+f.Title))
	for _, d := range f.details() {
		t.line("  %-9s %s", d.name, wrap(d.text, strings.Repeat(" ", 12)))
	}
}

func severityColor(f *Finding) string {
	if f.Severity == Critical || f.Severity == High {
		return "31"
	}
	return "33"
}

// others writes a line for each finding that does not decide the verdict.
func (t *textWriter) others(r *Report) {
	separate := "\n"
	for _, s := range r.Subjects {
		for _, f := range s.Findings {
			if state := f.state(); state != "" {
				t.line("%s%s  %s: %s: %s (%s)", separate, f.ID, f.Row, f.Subject, f.Title, state)
				separate = ""
			}
		}
	}
}

// closing repeats the counted findings, one on each line, if there are several.
func (t *textWriter) closing(r *Report) {
	var lines []string
	for _, s := range r.Subjects {
		for _, f := range s.Findings {
			if f.state() == "" {
				lines = append(lines, fmt.Sprintf("  %-10s %s: %s\n             %s", f.Row, f.Subject, f.Title, f.replayCommand()))
			}
		}
	}
	if len(lines) > 1 {
		t.line("\n%s\n%s", t.paint("1", plural(len(lines), "finding")+":"), strings.Join(lines, "\n"))
	}
}

// wrap breaks the lines of a text at 80 columns; the lines after the first begin with indent. A word
// that is longer has a line of its own.
func wrap(text, indent string) string {
	var out []string
	for source := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		current := ""
		for word := range strings.FieldsSeq(source) {
			if current != "" && len(indent)+len(current)+1+len(word) > 80 {
				out = append(out, current)
				current = ""
			}
			current = strings.TrimPrefix(current+" "+word, " ")
		}
		out = append(out, current)
	}
	return strings.Join(out, "\n"+indent)
}
