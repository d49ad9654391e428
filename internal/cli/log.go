package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// logHandler writes the log records of the library and of plugins in this process in the style of
// the command's own warnings: LEVEL: MESSAGE (KEY: VALUE, ...). It implements [slog.Handler].
type logHandler struct {
	w     io.Writer
	least slog.Leveler
	group string // prefix of keys
	attrs []string
}

// Enabled implements [slog.Handler].
func (h logHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.least.Level() }

// Handle implements [slog.Handler].
func (h logHandler) Handle(_ context.Context, r slog.Record) error {
	attrs := slices.Clone(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, h.text(a))
		return true
	})
	text := r.Message
	if len(attrs) > 0 {
		text += " (" + strings.Join(attrs, ", ") + ")"
	}
	return writeLine(h.w, levelName(r.Level), text)
}

// WithAttrs implements [slog.Handler].
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.attrs = slices.Clone(h.attrs)
	for _, a := range attrs {
		h.attrs = append(h.attrs, h.text(a))
	}
	return h
}

// WithGroup implements [slog.Handler].
func (h logHandler) WithGroup(name string) slog.Handler {
	if name != "" {
		h.group += name + "."
	}
	return h
}

func (h logHandler) text(a slog.Attr) string {
	value := a.Value.Resolve().Any()
	if d, ok := value.(time.Duration); ok {
		value = rounded(d)
	}
	return fmt.Sprintf("%s%s: %v", h.group, a.Key, value)
}

// rounded returns a duration with the precision that people need.
func rounded(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return d.Round(time.Microsecond)
	}
	return d.Round(10 * time.Microsecond)
}

func levelName(l slog.Level) string {
	switch {
	case l >= slog.LevelError:
		return "error"
	case l >= slog.LevelWarn:
		return "warning"
	case l >= slog.LevelInfo:
		return "info"
	}
	return "debug"
}

// writeLine writes a message on one line, after its kind.
func writeLine(w io.Writer, kind, text string) error {
	_, err := fmt.Fprintf(w, "%s: %s\n", kind, strings.ReplaceAll(text, "\n", "; "))
	return err
}
