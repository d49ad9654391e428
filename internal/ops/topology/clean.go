package topology

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean replaces characters that a terminal or a browser would not show as they are, such as
// control characters and marks that change the direction of text, by escapes. Containers choose
// names.
func Clean(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.IsPrint(r) ||
			r == utf8.RuneError
	}) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r <= 0xff:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		s = s[n:]
	}
	return b.String()
}

func cleaned(list []string) (out []string) {
	for _, s := range list {
		out = append(out, Clean(s))
	}
	return out
}

// Short returns a container ID for people: the beginning of a long hexadecimal one.
func Short(id string) string {
	const long, short = 64, 12
	if len(id) == long && strings.Trim(id, "0123456789abcdef") == "" {
		return id[:short]
	}
	return Clean(id)
}

// wide are the ranges of characters that take two columns (East Asian Width W and F, Unicode
// Standard Annex 11).
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{{Lo: 0x1100, Hi: 0x115f, Stride: 1}, {Lo: 0x2e80, Hi: 0xa4cf, Stride: 1},
		{Lo: 0xac00, Hi: 0xd7a3, Stride: 1}, {Lo: 0xf900, Hi: 0xfaff, Stride: 1}, {Lo: 0xfe30,
			Hi: 0xfe6f, Stride: 1},
		{Lo: 0xff00, Hi: 0xff60, Stride: 1}, {Lo: 0xffe0, Hi: 0xffe6, Stride: 1}},
	R32: []unicode.Range32{{Lo: 0x1f300, Hi: 0x1faff, Stride: 1}, {Lo: 0x20000, Hi: 0x3fffd,
		Stride: 1}},
}

func columnsOf(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}

// Columns returns the number of columns that a text takes in a font of fixed width.
func Columns(s string) (n int) {
	for _, r := range s {
		n += columnsOf(r)
	}
	return n
}

// Cut returns at most some columns of a text; an ellipsis replaces the rest.
func Cut(s string, columns int) string {
	if Columns(s) <= columns {
		return s
	}
	n := 1 // of the ellipsis
	for i, r := range s {
		if n += columnsOf(r); n > columns {
			return s[:i] + "…"
		}
	}
	return s
}
