package invoke

import (
	"bytes"
	"errors"
	"io"
)

const (
	maxStdout = 16 << 20 // bytes of standard output that are read
	tailSize  = 4 << 10  // bytes of standard error that are kept
)

var errFull = errors.New("output is too large")

// capped keeps up to max bytes of output, and calls over if there are more.
type capped struct {
	max  int
	over func()
	buf  bytes.Buffer
	full bool
}

func (w *capped) Write(b []byte) (int, error) {
	if w.buf.Len()+len(b) > w.max {
		w.full = true
		w.over()
		return 0, errFull
	}
	return w.buf.Write(b)
}

// tail passes output on and keeps its end. It ignores errors of next, because they are not failures
// of the plugin.
type tail struct {
	next io.Writer
	buf  []byte
}

func (w *tail) Write(b []byte) (int, error) {
	_, _ = w.next.Write(b)
	w.buf = append(w.buf, b[max(0, len(b)-tailSize):]...)
	w.buf = append(w.buf[:0], w.buf[max(0, len(w.buf)-tailSize):]...)
	return len(b), nil
}
