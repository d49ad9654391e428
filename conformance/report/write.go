package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
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
	out.Catalog, out.Profile = line(r.Catalog), word(r.Profile)
	out.Summary.Verdict = word(r.Summary.Verdict)
	out.Problems, out.LeftOut = lineEach(r.Problems), lineEach(r.LeftOut)
	out.Unused = slices.Clone(r.Unused)
	for i := range out.Unused {
		out.Unused[i].clean()
	}
	out.Subjects = slices.Clone(r.Subjects)
	for i := range out.Subjects {
		out.Subjects[i].clean()
	}
	return &out
}

// clean makes texts safe to print. It changes copies of slices.
func (s *Subject) clean() {
	s.Summary.Verdict = word(s.Summary.Verdict)
	s.Name, s.Path, s.Digest = line(s.Name), line(s.Path), line(s.Digest)
	s.Skipped = slices.Clone(s.Skipped)
	for i := range s.Skipped {
		k := &s.Skipped[i]
		k.Reason, k.Rows = line(k.Reason), lineEach(k.Rows)
	}
	s.Roles, s.Versions, s.Missing = lineEach(s.Roles), lineEach(s.Versions), lineEach(s.Missing)
	s.Checks, s.Findings = slices.Clone(s.Checks), slices.Clone(s.Findings)
	for i := range s.Checks {
		c := &s.Checks[i]
		c.Row, c.Title, c.Reason = line(c.Row), line(c.Title), line(c.Reason)
		c.Finding, c.Level = line(c.Finding), word(c.Level)
		c.Scenario, c.Role, c.Version = line(c.Scenario), line(c.Role), line(c.Version)
	}
	for i := range s.Findings {
		s.Findings[i].clean()
	}
}

func (f *Finding) clean() {
	f.Level, f.Severity = word(f.Level), word(f.Severity)
	f.ID, f.Row, f.Rule, f.Section = line(f.ID), line(f.Row), line(f.Rule), line(f.Section)
	f.Subject, f.Scenario, f.Title = line(f.Subject), line(f.Scenario), line(f.Title)
	f.Versions, f.Related = lineEach(f.Versions), lineEach(f.Related)
	f.Expected, f.Actual = untrusted(f.Expected), untrusted(f.Actual)
	f.Hint, f.Disputed, f.Replay = line(f.Hint), line(f.Disputed), printable(f.Replay)
	if f.Waived != nil {
		w := *f.Waived
		w.clean()
		f.Waived = &w
	}
}

func (w *Waiver) clean() {
	w.Row, w.Subject = line(w.Row), line(w.Subject)
	w.Scenario, w.Reason = line(w.Scenario), line(w.Reason)
}

// word returns a name of the judge as one line: a file can have any.
func word[T ~string](s T) T { return T(line(string(s))) }

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

// detail is a part of a finding with its name.
type detail struct{ name, text string }

// details returns the parts of a finding that have a text, in the order of each format.
func (f *Finding) details() []detail {
	list := []detail{
		{"row", fmt.Sprintf("%s (%s, severity %s)", f.Row, f.Level, f.Severity)},
		{"rule", f.Rule},
		{"section", f.Section},
		{"scenario", f.Scenario + in(f.Versions)},
		{"expected", f.Expected},
		{"actual", f.Actual},
		{"related", strings.Join(f.Related, ", ")},
		{"hint", f.Hint},
		{"disputed", f.Disputed},
		{"replay", f.replayCommand()},
	}
	return slices.DeleteFunc(list, func(d detail) bool { return d.text == "" })
}

// in names versions: " in CNI 1.0.0, 1.1.0".
func in(versions []string) string {
	if text := strings.Join(versions, ", "); text != "" {
		return " in CNI " + text
	}
	return ""
}

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

// finding returns the finding of a failed check, or nil.
func (s *Subject) finding(c Check) *Finding {
	i := slices.IndexFunc(s.Findings, func(f Finding) bool { return f.ID == c.Finding })
	if c.Finding == "" || i < 0 {
		return nil
	}
	return &s.Findings[i]
}

// escape returns a text for XML and HTML, between tags or in a quoted attribute, without the
// characters that XML 1.0 forbids.
func escape(s string) string { return html.EscapeString(printable(s)) }

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

// open states why the verdict about a subject remains open, and which checks were not made.
func (s *Subject) open(p Profile) (list []string) {
	for _, text := range s.Missing {
		list = append(list, fmt.Sprintf("%s cannot satisfy %s: %s", s.Name, p, text))
	}
	for _, k := range s.skips() {
		word := "skipped"
		if k.outcome == Error {
			word = "not finished"
		}
		rows := strings.Join(areas(k.rows), "; ")
		list = append(list, fmt.Sprintf("%s: %s: %s: %s", s.Name, word, rows, k.reason))
	}
	return list
}

// remarks returns the notes about the run, and what remains open for each subject.
func (r *Report) remarks() []string {
	list := r.notes()
	for i := range r.Subjects {
		list = append(list, r.Subjects[i].open(r.Profile)...)
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
