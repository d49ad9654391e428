package ptp_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestThreads: many calls in one process leave no thread in another namespace. It is not parallel,
// because other tests move threads on purpose.
func TestThreads(t *testing.T) {
	r := runtime(t, `,"ipMasq":true`+ipamDual)
	own, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		container := fmt.Sprintf("c%d", i)
		r.Add(container)
		r.Del(container)
		r.Remove(container)
	}
	elsewhere := func() (list []string) {
		tasks, err := filepath.Glob("/proc/self/task/*/ns/net")
		if err != nil || len(tasks) == 0 {
			t.Fatalf("%v, %d threads", err, len(tasks))
		}
		for _, task := range tasks {
			if ns, err := os.Readlink(task); err == nil && ns != own {
				list = append(list, ns)
			}
		}
		return list
	}
	end := time.Now().Add(testnet.Patience) // threads end in the background
	for list := elsewhere(); len(list) > 0; list = elsewhere() {
		if time.Now().After(end) {
			t.Fatalf("threads of this process (in %s) are in %v", own, list)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
