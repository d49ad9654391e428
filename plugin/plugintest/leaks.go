package plugintest

import (
	"fmt"
	"path/filepath"
	"runtime"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// leaks attaches and detaches many times in one process, which must not leave file descriptors,
// threads or goroutines behind.
func leaks(r *Runtime) {
	r.Add("c") // opens the descriptors that stay open
	r.Del("c")
	before := used(r)
	n := times(50)
	for range n {
		r.Add("c")
		r.Del("c")
	}
	if after := used(r); after.descriptors >= before.descriptors+n {
		r.t.Fatalf("used before %+v, after %d times ADD and DEL %+v: each call leaves a file descriptor open", before, n, after)
	}
	// Threads and goroutines end in the background. The Go runtime also starts threads of its own.
	const slack = 10
	testnet.Eventually(r.t, func() error {
		after := used(r)
		if after.descriptors <= before.descriptors && after.threads <= before.threads+slack &&
			after.goroutines <= before.goroutines {
			return nil
		}
		return fmt.Errorf("used before %+v, after many times ADD and DEL %+v: close descriptors and end goroutines", before, after)
	})
}

type usage struct{ descriptors, threads, goroutines int }

func used(r *Runtime) usage {
	count := func(pattern string) int {
		names, err := filepath.Glob(pattern)
		if err != nil || names == nil {
			r.t.Fatalf("%s: %v, %d files", pattern, err, len(names))
		}
		return len(names)
	}
	return usage{descriptors: count("/proc/self/fd/*"), threads: count("/proc/self/task/*"),
		goroutines: runtime.NumGoroutine()}
}
