package text_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/ops/history"
	"github.com/tenon-cni/tenon/internal/ops/text"
)

// TestHistory marks inferred times, and shows control characters as escapes.
func TestHistory(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 14, 30, 0, 0, time.UTC)
	ago := func(minutes int) time.Time { return now.Add(-time.Duration(minutes) * time.Minute) }
	web := history.Interval{Network: "pods", Container: "web", IfName: "eth0", From: ago(20),
		FromCertainty: history.Recorded, To: ago(10), ToCertainty: history.Recorded,
		Certainty: history.Recorded, Ended: history.ByDel, Runtime: "tenon"}
	open := history.Interval{Network: "pods", Container: "db-long-name", IfName: "eth0",
		From: ago(60 * 24), FromCertainty: history.Inferred, Certainty: history.Inferred}
	lost := history.Interval{Network: "pods", Container: "\x1b[2J", IfName: "eth0",
		ToCertainty: history.Inferred, Certainty: history.Inferred, Ended: history.Unknown}
	for _, row := range []struct {
		name   string
		answer history.Answer
		want   string
	}{
		{"attachments", history.Answer{Intervals: []history.Interval{web, open, lost}, Begins: ago(30)},
			` web           network pods, eth0  14:10:00 – 14:20:00         (ended by DEL, tenon)
 db-long-name  network pods, eth0  ~2026-11-22 14:30:00 – now  (inferred)
 \x1b[2J       network pods, eth0  before the journal – ?      (the end is not recorded, inferred)
 journal begins 2026-11-23 14:00:00
`},
		{"none at a time", history.Answer{Kind: history.Address, Subject: "10.0.0.2", At: ago(5),
			Before: &web}, ` no attachment had address 10.0.0.2 at 14:25:00
 before  web  14:10:00 – 14:20:00
 the journal is empty
`},
		{"no name", history.Answer{Kind: history.Name, Subject: "x\n"},
			" no attachment of x\\x0a\n the journal is empty\n"},
		{"no attachment of the host", history.Answer{Kind: history.Host},
			" no attachment\n the journal is empty\n"},
	} {
		row.answer.Now = now
		var b strings.Builder
		err := text.History(&b, &row.answer, time.UTC)
		if diff := cmp.Diff(row.want, b.String()); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got)\n%s", row.name, err, diff)
		}
	}
}
