//go:build linux

package trace_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/trace"
)

// TestRefusedFiles covers files that another user, or a mistake, could have put in the place of the
// file: root must neither follow nor change them.
func TestRefusedFiles(t *testing.T) {
	t.Parallel()
	const content = "root:x:0:0\n"
	for _, row := range []struct {
		name    string
		prepare func(path string) error
		want    string
	}{
		{"symbolic link", func(path string) error { return os.Symlink("other", path) }, "symbolic link"},
		{"second name of a file", func(path string) error {
			return os.Link(filepath.Join(filepath.Dir(path), "other"), path)
		}, "more than one name"},
		{"file without spans", func(path string) error { return os.WriteFile(path, []byte(content), 0o600) },
			"not the file of a trace"},
		{"FIFO", func(path string) error { return unix.Mkfifo(path, 0o600) }, "not a regular file"},
		{"directory", func(path string) error { return os.Mkdir(path, 0o700) }, "directory"},
		{"full", func(path string) error {
			if err := os.WriteFile(path, []byte(trace.Beginning), 0o600); err != nil {
				return err
			}
			return os.Truncate(path, 65<<20)
		}, "64 MiB"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path, other := filepath.Join(dir, "spans"), filepath.Join(dir, "other")
			if err := os.WriteFile(other, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := row.prepare(path); err != nil {
				t.Fatal(err)
			}
			_, _, err := trace.Open(t.Context(), path, "", nil)
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v, want %q", err, row.want)
			}
			if got, err := os.ReadFile(other); err != nil || string(got) != content {
				t.Errorf("the other file contains %q, %v", got, err)
			}
		})
	}
	if _, _, err := trace.Open(t.Context(), "spans", "", nil); err == nil {
		t.Error("a relative path is accepted")
	}
}

func TestForeignFile(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Root)
	path := filepath.Join(t.TempDir(), "spans")
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if _, _, err := trace.Open(t.Context(), path, "", nil); err == nil || !strings.Contains(err.Error(), "another user") {
		t.Error(err)
	}
}

func TestMode(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "spans")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, done, err := trace.Open(t.Context(), path, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	done()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
}
