package report

import (
	"fmt"
	"io"
	"strings"
)

// Markdown writes the report in CommonMark with tables, for a comment or the summary of a job.
func Markdown(w io.Writer, r *Report) error {
	r = cleaned(r)
	var p printer
	p.line("# %s\n\n%s", markdown(r.outcome()), markdown(r.Summary.String()))
	if len(r.Subjects) > 1 {
		p.line("\n| subject | verdict | passed | failed | skipped | not applicable |")
		p.line("|---|---|--:|--:|--:|--:|")
		for _, s := range r.Subjects {
			n := s.Summary
			p.line("| %s | %s | %d | %d | %d | %d |", markdown(s.Name), markdown(string(n.Verdict)),
				n.Passed, n.Failed, n.Skipped, n.NotApplicable)
		}
	}
	p.items("Findings", r.findingLines())
	for i := range r.Subjects {
		for j := range r.Subjects[i].Findings {
			if f := &r.Subjects[i].Findings[j]; f.state() == "" {
				p.finding(f)
			}
		}
	}
	p.items("Notes", r.remarks())
	_, err := p.WriteTo(w)
	return err
}

// findingLines returns a line for each finding, with the reason if it does not count.
func (r *Report) findingLines() (list []string) {
	for _, s := range r.Subjects {
		for _, f := range s.Findings {
			text := fmt.Sprintf("%s: %s: %s: %s", f.ID, f.Row, f.Subject, f.Title)
			if state := f.state(); state != "" {
				text += " (" + state + ")"
			}
			list = append(list, text)
		}
	}
	return list
}

// items writes a list under a heading, unless it is empty.
func (p *printer) items(heading string, list []string) {
	if len(list) == 0 {
		return
	}
	p.line("\n## %s\n", heading)
	for _, text := range list {
		p.line("- %s", markdown(text))
	}
}

func (p *printer) finding(f *Finding) {
	p.line("\n### %s: %s\n", markdown(f.ID), markdown(f.Subject+": "+f.Title))
	for _, d := range f.details() {
		if !strings.Contains(strings.TrimSpace(d.text), "\n") {
			p.line("- **%s** %s", d.name, markdown(d.text))
			continue
		}
		text := printable(strings.TrimRight(d.text, "\n"))
		fence := "```"
		for strings.Contains(text, fence) {
			fence += "`"
		}
		p.line("- **%s**\n\n  %stext", d.name, fence)
		for part := range strings.SplitSeq(text, "\n") {
			p.line("  %s", part)
		}
		p.line("  %s\n", fence)
	}
}

// markdown returns a text as one line without the characters that Markdown interprets.
func markdown(s string) string {
	var b strings.Builder
	for _, c := range strings.Join(strings.Fields(printable(s)), " ") {
		if strings.ContainsRune("\\`*_[]<>#|~&$", c) {
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	return b.String()
}
