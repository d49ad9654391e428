package cli

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Log records of the library look like the command's own messages.
func TestLogHandler(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	level := new(slog.LevelVar)
	level.Set(slog.LevelWarn)
	log := slog.New(logHandler{w: &b, least: level})
	log.Info("not wanted")
	log.Warn("plain")
	with := log.With("network", "red").WithGroup("plugin").With("type", "x")
	with.Warn("several", "error", errors.Join(errors.New("one"), errors.New("two")))
	log.Error("bad")
	level.Set(slog.LevelDebug)
	with.Debug("wanted")
	log.Info("too", "n", 1, "duration", 12345678*time.Nanosecond)
	const want = `warning: plain
warning: several (network: red, plugin.type: x, plugin.error: one; two)
error: bad
debug: wanted (network: red, plugin.type: x)
info: too (n: 1, duration: 12.35ms)
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
