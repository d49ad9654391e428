package main

import (
	"testing"
	"time"
)

// A linked program that starts processes, or a side with processes that starts none, measures
// something else than its column says.
func TestVerify(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		side     string
		children time.Duration
		valid    bool
	}{
		"upstream with processes":     {"upstream", time.Second, true},
		"upstream without processes":  {"upstream", 0, false},
		"processes with processes":    {"processes", time.Second, true},
		"processes without processes": {"processes", 0, false},
		"linked with processes":       {"linked", time.Second, false},
		"linked without processes":    {"linked", 0, true},
	} {
		s := &side{name: row.side}
		if err := s.verify(reply{Children: row.children}); (err == nil) != row.valid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	if got := median([]float64{5, 1, 9}); got != 5 {
		t.Errorf("median %v, want 5", got)
	}
	if got := median([]time.Duration{3}); got != 3 {
		t.Errorf("median %v, want 3", got)
	}
}
