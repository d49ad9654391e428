package text_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/journal"
	"github.com/tenon-cni/tenon/internal/ops/logs"
	"github.com/tenon-cni/tenon/internal/ops/text"
)

// TestLogs writes a line for each operation. Control characters that a changed journal contains do
// not reach the terminal.
func TestLogs(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 14, 30, 0, 0, time.UTC)
	web := logs.Entry{Time: now.Add(-time.Minute), Verb: cni.Add, Network: "pods", Container: "web",
		IfName: "eth0", Outcome: logs.OK, Milliseconds: 9.44, Runtime: "tenon",
		Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("fd00::2")},
		Plugins:   []logs.Call{{Type: "bridge", Milliseconds: 6.1}, {Type: "portmap"}}}
	failed := web
	failed.Time, failed.Outcome, failed.Code, failed.Error = now.AddDate(0, 0, -1), logs.Failed, 11, "pool is full"
	failed.Plugins, failed.Milliseconds = []logs.Call{{Type: "bridge", Milliseconds: 1, Code: 11}}, 12_345
	cleanup := logs.Entry{Time: now, Verb: cni.Del, Kind: journal.Cleanup, Network: "pods",
		Container: "db", IfName: "eth0", Outcome: logs.OK}
	hostile := logs.Entry{Time: now, Verb: "\x1b[2J", Network: "pods\n", Outcome: logs.Failed, Code: 7,
		Error: "\u202eerror", Runtime: "\x1b]0;title\a"}
	want := `14:29:00  ✓ ADD     pods/web/eth0                    9.4 ms  10.1.0.2,fd00::2  (bridge 6.1, portmap)  by tenon
2026-11-22 14:30:00  ✗ ADD     pods/web/eth0                    12.3 s  code 11: pool is full  (bridge 1.0 failed)  by tenon
14:30:00  ✓ DEL     pods/db/eth0                     0.0 ms  cleanup
14:30:00  ✗ \x1b[2J  pods\x0a                         0.0 ms  code 7: \u202eerror  by \x1b]0;title\x07
`
	var b strings.Builder
	err := text.Logs(&b, []logs.Entry{web, failed, cleanup, hostile}, now, now)
	if diff := cmp.Diff(want, b.String()); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	b.Reset()
	if err := text.Logs(&b, nil, now.Add(-time.Hour), now); err != nil ||
		b.String() != "no operation; the journal begins 13:30:00\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
	b.Reset()
	if err := text.Logs(&b, nil, time.Time{}, now); err != nil || b.String() != "" {
		t.Errorf("an empty journal: %q, %v", b.String(), err)
	}
}
