package statefile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tenon-cni/tenon/internal/statefile"
)

// TestNames lists a directory in memory while other files are created, renamed and removed: the names
// include each file that stays. os.ReadDir misses one in 200 times.
func TestNames(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/dev/shm", "tenon-names-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	put := func(name string) {
		draft := filepath.Join(dir, ".draft-"+name)
		err := os.WriteFile(draft, nil, 0o600)
		if err == nil {
			err = os.Rename(draft, filepath.Join(dir, name))
		}
		if err != nil {
			t.Error(err)
		}
	}
	const files = 900 // with index files more than one buffer of 64 KiB
	rounds := 8
	if testing.Short() {
		rounds = 2
	}
	for range rounds {
		together(files, func(i int) {
			name := record(i)
			put(name + ".json")
			put(name + ".index")
			put(name + ".json")
		})
		together(files, func(i int) {
			name := record(i)
			found, err := statefile.NamesIn(dir)
			if err != nil || !slices.Contains(found, name+".json") {
				t.Errorf("%s is missing among %d names: %v", name, len(found), err)
			}
			path := filepath.Join(dir, name)
			for _, err := range []error{
				os.Rename(path+".json", path+".deleting"), os.Remove(path + ".index"), os.Remove(path + ".deleting"),
			} {
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func record(i int) string { return fmt.Sprintf("record-of-a-container-%08d", i) }

// together calls f for 0 to n-1, for 32 of them at the same time.
func together(n int, f func(i int)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range 32 {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	workers.Wait()
}
