package text_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/internal/ops/watch"
)

// TestWatch checks that each event is one line without control characters, which names of processes
// and links can contain.
func TestWatch(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, row := range []struct {
		event watch.Event
		want  string
	}{
		{watch.Event{Cause: "nft (PID 7) flushed table inet tenon", Lost: 638, Restored: 638,
			Objects: []string{"masq4 10.1.0.2"}, Attachments: 212, Millis: 41},
			"nft (PID 7) flushed table inet tenon: 638 objects; restored for 212 attachments in 41 ms"},
		{watch.Event{Cause: "ip (PID 7) deleted link br0", Lost: 2, Restored: 1, Suppressed: 3,
			Objects: []string{"bridge br0"}, Attachments: 1, Millis: 5},
			"ip (PID 7) deleted link br0: 2 objects; restored 1 of 2 for 1 attachment in 5 ms; " +
				"3 repairs had waited"},
		{watch.Event{Cause: "found at the start", Lost: 1, Objects: []string{"link br0 up"},
			Attachments: 1, DryRun: true},
			"found at the start: link br0 up; missing in 1 attachment, not restored (--dry-run)"},
		{watch.Event{Attachment: "pods/web/eth0", Problem: "cannot be repaired: a\nb",
			Hint: "run tenon del"},
			"pods/web/eth0 cannot be repaired: a; b (hint: run tenon del)"},
		{watch.Event{Problem: "deleted by \x1b[2Jevil"}, `deleted by \x1b[2Jevil`},
	} {
		row.event.Time = at
		var b strings.Builder
		if err := text.Watch(&b, row.event); err != nil {
			t.Fatal(err)
		}
		if want := "03:04:05 " + row.want + "\n"; b.String() != want {
			t.Errorf("got  %swant %s", b.String(), want)
		}
	}
}
