package program

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet/exefile"
)

const name = "tenon-test"

// TestFind checks that Find searches PATH if the directory of the test binary does not
// contain tenon-test, and ignores files that are not executable.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var missing *MissingError
	if found, err := Find(name); !errors.As(err, &missing) {
		t.Fatalf("found %q, %v", found, err)
	}
	if text := missing.Error() + missing.Hint(); !strings.Contains(text, name) ||
		!strings.Contains(text, "tenon install") {
		t.Error(text)
	}
	for name, call := range map[string]func() error{
		"replace": func() error { return Exec(name, nil) },
		"call":    func() error { _, err := Output(t.Context(), nil, name); return err },
	} {
		if err := call(); !errors.As(err, &missing) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if found, err := Find(name); found != path || err != nil {
		t.Errorf("found %q, %v", found, err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	first := filepath.Join(filepath.Dir(self), name)
	if err := os.WriteFile(first, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(first)
	if found, err := Find(name); found != first || err != nil {
		t.Errorf("found %q, %v, expected %q", found, err, first)
	}
}

// TestOutput checks that the reply is the output of the program, and that the error contains its
// standard error.
func TestOutput(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	script := "#!/bin/sh\nif [ \"$2\" = bad ]; then echo why >&2; exit 1; fi\necho \"$@\"; cat\n"
	if err := exefile.Write(filepath.Join(dir, name), []byte(script)); err != nil {
		t.Fatal(err)
	}
	reply, err := Output(t.Context(), []byte("{}"), name, "call", "/socket")
	if want := "call /socket\n{}"; err != nil || string(reply) != want {
		t.Errorf("got %q, %v, expected %q", reply, err, want)
	}
	if _, err := Output(t.Context(), nil, name, "call", "bad"); err == nil ||
		!strings.HasSuffix(err.Error(), ": why") {
		t.Errorf("got %v", err)
	}
}
