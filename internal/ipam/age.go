package ipam

import (
	"fmt"
	"time"
)

// FormatAge writes a duration in its largest unit: 12s, 5m, 3h, 40d. A negative duration is 0s.
func FormatAge(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= 2*day:
		return fmt.Sprintf("%dd", d/day)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%dm", d/time.Minute)
	default:
		return fmt.Sprintf("%ds", max(0, d/time.Second))
	}
}
