package config_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/statefile"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

func digestOf(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(b))
}

// A file that is replaced or changed in place is read again.
func TestExecutableChanges(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"bridge": "good", "evil": "evil"})
	path := filepath.Join(dir, "bridge")
	p := &config.Policy{Executables: map[string][]string{"bridge": {digestOf(t, path)},
		"ptp": {digestOf(t, path)}}}
	check := func(allowed bool, why string) {
		t.Helper()
		for range 2 {
			err := p.CheckExecutable("bridge", path)
			if errors.Is(err, config.ErrNotAllowed) == allowed || (err == nil) != allowed {
				t.Errorf("%s: %s", why, describe(err))
			}
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(true, "as listed")
	for range 20 { // also within one tick of the file system's clock
		must(os.WriteFile(path, []byte("evil"), 0o700))
		check(false, "different content of the same length")
		must(os.WriteFile(path, []byte("good"), 0o700))
		check(true, "put right")
	}
	old := time.Now().Add(-time.Hour)
	must(os.Chtimes(path, old, old))
	time.Sleep(2 * config.Tick)
	check(true, "put right")
	must(os.WriteFile(path, []byte("evil"), 0o700))
	must(os.Chtimes(path, old, old))
	check(false, "different content with the previous time")
	must(os.Rename(filepath.Join(dir, "evil"), path))
	check(false, "another file")
	must(os.Remove(path))
	check(false, "no file")
	must(os.Mkdir(path, 0o700))
	check(false, "a directory")
}

// Hard links to one binary are read once, even by concurrent calls. A directory cannot be allowed.
func TestExecutableDigestsAreShared(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"bridge": "good"})
	path := filepath.Join(dir, "bridge")
	if err := os.Link(path, filepath.Join(dir, "ptp")); err != nil {
		t.Fatal(err)
	}
	for statefile.Identify(path).Young(time.Now()) { // such a file is read again each time
		time.Sleep(config.Tick)
	}
	p := &config.Policy{Executables: map[string][]string{"*": {digestOf(t, path)}}}
	var asked sync.WaitGroup
	for range 8 {
		for _, name := range []string{"bridge", "ptp"} {
			asked.Go(func() {
				if err := p.CheckExecutable(name, filepath.Join(dir, name)); err != nil {
					t.Error(err)
				}
			})
		}
	}
	asked.Wait()
	if got := p.Digests(); got != 1 {
		t.Errorf("%d digests are cached", got)
	}

	c := &network.Client{Isolated: true, Caller: invoke.Fake{"bridge": {}}, StateDir: t.TempDir(),
		Policy: p}
	_, err := c.Add(t.Context(), list(t, "1.1.0", "red", "bridge"), request("c1"))
	if !errors.Is(err, config.ErrNotAllowed) {
		t.Error(describe(err))
	}
}
