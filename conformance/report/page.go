package report

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

//go:embed page.css
var pageStyle string

// HTML writes the report as a page that contains all it needs: it has no script, and its policy
// forbids a browser to load anything.
func HTML(w io.Writer, r *Report) error {
	r = cleaned(r)
	var p printer
	title := escape(r.outcome())
	p.line(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>%s</title>
<style>
%s</style>
</head>
<body>
<h1 class="%s">%s</h1>
<p>%s</p>
<p class="dim">%s</p>`, title, pageStyle, escape(string(r.Summary.Verdict)), title,
		escape(r.Summary.String()), escape(r.origin()))
	if len(r.Subjects) > 1 {
		p.subjectTable(r.Subjects)
	}
	p.list("Notes", r.notes())
	for i := range r.Subjects {
		p.subject(i, &r.Subjects[i], r.Profile)
	}
	p.line("</body>\n</html>")
	_, err := p.WriteTo(w)
	return err
}

// origin states how the report came about.
func (r *Report) origin() string {
	return fmt.Sprintf("Judged on %s in %.1f s by tenon %s with catalog %.12s, as %s on Linux %s.",
		r.Started.UTC().Format(time.DateTime+" UTC"), r.Seconds, r.Judge, r.Catalog,
		r.User, r.Kernel)
}

// subjectTable writes a table with a line for each subject.
func (p *printer) subjectTable(subjects []Subject) {
	p.line(`<div class="wide"><table class="names">
<tr><th>subject</th><th>verdict</th><th>passed</th><th>failed</th><th>skipped</th>
<th>not applicable</th></tr>`)
	for i, s := range subjects {
		n, verdict := s.Summary, escape(string(s.Summary.Verdict))
		p.line(`<tr><td><a href="#s%d">%s</a></td><td class="%s">%s</td>`,
			i, escape(s.Name), verdict, verdict)
		p.line("<td>%d</td><td>%d</td><td>%d</td><td>%d</td></tr>",
			n.Passed, n.Failed, n.Skipped, n.NotApplicable)
	}
	p.line("</table></div>")
}

// list writes a list under a heading, unless it is empty.
func (p *printer) list(heading string, list []string) {
	if len(list) == 0 {
		return
	}
	p.line("<h3>%s</h3>\n<ul>", heading)
	for _, text := range list {
		p.line("<li>%s</li>", escape(text))
	}
	p.line("</ul>")
}

// subject writes the section of a subject, which is the target of the link with its number.
func (p *printer) subject(number int, s *Subject, profile Profile) {
	verdict := escape(string(s.Summary.Verdict))
	p.line(`<h2 id="s%d">%s: <span class="%s">%s</span></h2>`,
		number, escape(s.Name), verdict, verdict)
	p.line(`<p>%s</p>`, escape(s.Summary.String()))
	var facts []string
	for _, d := range []detail{{"path", s.Path}, {"SHA-256", s.Digest},
		{"roles", strings.Join(s.Roles, ", ")}, {"versions", strings.Join(s.Versions, ", ")}} {
		if d.text != "" {
			facts = append(facts, d.name+" "+d.text)
		}
	}
	p.line(`<p class="dim">%s</p>`, escape(strings.Join(facts, "; ")))
	for i := range s.Findings {
		p.foldedFinding(&s.Findings[i])
	}
	p.list("Not judged", s.open(profile))
	p.matrix(s.Checks)
}

// foldedFinding writes a finding, unfolded if the profile counts it.
func (p *printer) foldedFinding(f *Finding) {
	open, class, state := " open", "fail", f.state()
	if state != "" {
		open, class, state = "", "dim", " ("+state+")"
	}
	p.line(`<details%s id="%s"><summary><span class="%s">%s %s</span> %s%s</summary>`,
		open, escape(f.ID), class, escape(f.Row), escape(string(f.Level)),
		escape(f.Title), escape(state))
	p.line("<dl>")
	for _, d := range f.details() {
		p.line("<dt>%s</dt><dd>%s</dd>", d.name, escape(d.text))
	}
	p.line("</dl>")
	if f.Replay != "" {
		p.line("<details><summary>Reproduce without tenon</summary><pre>\n%s</pre></details>",
			escape(f.Replay))
	}
	p.line("</details>")
}

// matrix writes a table of the checks: areas of the catalog against versions of the specification.
func (p *printer) matrix(checks []Check) {
	type cell struct{ area, version string }
	cells := map[cell]*Summary{}
	var areas, versions []string
	for _, c := range checks {
		at := cell{group(c.Row), c.Version}
		if cells[at] == nil {
			cells[at] = &Summary{}
			areas, versions = append(areas, at.area), append(versions, at.version)
		}
		cells[at].count(c, nil)
	}
	if len(checks) == 0 {
		return
	}
	slices.Sort(areas)
	slices.Sort(versions)
	areas, versions = slices.Compact(areas), slices.Compact(versions)
	p.line("<h3>Checks</h3>\n" + `<div class="wide"><table>` + "\n<tr><th>area</th>")
	for _, v := range versions {
		if v == "" {
			v = "all versions"
		}
		p.line("<th>%s</th>", escape(v))
	}
	p.line("</tr>")
	for _, area := range areas {
		p.line("<tr><td>%s</td>", escape(area))
		for _, v := range versions {
			p.cell(cells[cell{area, v}])
		}
		p.line("</tr>")
	}
	p.line("</table></div>")
}

// cell writes the worst outcome of the checks in a cell of the matrix, with their number.
func (p *printer) cell(n *Summary) {
	switch {
	case n == nil:
		p.line("<td></td>")
	case n.Failed+n.Uncounted > 0:
		p.line(`<td class="fail">%d failed</td>`, n.Failed+n.Uncounted)
	case n.Errors > 0:
		p.line(`<td class="incomplete">%d not finished</td>`, n.Errors)
	case n.Skipped > 0:
		p.line(`<td class="incomplete">%d skipped</td>`, n.Skipped)
	case n.Passed > 0:
		p.line(`<td class="pass">%d passed</td>`, n.Passed)
	default:
		p.line(`<td class="dim">n/a</td>`)
	}
}
