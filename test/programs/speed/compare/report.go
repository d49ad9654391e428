package main

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// row is one line of the report. Its arrays are in the order of the sides. The ratios compare with
// upstream; above 1 means better.
type row struct {
	What   string     `json:"what"`
	Unit   string     `json:"unit"`
	Values [3]float64 `json:"values"`
	Ratios [3]float64 `json:"ratios"`
}

const layout = "%-36s %12s %12s %12s %10s %8s\n"

func (b *bench) printHeader() {
	kernel := "unknown"
	var u syscall.Utsname
	if syscall.Uname(&u) == nil {
		kernel = ""
		for _, c := range u.Release {
			if c == 0 {
				break
			}
			kernel += string(rune(c))
		}
	}
	fmt.Printf("go-cni, %s\nupstream %s, tenon %s, kernel %s, %s, %d CPUs; medians\n\n",
		chain, b.peer, b.tenon, kernel, runtime.Version(), runtime.NumCPU())
	fmt.Printf(layout, "what", "upstream", "processes", "linked", "processes", "linked")
}

// record adds a row of durations.
func (b *bench) record(what string, samples [3][]time.Duration) {
	r := row{What: what, Unit: "ms"}
	for i := range samples {
		r.Values[i] = float64(median(samples[i])) / float64(time.Millisecond)
		r.Ratios[i] = r.Values[0] / r.Values[i]
	}
	b.add(r)
}

// add prints a row and keeps it for the JSON report.
func (b *bench) add(r row) {
	b.rows = append(b.rows, r)
	value := func(i int) string { return fmt.Sprintf("%.2f %s", r.Values[i], r.Unit) }
	ratio := func(i int) string { return fmt.Sprintf("%.2f", r.Ratios[i]) }
	fmt.Printf(layout, r.What, value(0), value(1), value(2), ratio(1), ratio(2))
}

// median returns the middle value of the samples, of which there is at least one.
func median[T cmp.Ordered](samples []T) T {
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[len(sorted)/2]
}
