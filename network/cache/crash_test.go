//go:build unix

package cache_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/network/cache"
)

// crashDir names the cache directory of the process that TestKilledWriter kills.
const crashDir = "TENON_TEST_CRASH_DIR"

// A killed writer leaves complete files only, and drafts that readers do not see. The next Put
// removes the drafts once they are old.
func TestKilledWriter(t *testing.T) {
	t.Parallel()
	e := entry(key)
	e.Config = []byte(strings.Repeat("x", 1<<20))
	if dir := os.Getenv(crashDir); dir != "" {
		for {
			put(t, cache.Dir(dir), e)
		}
	}
	d := cache.Dir(t.TempDir())
	for i := range 10 {
		c := exec.Command(os.Args[0], "-test.run=^TestKilledWriter$")
		c.Env = append(os.Environ(), crashDir+"="+string(d))
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
			if paths, err := d.Files(); err != nil || len(paths) > 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(20*time.Millisecond + time.Duration(i)*3*time.Millisecond)
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait()
		got, err := d.Get(key)
		if err != nil || len(got.Config) != len(e.Config) {
			t.Fatalf("after kill %d: %v", i, err)
		}
	}
	past := time.Now().Add(-time.Hour)
	for _, name := range all(t, string(d)) {
		if err := os.Chtimes(filepath.Join(string(d), name), past, past); err != nil {
			t.Fatal(err)
		}
	}
	put(t, d, e)
	if got := strings.Join(all(t, string(d)), " "); got != "results/red-c-1-eth0" {
		t.Errorf("files %s", got)
	}
}
