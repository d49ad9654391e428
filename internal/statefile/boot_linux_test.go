package statefile_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/statefile"
)

func TestBootID(t *testing.T) {
	t.Parallel()
	id, err := statefile.BootID()
	if err != nil || len(id) != 36 {
		t.Errorf("got %q, %v", id, err)
	}
}

func TestMarkBoot(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, row := range []struct{ mark, want string }{{"", ""}, {"first", "first"}, {"2nd", "2nd"},
		{"", "2nd"}} {
		if statefile.MarkBoot(int(f.Fd()), row.mark); statefile.BootOf(int(f.Fd())) != row.want {
			t.Errorf("after mark %q the file names %q, want %q", row.mark,
				statefile.BootOf(int(f.Fd())), row.want)
		}
	}
}

// A file is from the boot in its mark. Without a mark it is from an earlier boot if neither its
// content nor its inode has changed since the running boot started.
func TestEarlierBoot(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	check := func(what string, began time.Time, want bool) {
		t.Helper()
		if statefile.EarlierIn(path, "this", began) != want {
			t.Errorf("%s: %t", what, !want)
		}
	}
	check("changed after the boot", past, false)
	check("changed before the boot", future, true)
	if err := os.Chtimes(path, past, past); err != nil {
		t.Fatal(err)
	}
	check("only its modification time is before the boot", time.Now().Add(-time.Minute), false)
	if statefile.EarlierBoot(path) {
		t.Error("written in this boot")
	}
	statefile.MarkBoot(int(f.Fd()), "this")
	check("names this boot", future, false)
	statefile.MarkBoot(int(f.Fd()), "that")
	check("names another boot", past, true)
	if !statefile.EarlierBoot(path) {
		t.Error("names another boot")
	}
	path += "absent"
	check("absent", future, false)
}
