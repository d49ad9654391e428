// Package screen draws the output of commands as pictures of a terminal, and finds the difference
// between two of them.
package screen

import (
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"regexp"
	"slices"
	"strings"
)

// Sizes of a picture: of the window in lines and columns, of a line and a column in pixels.
const (
	rows, columns = 24, 100
	height, width = 19, 8
	margin        = 14
	bar           = 30 // on top of the window
	seconds       = 3  // that a part is shown
)

const style = `<style>
  svg { --paper: #ffffff; --ink: #1d2733; --soft: #5b6b7c; --edge: #d4dce4; --bar: #f0f3f6;
    --good: #1a7f37; --bad: #c0262d; --note: #1f5fb8 }
  @media (prefers-color-scheme: dark) { svg { --paper: #10161d; --ink: #e6edf3; --soft: #9aa9b8;
    --edge: #2b3947; --bar: #18212b; --good: #56d364; --bad: #ff7b7b; --note: #7db8ff } }
  text { font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
    fill: var(--ink); white-space: pre }
  .window { fill: var(--paper); stroke: var(--edge) } .bar { fill: var(--bar) }
  .title, .soft { fill: var(--soft) } .prompt { fill: var(--note); font-weight: 700 }
  .good { fill: var(--good) } .bad { fill: var(--bad); font-weight: 700 } .note { fill: var(--note) }
`

// Draw returns an SVG picture of a terminal that shows a command and its output. Lines that are
// longer than the window are wrapped. If there are more lines than fit, the picture shows the parts
// of the output, which empty lines separate, one after another. It does not move for readers who
// have asked for less motion.
func Draw(command, output string) string {
	var lines, classes []string
	for line := range strings.SplitSeq("$ "+command+"\n"+strings.TrimRight(output, "\n"), "\n") {
		for _, part := range wrap(line) {
			lines, classes = append(lines, part), append(classes, class(line))
		}
	}
	shown := min(len(lines), rows)
	w, h := columns*width+2*margin, bar+shown*height+2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d"`+
		` role="img" aria-label="%s">`+"\n%s%s</style>\n", w, h, html.EscapeString("Output of "+command),
		style, scroll(lines))
	fmt.Fprintf(&b, `<rect class="window" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>`+"\n", w-1, h-1)
	fmt.Fprintf(&b, `<path class="bar" d="M1 %d V9 a8 8 0 0 1 8 -8 H%d a8 8 0 0 1 8 8 V%[1]d z"/>`+"\n", bar, w-9)
	fmt.Fprintf(&b, `<text class="title" x="%d" y="20" text-anchor="middle">%s</text>`+"\n",
		w/2, html.EscapeString(command))
	fmt.Fprintf(&b, `<svg x="%d" y="%d" width="%d" height="%d">`+"\n<g id=\"lines\">\n",
		margin, bar+margin/2, columns*width, shown*height+margin)
	for i, line := range lines {
		fmt.Fprintf(&b, `<text%s x="0" y="%d">%s</text>`+"\n", classes[i], (i+1)*height-4,
			html.EscapeString(line))
	}
	b.WriteString("</g>\n</svg>\n</svg>\n")
	return b.String()
}

// wrap breaks a line at blanks so that it fits into the window. The rest of a line is indented.
func wrap(line string) (list []string) {
	indent := "        "
	for runes := []rune(line); ; runes = []rune(indent + strings.TrimLeft(line, " ")) {
		if len(runes) <= columns {
			return append(list, string(runes))
		}
		end := columns
		for end > len(indent)+1 && runes[end] != ' ' {
			end--
		}
		if runes[end] != ' ' { // a word that is longer than the window
			end = columns
		}
		list, line = append(list, strings.TrimRight(string(runes[:end]), " ")), string(runes[end:])
	}
}

// class returns the attribute for the colour of a line.
func class(line string) string {
	for _, c := range []struct{ name, pattern string }{
		{"prompt", `^\$ `},
		{"bad", `STOPPED|^ *\d+ ✗`},
		{"good", `delivered|^ *ok \(|no differences`},
		{"note", `^\d+\. |^fix `},
		{"soft", `^Assumed`},
	} {
		if regexp.MustCompile(c.pattern).MatchString(line) {
			return fmt.Sprintf(` class="%s"`, c.name)
		}
	}
	return ""
}

// scroll returns the style that shows one part after another, or "" if all lines fit.
func scroll(lines []string) string {
	if len(lines) <= rows {
		return ""
	}
	var tops []int // the first line in the window, for each part
	for i, line := range append(lines, "") {
		if top := max(0, i-rows); line == "" && (len(tops) == 0 || top > tops[len(tops)-1]) {
			tops = append(tops, top)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "  #lines { animation: parts %ds step-end infinite }\n  @keyframes parts {",
		len(tops)*seconds)
	for i, top := range tops {
		fmt.Fprintf(&b, " %.2f%% { transform: translateY(%dpx) }", 100*float64(i)/float64(len(tops)),
			-top*height)
	}
	b.WriteString(" }\n  @media (prefers-reduced-motion: reduce) { #lines { animation: none } }\n")
	return b.String()
}

// Difference returns the first place at which the texts of two pictures differ, or "" if they show the
// same. It ignores how lines are wrapped and what differs from run to run: times, numbers of
// processes and connections, and names and addresses that are chosen at random.
func Difference(old, now string) (string, error) {
	a, err := words(old)
	if err != nil {
		return "", err
	}
	b, err := words(now)
	if err != nil || slices.Equal(a, b) {
		return "", err
	}
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	return fmt.Sprintf("%q instead of %q", excerpt(b, i), excerpt(a, i)), nil
}

// excerpt returns a few words before and after a place.
func excerpt(words []string, i int) string {
	return strings.Join(words[max(0, i-4):min(len(words), i+4)], " ")
}

// words returns the words of a picture without what differs from run to run.
func words(picture string) ([]string, error) {
	var b strings.Builder
	d := xml.NewDecoder(strings.NewReader(picture))
	for inside := false; ; {
		token, err := d.Token()
		switch {
		case errors.Is(err, io.EOF):
			text := strings.Join(strings.Fields(b.String()), " ")
			return strings.Fields(changing.ReplaceAllString(text, "…")), nil
		case err != nil:
			return nil, err
		}
		switch x := token.(type) {
		case xml.StartElement:
			inside = x.Name.Local == "text"
		case xml.EndElement:
			inside = false
		case xml.CharData:
			if inside {
				b.Write(append(x, ' '))
			}
		}
	}
}

// changing is what differs from run to run.
var changing = regexp.MustCompile(`\d+(\.\d+)? m?s\b|\b\d+m?s\b|([0-9a-f]{2}:){5}[0-9a-f]{2}|` +
	`fe80::[0-9a-f:]*|\bveth[0-9a-z]+|net:\[\d+\]|/proc/\d+/fd/\d+|tenon-demo-\d+|\d+ of \d+ entries`)
