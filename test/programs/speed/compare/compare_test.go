package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A linked program that starts processes, or a side with processes that starts none, measures
// something else than its column says.
func TestVerify(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		side     string
		children time.Duration
		valid    bool
	}{
		"upstream with processes":     {"upstream", time.Second, true},
		"upstream without processes":  {"upstream", 0, false},
		"processes with processes":    {"processes", time.Second, true},
		"processes without processes": {"processes", 0, false},
		"linked with processes":       {"linked", time.Second, false},
		"linked without processes":    {"linked", 0, true},
	} {
		s := &side{name: row.side}
		if err := s.verify(reply{Children: row.children}); (err == nil) != row.valid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	if got := median([]float64{5, 1, 9}); got != 5 {
		t.Errorf("median %v, want 5", got)
	}
	if got := median([]time.Duration{3}); got != 3 {
		t.Errorf("median %v, want 3", got)
	}
}

func TestCopyPluginsKeepsLinks(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	for _, name := range []string{"bridge", "portmap"} {
		if err := os.WriteFile(filepath.Join(from, name), []byte(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(from, "host-local")
	if err := os.Link(filepath.Join(from, "bridge"), link); err != nil {
		t.Fatal(err)
	}
	if err := copyPlugins(to, from); err != nil {
		t.Fatal(err)
	}
	info := func(name string) os.FileInfo {
		i, err := os.Stat(filepath.Join(to, name))
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	if !os.SameFile(info("bridge"), info("host-local")) {
		t.Error("bridge and host-local are no longer one file")
	}
	if os.SameFile(info("bridge"), info("portmap")) {
		t.Error("bridge and portmap are one file")
	}
}
