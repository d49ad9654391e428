package traceview

import (
	"bufio"
	"crypto/sha256"
	_ "embed" // for the style and the script
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"time"
)

var (
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	pageScript string
)

// HTML writes operations as a page with a waterfall. The page loads nothing, and without scripts it
// is a table. All texts are escaped, because containers and plugins choose some of them.
func HTML(w io.Writer, operations []*Span) error {
	b := bufio.NewWriter(w)
	p := page{b}
	title := "Trace"
	if len(operations) > 0 {
		title = operations[0].Name
	}
	// The policy allows no other script, even if an escape were missing, and no request.
	sum := sha256.Sum256([]byte(pageScript))
	p.printf(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline';
  script-src 'sha256-%s'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
`, base64.StdEncoding.EncodeToString(sum[:]))
	p.printf("<title>%s</title>\n<style>\n%s</style>\n</head>\n<body>\n", text(title), pageStyle)
	for _, o := range operations {
		p.operation(o)
	}
	p.printf("<script>%s</script>\n</body>\n</html>\n", pageScript)
	return b.Flush()
}

// text escapes a text for an element or a quoted attribute. Package html would do the same, but add
// an initialiser to the start of every plugin.
func text(s string) string {
	return strings.NewReplacer(
		"&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;",
	).Replace(s)
}

// page writes HTML; its writer remembers the first error.
type page struct{ *bufio.Writer }

func (p page) printf(format string, args ...any) { fmt.Fprintf(p, format, args...) }

// tools are the buttons of an operation, and the heading of its table up to the axis.
const tools = `<div class="tools"><button data-do="all">All steps</button>` +
	`<button data-do="plugins">Plugins only</button>` +
	`<button data-do="reset">Whole operation</button></div>
<table>
<thead><tr><th scope="col">step</th><th scope="col" class="n">total</th>` +
	`<th scope="col" class="n">own</th><th scope="col" class="n">waiting</th>` +
	`<th scope="col" class="times"><div class="axis">`

// key explains the colours of the bars.
const key = `<ul class="key"><li class="k-plugin">plugin</li><li class="k-change">change</li>` +
	`<li class="k-wait">wait</li><li class="k-undo">undo</li>` +
	`<li class="k-process">process start and end</li></ul>
`

// axisMarks is the number of times on the axis.
const axisMarks = 5

func (p page) operation(o *Span) {
	root := Steps(o)
	p.printf("<section data-total=\"%s\">\n<h1%s>%s</h1>\n", number(root.Total),
		class("bad", o.Error != ""), text(o.Name))
	waited := ""
	if root.Wait > 0 {
		waited = fmt.Sprintf(", of which %s ms waiting", Milliseconds(root.Wait))
	}
	p.printf("<p>%s, %s ms%s</p>\n",
		time.Unix(0, o.Start).UTC().Format("2006-01-02 15:04:05.000 MST"),
		Milliseconds(root.Total), waited)
	p.printf("%s", tools)
	for i := range axisMarks {
		p.printf("<span style=\"left:%d%%\">%s</span>", 100*i/(axisMarks-1),
			Milliseconds(root.Total*time.Duration(i)/(axisMarks-1)))
	}
	p.printf("ms</div></th></tr></thead>\n<tbody>\n")
	p.step(root, root, 0)
	p.printf("</tbody>\n</table>\n")
	p.printf("%s</section>\n", key)
}

// step writes the rows of a step and of the steps below it.
func (p page) step(s, root *Step, level int) {
	classes := string(s.Kind)
	if s.Failed {
		classes += " failed"
	}
	p.printf("<tr class=\"%s\" data-level=\"%d\" data-start=\"%s\" data-total=\"%s\""+
		" style=\"--level:%[2]d\"><td>", text(classes), level, number(s.Start), number(s.Total))
	if len(s.Children) > 0 {
		p.printf(`<button class="t" aria-expanded="true" aria-label="steps of %s"></button>`,
			text(s.Name))
	}
	p.printf("<b>%s</b>", text(s.Name))
	details := s.Details
	if s.Unfinished {
		details = append(details[:len(details):len(details)], "not finished")
	}
	if len(details) > 0 {
		p.printf(" <span class=\"d\">%s</span>", text(strings.Join(details, ", ")))
	}
	for _, line := range s.Lines {
		p.printf("<div class=\"l\">%s</div>", text(line))
	}
	if s.Error != "" {
		p.printf("<div class=\"e\">%s</div>", text(s.Error))
	}
	own, wait := "", ""
	if len(s.Children) > 0 {
		own = Milliseconds(s.Own)
	}
	if s.Wait > 0 {
		wait = Milliseconds(s.Wait)
	}
	p.printf("</td><td class=\"n\">%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td>",
		Milliseconds(s.Total), own, wait)
	whole := max(float64(root.Total), 1)
	p.printf("<td class=\"lane\"><i style=\"left:%.2f%%;width:%.2f%%\"></i></td></tr>\n",
		100*float64(s.Start)/whole, 100*float64(s.Total)/whole)
	for _, c := range s.Children {
		p.step(c, root, level+1)
	}
}

// number returns a duration in milliseconds for the script.
func number(d time.Duration) string {
	return fmt.Sprintf("%.3f", float64(d)/float64(time.Millisecond))
}

func class(name string, set bool) string {
	if !set {
		return ""
	}
	return fmt.Sprintf(" class=%q", name)
}
