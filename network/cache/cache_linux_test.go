package cache_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tenon-cni/tenon/network/cache"
)

// Put works if "results" is a link to another file system.
func TestOtherFileSystem(t *testing.T) {
	t.Parallel()
	d := cache.Dir(t.TempDir())
	other, err := os.MkdirTemp("/dev/shm", "tenon-cache-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(other) })
	if err := os.Symlink(other, filepath.Join(string(d), "results")); err != nil {
		t.Fatal(err)
	}
	put(t, d, entry(key))
	if got := all(t, other); !slices.Equal(got, []string{"red-c-1-eth0"}) {
		t.Errorf("files %q", got)
	}
}
