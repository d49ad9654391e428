package main

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// row is one line of the report.
type row struct {
	What   string  `json:"what"`
	Unit   string  `json:"unit"`
	Ours   float64 `json:"ours"`
	Peer   float64 `json:"peer,omitempty"`  // zero if the peer lacks the operation
	Ratio  float64 `json:"ratio,omitempty"` // higher is better for a budget "≥", lower for "≤"
	Budget string  `json:"budget,omitempty"`
	Result string  `json:"result,omitempty"` // pass, miss, later
}

// budget is a limit for a row.
type budget struct {
	atLeast bool
	limit   float64
}

func atLeast(limit float64) *budget { return &budget{true, limit} }
func atMost(limit float64) *budget  { return &budget{false, limit} }

func (b *budget) String() string {
	if b.atLeast {
		return fmt.Sprintf("≥ %g", b.limit)
	}
	return fmt.Sprintf("≤ %g", b.limit)
}

const layout = "%-58s %12s %12s %8s  %-7s %s\n"

func (b *bench) printHeader() {
	var u unix.Utsname
	kernel := "unknown"
	if unix.Uname(&u) == nil {
		kernel = unix.ByteSliceToString(u.Release[:])
	}
	fmt.Printf("ours %s, peer %s, kernel %s, %d CPUs; medians\n\n", b.ours.from, b.peer.from, kernel, runtime.NumCPU())
	fmt.Printf(layout, "what", "ours", "peer", "ratio", "budget", "")
}

// add prints a row and keeps it for the JSON report. limit, unless nil, judges the value.
func (b *bench) add(r row, limit *budget, value float64) {
	if limit != nil {
		r.Budget, r.Result = limit.String(), "miss"
		if limit.atLeast && value >= limit.limit || !limit.atLeast && value <= limit.limit {
			r.Result = "pass"
		}
	}
	b.rows = append(b.rows, r)
	text := func(v float64) string {
		if v == 0 && r.Unit != "processes" || r.Result == "later" {
			return "-"
		}
		return strings.TrimSpace(fmt.Sprintf("%.*f %s", decimals(r.Unit), v, r.Unit))
	}
	ratio := "-"
	if r.Ratio != 0 {
		ratio = fmt.Sprintf("%.2f", r.Ratio)
	}
	fmt.Printf(layout, r.What, text(r.Ours), text(r.Peer), ratio, r.Budget, r.Result)
}

func decimals(unit string) int {
	if unit == "processes" {
		return 0
	}
	return 2
}

func (b *bench) printFooter(took time.Duration) {
	count := map[string]int{}
	for _, r := range b.rows {
		count[r.Result]++
	}
	fmt.Printf("\nbudgets: %d pass, %d miss, %d later (not measured on this machine); %.0f s\n",
		count["pass"], count["miss"], count["later"], took.Seconds())
}

func median(samples []time.Duration) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[len(sorted)/2]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
