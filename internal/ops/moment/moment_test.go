package moment_test

import (
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/ops/moment"
)

func TestParse(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 14, 30, 0, 0, time.FixedZone("CET", 3600))
	for text, want := range map[string]string{
		"14:02":                "2026-11-23T14:02:00+01:00",
		"14:02:07":             "2026-11-23T14:02:07+01:00",
		"14:31":                "2026-11-22T14:31:00+01:00", // yesterday
		"2026-11-20 14:02":     "2026-11-20T14:02:00+01:00",
		"2026-11-20T14:02":     "2026-11-20T14:02:00+01:00",
		"2026-11-20":           "2026-11-20T00:00:00+01:00",
		"2026-11-20T14:02:00Z": "2026-11-20T14:02:00Z",
		"10m ago":              "2026-11-23T14:20:00+01:00",
		"10 minutes ago":       "2026-11-23T14:20:00+01:00",
		"2h30m":                "2026-11-23T12:00:00+01:00",
		"3d":                   "2026-11-20T14:30:00+01:00",
		"1d2h ago":             "2026-11-22T12:30:00+01:00",
		"now":                  "2026-11-23T14:30:00+01:00",
		"":                     "error", "yesterday": "error", "-5m": "error", "x3d": "error",
		"25:00": "error", "ago": "error",
	} {
		got := "error"
		if at, err := moment.Parse(text, now); err == nil {
			got = at.Format(time.RFC3339)
		}
		if got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
	for want, at := range map[string]time.Time{
		"13:59:58":            now.Add(-30*time.Minute - 2*time.Second).UTC(),
		"2026-11-22 14:30:00": now.AddDate(0, 0, -1),
	} {
		if got := moment.Format(at, now); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
