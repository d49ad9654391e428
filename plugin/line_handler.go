package plugin

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync"
	"time"
)

// lineHandler writes log records in the form of [slog.Default] in a plugin process: date, time,
// level, message and attributes. It writes a whole line at once.
type lineHandler struct {
	lines *lines
	attrs slog.Handler // writes to lines.buf
}

// lines is the output of a lineHandler and of the handlers that it returns.
type lines struct {
	sync.Mutex
	to  io.Writer
	buf bytes.Buffer
}

func newLineHandler(w io.Writer) lineHandler {
	l := &lines{to: w}
	return lineHandler{l, slog.NewTextHandler(&l.buf, nil)}
}

// Enabled implements [slog.Handler].
func (h lineHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.attrs.Enabled(ctx, l)
}

// Handle implements [slog.Handler].
func (h lineHandler) Handle(ctx context.Context, r slog.Record) error {
	// A record without time and message begins with a known text; its attributes follow.
	const beginning = `level=INFO msg=""`
	bare := slog.NewRecord(time.Time{}, slog.LevelInfo, "", 0)
	r.Attrs(func(a slog.Attr) bool {
		bare.AddAttrs(a)
		return true
	})
	h.lines.Lock()
	defer h.lines.Unlock()
	h.lines.buf.Reset()
	if err := h.attrs.Handle(ctx, bare); err != nil {
		return err
	}
	line := r.Time.AppendFormat(nil, "2006/01/02 15:04:05 ")
	line = append(line, r.Level.String()+" "+r.Message...)
	line = append(line, bytes.TrimPrefix(h.lines.buf.Bytes(), []byte(beginning))...)
	_, err := h.lines.to.Write(line)
	return err
}

// WithAttrs implements [slog.Handler].
func (h lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lineHandler{h.lines, h.attrs.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (h lineHandler) WithGroup(name string) slog.Handler {
	return lineHandler{h.lines, h.attrs.WithGroup(name)}
}
