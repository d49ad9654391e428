package dhcp

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFind checks that FindProgram searches PATH if the directory of the test binary does not
// contain tenon-dhcp, and ignores files that are not executable.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	path := filepath.Join(dir, Program)
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var missing *MissingProgramError
	if found, err := FindProgram(); !errors.As(err, &missing) {
		t.Fatalf("found %q, %v", found, err)
	}
	if text := missing.Error() + missing.Hint(); !strings.Contains(text, "tenon-dhcp") ||
		!strings.Contains(text, "tenon install") {
		t.Error(text)
	}
	for name, call := range map[string]func() error{
		"replace": func() error { return ExecProgram(nil) },
		"call":    func() error { _, err := callProgram(t.Context(), "", nil); return err },
	} {
		if err := call(); !errors.As(err, &missing) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if found, err := FindProgram(); found != path || err != nil {
		t.Errorf("found %q, %v", found, err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	first := filepath.Join(filepath.Dir(self), Program)
	if err := os.WriteFile(first, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(first)
	if found, err := FindProgram(); found != first || err != nil {
		t.Errorf("found %q, %v, expected %q", found, err, first)
	}
}

// TestCall checks that the reply is the output of the program, and that the error contains its
// standard error.
func TestCall(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	script := "#!/bin/sh\nif [ \"$2\" = bad ]; then echo why >&2; exit 1; fi\necho \"$@\"; cat\n"
	if err := os.WriteFile(filepath.Join(dir, Program), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	reply, err := callProgram(t.Context(), "/socket", []byte("{}"))
	if want := "call-upstream /socket\n{}"; err != nil || string(reply) != want {
		t.Errorf("got %q, %v, expected %q", reply, err, want)
	}
	if _, err := callProgram(t.Context(), "bad", nil); err == nil ||
		!strings.HasSuffix(err.Error(), ": why") {
		t.Errorf("got %v", err)
	}
}

// TestLongFlags checks that flags may have one dash or two, as for the upstream plugin.
func TestLongFlags(t *testing.T) {
	t.Parallel()
	got := LongFlags([]string{"-socketpath", "/a-b", "--debug", "-h", "-timeout=1s", "-"})
	if want := []string{"--socketpath", "/a-b", "--debug", "-h", "--timeout=1s",
		"-"}; !slices.Equal(got, want) {
		t.Errorf("got %q, expected %q", got, want)
	}
}
