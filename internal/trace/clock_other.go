//go:build !linux

package trace

// monotonic returns 0: the records have no common monotonic clock.
func monotonic() int64 { return 0 }
