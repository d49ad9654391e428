package client_test

import (
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/dhcp/client"
)

func TestEarlier(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := start.Add(1000 * time.Second)
	for random, want := range map[uint64]time.Duration{0: 1000 * time.Second,
		1: 999900 * time.Millisecond, 999: 900100 * time.Millisecond, 1000: 1000 * time.Second,
		1<<64 - 1: 938500 * time.Millisecond} {
		if got := client.Earlier(at, start, random).Sub(start); got != want {
			t.Errorf("%d: %v, expected %v", random, got, want)
		}
	}
	if got := client.Earlier(time.Time{}, start, 7); !got.IsZero() {
		t.Errorf("no result was %v", got)
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	if got := client.Because("no answer in "+client.Tries(1), ""); got != "no answer in one try" {
		t.Error(got)
	}
	if got := client.Because("no answer in "+client.Tries(2),
		"why"); got != "no answer in 2 tries: why" {
		t.Error(got)
	}
}
