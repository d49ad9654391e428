// Package moment reads and writes points in time as operators type and read them.
package moment

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// layouts are the forms with a date, and the forms of a time of today.
var (
	dated = []string{"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04:05",
		"2006-01-02T15:04", "2006-01-02"}
	clock = []string{"15:04:05", "15:04"}
)

// Parse reads a point in time: RFC 3339, "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02",
// "15:04:05" or "15:04", which is the last time that the clock showed it, or a time span such as
// "10m ago", "10m", "2h30m" or "3d", which is the time before now. Times without a zone are in the
// zone of now.
func Parse(text string, now time.Time) (time.Time, error) {
	text = strings.TrimSpace(text)
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	for _, layout := range dated {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	for _, layout := range clock {
		if t, err := time.Parse(layout, text); err == nil {
			y, m, d := now.Date()
			at := func(d int) time.Time {
				return time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), 0, now.Location())
			}
			if today := at(d); !today.After(now) {
				return today, nil
			}
			return at(d - 1), nil
		}
	}
	if text == "now" {
		return now, nil
	}
	span, err := parseSpan(strings.TrimSpace(strings.TrimSuffix(text, "ago")))
	if err != nil {
		return time.Time{}, fmt.Errorf(
			"time %q: use 14:02, \"2006-01-02 14:02\", 2006-01-02T14:02:00Z or \"10m ago\"", text)
	}
	return now.Add(-span), nil
}

// units are the long names of units, and the short ones of [time.ParseDuration] and days.
var units = strings.NewReplacer("minutes", "m", "minute", "m", "min", "m", "hours", "h", "hour", "h",
	"seconds", "s", "second", "s", "sec", "s", "days", "d", "day", "d", " ", "")

// parseSpan reads a time span with days.
func parseSpan(text string) (time.Duration, error) {
	text = units.Replace(text)
	days, rest, found := strings.Cut(text, "d")
	if !found {
		days, rest = "0", text
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil {
		return 0, err
	}
	span := time.Duration(n) * 24 * time.Hour
	if found && rest == "" {
		return span, nil
	}
	d, err := time.ParseDuration(rest)
	if err == nil && d < 0 {
		err = fmt.Errorf("negative time span %q", text)
	}
	return span + d, err
}

// Format writes a point in time in the zone of now, to the second: the time of the clock if it is on
// the day of now, otherwise with the date.
func Format(t, now time.Time) string {
	t = t.In(now.Location())
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}
