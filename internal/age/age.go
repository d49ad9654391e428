// Package age writes for people how long something has been so. It holds nothing else.
package age

import (
	"fmt"
	"time"
)

// Text writes a duration in its largest unit: 12s, 5m, 3h, 40d. Negative ones are 0s.
func Text(d time.Duration) string {
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
