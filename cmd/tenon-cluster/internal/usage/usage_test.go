package usage

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var start = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

// record makes a sample every hour of some days.
func record(t *testing.T, dir string, days int, blocks func(hour int) uint64) {
	t.Helper()
	for h := range days*24 + 1 {
		now := start.Add(time.Duration(h) * time.Hour)
		if err := Record(dir, now, map[string]uint64{"pods": blocks(h)}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestForecast(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		days           int
		blocks         func(hour int) uint64
		claimed, total uint64
		ok             bool
		perDay         float64
		full           time.Duration
	}{
		"steady growth of 24 blocks a day": {
			days: 3, blocks: func(h int) uint64 { return 100 + uint64(h) }, claimed: 172, total: 412,
			ok: true, perDay: 24, full: 10 * 24 * time.Hour,
		},
		"growth with a daily wave": {
			days: 7, blocks: func(h int) uint64 { return 1000 + uint64(h) + uint64(h%24/12)*50 },
			claimed: 1200, total: 2000, ok: true, perDay: 24.5, full: 0,
		},
		"no growth": {days: 2, blocks: func(int) uint64 { return 10 }, claimed: 10, total: 16, ok: true},
		"pool that shrinks": {
			days: 2, blocks: func(h int) uint64 { return 100 - uint64(h) }, claimed: 52, total: 128, ok: true, perDay: -24,
		},
		"less than a day": {days: 0, blocks: func(int) uint64 { return 10 }, total: 16},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			record(t, dir, row.days, row.blocks)
			samples, err := Read(dir)
			if err != nil {
				t.Fatal(err)
			}
			f, ok := Of(samples, "pods", row.claimed, row.total)
			if ok != row.ok || math.Abs(f.PerDay-row.perDay) > 1 {
				t.Errorf("%v, %t", f, ok)
			}
			if row.full != 0 && (f.Full-row.full).Abs() > time.Hour {
				t.Errorf("full in %v, expected %v", f.Full, row.full)
			}
			if row.perDay <= 0 && f.Full != 0 {
				t.Errorf("full in %v without growth", f.Full)
			}
		})
	}
}

func TestRecordLimits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	record(t, dir, 20, func(int) uint64 { return 1 })
	samples, err := Read(dir)
	if err != nil || len(samples) != 14*24+1 {
		t.Fatalf("%d samples, %v", len(samples), err)
	}
	last := samples[len(samples)-1].At
	if err := Record(dir, last.Add(Interval/2), nil); err != nil {
		t.Fatal(err)
	}
	if again, _ := Read(dir); len(again) != len(samples) {
		t.Error("a sample was recorded before the interval had passed")
	}
	// The clock was wrong and is set back: later samples would spoil the forecast.
	if err := Record(dir, start, map[string]uint64{"pods": 1}); err != nil {
		t.Fatal(err)
	}
	if again, _ := Read(dir); len(again) != 1 {
		t.Errorf("%d samples of the future", len(again)-1)
	}
}

func TestDamagedFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, fileName), []byte("[{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); err == nil {
		t.Error("no error")
	}
	if err := Record(dir, start, map[string]uint64{"pods": 1}); err != nil {
		t.Fatal(err)
	}
	if samples, err := Read(dir); err != nil || len(samples) != 1 {
		t.Error(samples, err)
	}
}
