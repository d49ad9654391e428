package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
)

// logHandler writes what the library and plugins in this process log as the command writes its own warnings: LEVEL: what,
// and in parentheses the values that belong to it. It implements [slog.Handler].
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
	return fmt.Sprintf("%s%s: %v", h.group, a.Key, a.Value.Resolve())
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

// writeLine writes a message of a kind as one line.
func writeLine(w io.Writer, kind, text string) error {
	_, err := fmt.Fprintf(w, "%s: %s\n", kind, strings.ReplaceAll(text, "\n", "; "))
	return err
}
