package cli

import "os"

// output is standard output. It remembers the first error, so that a command fails if its output was lost.
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
