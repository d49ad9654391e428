package cell_test

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/judge/cell"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// BenchmarkRun measures the processor time of scenarios: of an empty one, which is the cost of a cell,
// and of ten steps of each kind.
func BenchmarkRun(b *testing.B) {
	shell := func(int) script.Step { return script.Step{Shell: ":"} }
	for _, c := range []struct {
		name string
		n    int
		step func(i int) script.Step
	}{
		{"cell", 1, func(int) script.Step { return script.Step{Shell: ":", Quiet: true} }},
		{"shell", 10, func(int) script.Step { return script.Step{Shell: ":", Quiet: true} }},
		{"snapshot", 10, shell},
		{"snapshot of two namespaces", 10, shell},
		{"recorder", 10, func(i int) script.Step {
			return script.Step{Quiet: true, Calls: []script.Call{{
				Name: fmt.Sprint("call", i), Path: script.Plugins + "/probe", Env: []string{"CNI_COMMAND=ADD"},
			}}}
		}},
	} {
		s := &script.Scenario{Name: c.name, Files: []script.File{script.RecorderFile("probe")}}
		if c.name == "snapshot of two namespaces" {
			s.Steps = []script.Step{{Container: &script.Container{Name: "c1"}, Quiet: true}}
		}
		for i := range c.n {
			s.Steps = append(s.Steps, c.step(i))
		}
		b.Run(c.name, func(b *testing.B) {
			begin := processorTime(b)
			for b.Loop() {
				r, err := cell.Run(b.Context(), s)
				if err != nil || r.Broken != "" {
					b.Fatal(err, r)
				}
			}
			b.ReportMetric(float64((processorTime(b)-begin).Microseconds())/float64(b.N)/1000, "cpu-ms/op")
		})
	}
}

// processorTime returns the time that this process and its children have used.
func processorTime(b *testing.B) (sum time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}
