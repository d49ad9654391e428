package plugin

import (
	"context"
	"log/slog"
)

// logHandler adds to each line of a plugin what the call is about. Most calls log nothing, so nothing is put together
// before there is a line.
type logHandler struct {
	base  slog.Handler
	call  *AnyCall
	trace string // ID
}

func (h *logHandler) about() slog.Handler {
	c := h.call
	args := []any{"plugin", c.Delegate.plugin, "verb", c.Command, "network", c.Name}
	if c.ContainerID != "" {
		args = append(args, "container", c.ContainerID, "ifname", c.IfName, "attachment", c.Attachment().Owner())
	}
	if h.trace != "" {
		args = append(args, "trace_id", h.trace)
	}
	return slog.New(h.base).With(args...).Handler()
}

// Enabled implements [slog.Handler].
func (h *logHandler) Enabled(ctx context.Context, l slog.Level) bool { return h.base.Enabled(ctx, l) }

// Handle implements [slog.Handler].
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.about().Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler { return h.about().WithAttrs(attrs) }

// WithGroup implements [slog.Handler].
func (h *logHandler) WithGroup(name string) slog.Handler { return h.about().WithGroup(name) }
