package text

import "io"

// style colours words on a terminal. Its value reports whether colours are used.
type style bool

// styleOf returns the style for w: colours only if w has a method Coloured that returns true.
func styleOf(w io.Writer) style {
	terminal, ok := w.(interface{ Coloured() bool })
	return style(ok && terminal.Coloured())
}

func (s style) good(text string) string { return s.sgr("32", text) } // green
func (s style) bad(text string) string  { return s.sgr("31", text) } // red
func (s style) odd(text string) string  { return s.sgr("33", text) } // yellow
func (s style) bold(text string) string { return s.sgr("1", text) }
func (s style) dim(text string) string  { return s.sgr("2", text) }

// sgr selects a graphic rendition (ECMA-48 SGR) for a text.
func (s style) sgr(code, text string) string {
	if !s || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// mark colours the marks of results: ✓ passed, ✗ failed, ! warning, and others dimmed.
func (s style) mark(mark string) string {
	switch mark {
	case "✓":
		return s.good(mark)
	case "✗":
		return s.bad(mark)
	case "!", "?":
		return s.odd(mark)
	}
	return s.dim(mark)
}
