package cli

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/ops/topology"
)

// output is standard output or standard error. It remembers the first error, so that a command
// fails if its output was lost. On a terminal it prints no control characters except
// line breaks, tabs and the colours of package text: configurations, containers and plugins choose
// many of the names in it.
type output struct {
	file     *os.File
	terminal bool
	err      error
	capture  io.Writer // takes the output instead of the file, unless nil
}

func newOutput(f *os.File) *output { return &output{file: f, terminal: isTerminal(f)} }

// Write implements [io.Writer].
func (o *output) Write(b []byte) (int, error) {
	if o.capture != nil {
		return o.capture.Write(b)
	}
	shown := b
	if o.terminal {
		shown = harmless(b)
	}
	n, err := o.file.Write(shown)
	if err != nil && o.err == nil {
		o.err = err
	}
	if err == nil {
		n = len(b)
	}
	return n, err
}

// kept matches the parts of the output that a terminal may interpret: line breaks, tabs and the
// graphic renditions that package text selects (ECMA-48 SGR).
var kept = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("[\n\t]|\x1b\\[(?:0|1|2|31|32|33)m")
})

// harmless replaces all other characters that a terminal would interpret by escapes.
func harmless(b []byte) []byte {
	if !bytes.ContainsFunc(b, func(r rune) bool { return r != '\n' && (r == utf8.RuneError || !unicode.IsPrint(r)) }) {
		return b
	}
	var shown []byte
	start := 0
	for _, part := range append(kept().FindAllIndex(b, -1), []int{len(b), len(b)}) {
		shown = append(shown, topology.Clean(string(b[start:part[0]]))...)
		shown = append(shown, b[part[0]:part[1]]...)
		start = part[1]
	}
	return shown
}

// Width returns the number of columns of the terminal, or 0 if the output is not a terminal.
// Package text adapts tables to it.
func (o *output) Width() int {
	size, err := unix.IoctlGetWinsize(int(o.file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// Coloured reports whether colours can be shown: on a terminal, unless NO_COLOR is set
// (no-color.org).
func (o *output) Coloured() bool { return coloured(o.file) }
