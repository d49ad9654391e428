package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// output is standard output. It remembers the first error, so that a command fails if its output
// was lost.
type output struct {
	file *os.File
	err  error
}

// Write implements [io.Writer].
func (o *output) Write(b []byte) (int, error) {
	n, err := o.file.Write(b)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
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
