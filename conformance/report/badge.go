package report

import (
	"fmt"
	"io"
	"unicode/utf8"
)

// Badge writes the verdict as a small SVG picture: green for pass, red for fail, and gray if it
// remains open. Its title, which screen readers speak, has the counts.
func Badge(w io.Writer, r *Report) error {
	fill := map[Verdict]string{Passes: "#1a7f37", Fails: "#cf222e"}[r.Summary.Verdict]
	if fill == "" {
		fill = "#57606a"
	}
	text := fmt.Sprintf("CNI %s: %s", r.Profile, r.short())
	const column, margin, height = 7, 8, 20 // of a letter, on each side, of the badge, in pixels
	width := utf8.RuneCountInString(text)*column + 2*margin
	title := escape(text + ": " + r.Summary.String())
	text = escape(text)
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d"
 role="img" aria-label="%[3]s">
<title>%[3]s</title>
<rect width="%[1]d" height="%[2]d" rx="3" fill="%[4]s"/>
<text x="%[5]d" y="14" textLength="%[6]d" font-family="Verdana, DejaVu Sans, sans-serif"
 font-size="11" fill="#fff">%[7]s</text>
</svg>
`, width, height, title, fill, margin, width-2*margin, text)
	return err
}

// short returns the verdict in a few words.
func (r *Report) short() string {
	passes, waived := 0, 0
	for _, s := range r.Subjects {
		if s.Summary.Verdict == Passes {
			passes++
		}
		for _, f := range s.Findings {
			if f.Waived != nil {
				waived++
			}
		}
	}
	switch {
	case len(r.Subjects) == 0:
		return string(Incomplete)
	case len(r.Subjects) > 1 && passes < len(r.Subjects):
		return fmt.Sprintf("%d of %d pass", passes, len(r.Subjects))
	case waived > 0 && r.Summary.Verdict == Passes:
		return "pass with " + plural(waived, "waiver")
	}
	return string(r.Summary.Verdict)
}
