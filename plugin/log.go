package plugin

import (
	"context"
	"log/slog"

	"github.com/tenon-cni/tenon/internal/about"
)

// logHandler adds the attributes of the call to each line that a plugin logs. It builds them only
// when there is a line, because most calls log nothing.
type logHandler struct {
	base  slog.Handler
	call  *Call
	trace string // ID
}

func (h *logHandler) about() slog.Handler {
	c := h.call
	args := about.Args(c.Attachment(), "plugin", c.Delegate.plugin, "verb", string(c.Command),
		"trace_id", h.trace)
	return slog.New(h.base).With(args...).Handler()
}

// Enabled implements [slog.Handler].
func (h *logHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.base.Enabled(ctx, l)
}

// Handle implements [slog.Handler].
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.about().Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler { return h.about().WithAttrs(attrs) }

// WithGroup implements [slog.Handler].
func (h *logHandler) WithGroup(name string) slog.Handler { return h.about().WithGroup(name) }
