package statefile_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/statefile"
)

// Replace leaves the old file and no draft if it fails, and the new content with its mode if it
// succeeds.
func TestReplace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, content := range []string{"old", "new content"} {
		marked := ""
		if err := statefile.Replace(path, []byte(content), 0o644,
			func(f *os.File) { marked = filepath.Base(f.Name()) }); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil || string(b) != content {
			t.Errorf("%q, %v; want %q", b, err, content)
		}
		if ok, _ := filepath.Match(".file*", marked); !ok {
			t.Errorf("marked %q", marked)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o644 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := statefile.Replace(filepath.Join(dir, "absent", "file"), nil, 0o600, nil); err == nil {
		t.Error("success in a missing directory")
	}
	busy := filepath.Join(dir, "directory")
	if err := os.MkdirAll(filepath.Join(busy, "member"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := statefile.Replace(busy, []byte("x"), 0o600, nil); err == nil {
		t.Error("a directory was replaced")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// RemoveDrafts removes the drafts of one path, and no other file.
func TestRemoveDrafts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".file9"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", ".file", ".file12", ".file345", ".file.swp", ".file2x",
		".other1", "file1"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := statefile.RemoveDrafts(filepath.Join(dir, "file")); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := []string{".file", ".file.swp", ".file2x", ".file9", ".other1", "file", "file1"}
	if !slices.Equal(names, want) {
		t.Errorf("left %q, want %q", names, want)
	}
	if err := statefile.RemoveDrafts(filepath.Join(dir, "absent", "file")); err != nil {
		t.Errorf("in a missing directory: %v", err)
	}
}

// The identity of a path changes with the content and with the file; without a file it is zero.
func TestIdentity(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	if id := statefile.Identify(path); id != (statefile.Identity{}) {
		t.Errorf("no file: %+v", id)
	}
	if err := os.WriteFile(path, []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	first := statefile.Identify(path)
	if now := time.Unix(0, first.MTime); !first.Young(now) ||
		first.Young(now.Add(statefile.CoarseTick)) ||
		first.Young(now.Add(-statefile.CoarseTick)) {
		t.Errorf("young: %+v", first)
	}
	if err := os.WriteFile(path, []byte("ab"), 0o600); err != nil {
		t.Fatal(err)
	}
	if second := statefile.Identify(path); second == first || second == (statefile.Identity{}) {
		t.Errorf("other content: %+v after %+v", second, first)
	}
}

// TestYoung: a file system that stores only whole seconds shows no second change within a second.
func TestYoung(t *testing.T) {
	t.Parallel()
	const second = int64(time.Second)
	for _, row := range []struct {
		name         string
		mtime, ctime int64
		age          time.Duration
		want         bool
	}{
		{"nanoseconds", second + 1, second + 1, statefile.Tick - 1, true},
		{"nanoseconds, old", second + 1, second + 1, statefile.Tick, false},
		{"nanoseconds, in the future", second + 1, second + 1, -statefile.Tick, false},
		{"mtime set to a whole second", second, second + 1, statefile.Tick, false},
		{"ctime by chance a whole second", second + 1, 2 * second, statefile.Tick, false},
		{"seconds", second, second, time.Second, true},
		{"seconds, mtime set", second, 2 * second, time.Second, true},
		{"seconds, old", second, second, statefile.CoarseTick, false},
		{"seconds, in the future", second, second, -statefile.CoarseTick, false},
	} {
		id := statefile.Identity{MTime: row.mtime, CTime: row.ctime}
		now := time.Unix(0, max(row.mtime, row.ctime)).Add(row.age)
		if young := id.Young(now); young != row.want {
			t.Errorf("%s: %v, want %v", row.name, young, row.want)
		}
	}
}
