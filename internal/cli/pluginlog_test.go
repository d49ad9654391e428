package cli

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Plugins log alike as processes and within this process; other output is
// unchanged.
func TestPluginLog(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	level := new(slog.LevelVar)
	level.Set(slog.LevelWarn)
	p := &pluginLog{w: &b, least: level}
	for _, part := range []string{
		"2026/11/23 06:15:21 WARN nameserver is not an address: it is left out network=pods reason=\"a \\\"b\\\" c=d\" empty=\n",
		"2026/11/23 06:15:22 INFO hidden network=pods\n",
		"2026/11/23 06:15:22 ERROR no attributes\nplain ", "text key=value\n",
		"2026/11/23 plain, too\n",
		"incomplete",
	} {
		if n, err := p.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatalf("wrote %d, %v", n, err)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	const want = `warning: nameserver is not an address: it is left out (network: pods, reason: a "b" c=d, empty: )
error: no attributes
plain text key=value
2026/11/23 plain, too
incomplete`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
