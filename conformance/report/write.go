package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// JSON writes the report in its own format, which [Read] reads.
func JSON(w io.Writer, r *Report) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// Read reads a report that [JSON] wrote.
func Read(in io.Reader) (*Report, error) {
	var r Report
	if err := json.NewDecoder(in).Decode(&r); err != nil {
		return nil, err
	}
	if r.Format != Format {
		return nil, fmt.Errorf("format %d of the report is not %d, which this program reads", r.Format, Format)
	}
	return &r, nil
}

// textLimit is the greatest length of a text of a subject in the text of a report, in bytes.
const textLimit = 4 << 10

// untrusted returns a text that a subject may have printed, without control characters and of limited
// length. It keeps line breaks.
func untrusted(s string) string {
	rest := ""
	if len(s) > textLimit {
		cut := textLimit
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		rest = fmt.Sprintf("… (%d more bytes)", len(s)-cut)
		s = s[:cut]
	}
	return printable(s) + rest
}

// printable replaces invalid UTF-8 and the characters that control a terminal or the direction of
// text. It keeps line breaks.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r == '\t':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r), r == 0xFFFE, r == 0xFFFF:
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(s, string(utf8.RuneError)))
}

// line returns a text as one line.
func line(s string) string { return strings.Join(strings.Fields(untrusted(s)), " ") }

// cleaned returns a copy of a report with texts that are safe to print.
func cleaned(r *Report) *Report {
	out := *r
	out.Kernel, out.User, out.Judge = line(r.Kernel), line(r.User), line(r.Judge)
	out.Problems, out.LeftOut = lineEach(r.Problems), lineEach(r.LeftOut)
	out.Unused = slices.Clone(r.Unused)
	for i := range out.Unused {
		w := &out.Unused[i]
		w.Subject, w.Scenario = line(w.Subject), line(w.Scenario)
	}
	out.Subjects = slices.Clone(r.Subjects)
	for i := range out.Subjects {
		s := &out.Subjects[i]
		s.Name, s.Path = line(s.Name), line(s.Path)
		s.Skipped = slices.Clone(s.Skipped)
		for j := range s.Skipped {
			s.Skipped[j].Reason = line(s.Skipped[j].Reason)
		}
		s.Roles, s.Versions, s.Missing = lineEach(s.Roles), lineEach(s.Versions), lineEach(s.Missing)
		s.Checks, s.Findings = slices.Clone(s.Checks), slices.Clone(s.Findings)
		for j := range s.Checks {
			c := &s.Checks[j]
			c.Reason, c.Scenario = line(c.Reason), line(c.Scenario)
		}
		for j := range s.Findings {
			f := &s.Findings[j]
			f.Subject, f.Scenario, f.Title = line(f.Subject), line(f.Scenario), line(f.Title)
			f.Expected, f.Actual, f.Hint = untrusted(f.Expected), untrusted(f.Actual), line(f.Hint)
			f.Replay = printable(f.Replay)
			if f.Waived != nil {
				w := *f.Waived
				w.Reason = line(w.Reason)
				f.Waived = &w
			}
		}
	}
	return &out
}

func lineEach(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = line(s)
	}
	return out
}

// printer collects formatted lines.
type printer struct{ bytes.Buffer }

func (p *printer) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// replayCommand runs the scenario of a finding again.
func (f *Finding) replayCommand() string { return "tenon conform replay " + f.ID }

// state states whether a finding counts: the verdict of the waiver or the profile.
func (f *Finding) state() string {
	switch {
	case f.Waived != nil:
		return "waived: " + f.Waived.Reason
	case !f.Counts:
		return "not counted by the profile"
	}
	return ""
}

// group returns the area of a row: "PL-DEL" for "PL-DEL-02".
func group(row string) string { return row[:max(0, strings.LastIndexByte(row, '-'))] }

// skips returns the reasons of skipped checks and errors with the rows that they concern, in the order
// of their first check.
func (s *Subject) skips() (list []skip) {
	index := map[string]int{}
	for _, c := range s.Checks {
		if c.Outcome != Skip && c.Outcome != Error {
			continue
		}
		key := string(c.Outcome) + c.Reason
		i, known := index[key]
		if !known {
			i = len(list)
			index[key] = i
			list = append(list, skip{reason: c.Reason, outcome: c.Outcome})
		}
		if !slices.Contains(list[i].rows, c.Row) {
			list[i].rows = append(list[i].rows, c.Row)
		}
	}
	for _, k := range list {
		slices.Sort(k.rows)
	}
	return list
}

// notes returns remarks about the whole run.
func (r *Report) notes() (list []string) {
	for _, k := range r.skipped() {
		text := "this host: " + k.Reason
		if len(k.Rows) == 0 {
			text += " (no row depends on it)"
		} else {
			text += " (a violation of these rows may remain unseen: " + strings.Join(areas(k.Rows), "; ") + ")"
		}
		list = append(list, text)
	}
	for _, text := range r.LeftOut {
		list = append(list, "left out: "+text)
	}
	for _, w := range r.Unused {
		list = append(list, r.unusedNote(w))
	}
	return append(list, r.Problems...)
}

// skipped returns what the host lacks, with the rows of all subjects.
func (r *Report) skipped() (list []Skipped) {
	for _, s := range r.Subjects {
		for _, k := range s.Skipped {
			i := slices.IndexFunc(list, func(l Skipped) bool { return l.Reason == k.Reason })
			if i < 0 {
				list = append(list, Skipped{Reason: k.Reason, Rows: slices.Clone(k.Rows)})
				continue
			}
			list[i].Rows = append(list[i].Rows, k.Rows...)
		}
	}
	for i := range list {
		slices.Sort(list[i].Rows)
		list[i].Rows = slices.Compact(list[i].Rows)
	}
	return list
}

// areas returns rows, which are sorted, as a text for each area: "PL-DEL-01, -02, -04".
func areas(rows []string) (list []string) {
	last := ""
	for _, row := range rows {
		if g := group(row); g != last || g == "" {
			last = g
			list = append(list, row)
		} else {
			list[len(list)-1] += ", " + row[len(g):]
		}
	}
	return list
}

type skip struct {
	reason  string
	outcome Outcome
	rows    []string
}
