package install

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tenon-cni/tenon/internal/ops/plugindir"
)

// build makes a build of Tenon: the test binary has its main module.
func build(t *testing.T, path string) {
	t.Helper()
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	content, err := io.ReadAll(self)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, string(content))
}

// TestKeep keeps the latest file of another program, and removal restores it.
func TestKeep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "bridge")
	for _, upstream := range []string{"upstream 1", "upstream 2"} {
		write(t, path+".other", upstream)
		if err := os.Rename(path+".other", path); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time, a build of Tenon, which is not kept
			build(t, path+".draft")
			if err := (Plugin{Path: path, Change: Replaced}).put(path + ".draft"); err != nil {
				t.Fatal(err)
			}
		}
	}
	plugins, restored, outdated := find(dir, []string{"bridge", "ptp"})
	if !slices.Equal(plugins, []string{path}) || !slices.Equal(restored, plugins) || outdated != nil {
		t.Errorf("found %q, %q, %q", plugins, restored, outdated)
	}
	if err := plugindir.Restore(path); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "upstream 2" {
		t.Errorf("restored %q, %v", content, err)
	}
	if _, err := os.Lstat(plugindir.Kept(path)); !os.IsNotExist(err) {
		t.Errorf("the kept file remains: %v", err)
	}
}

// TestOutdated finds a kept file after another program has replaced the plugin.
func TestOutdated(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "bridge")
	write(t, path, "newer upstream")
	write(t, plugindir.Kept(path), "older upstream")
	plugins, restored, outdated := find(dir, []string{"bridge"})
	if plugins != nil || restored != nil || !slices.Equal(outdated, []string{plugindir.Kept(path)}) {
		t.Errorf("found %q, %q, %q", plugins, restored, outdated)
	}
}
