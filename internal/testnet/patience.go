package testnet

import (
	"testing"
	"time"
)

// Patience is the time limit of tests that wait for an event that must occur. It does not measure
// speed: tests must not fail on an overloaded host, so none uses a shorter limit.
const Patience = 2 * time.Minute

// Eventually calls try until it returns nil, and fails the test with its last error after
// [Patience].
func Eventually(t testing.TB, try func() error) {
	t.Helper()
	if err := Try(try); err != nil {
		t.Fatal(err)
	}
}

// Try calls a function until it returns nil, and returns its last error after [Patience].
func Try(try func() error) error { return tryWithin(Patience, try) }

func tryWithin(patience time.Duration, try func() error) error {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if err := try(); err == nil || time.Now().After(end) {
			return err
		}
	}
}
