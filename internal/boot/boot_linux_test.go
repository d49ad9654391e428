package boot_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/boot"
)

func TestID(t *testing.T) {
	t.Parallel()
	id, err := boot.ID()
	if err != nil || len(id) != 36 {
		t.Errorf("got %q, %v", id, err)
	}
}

func TestMark(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, row := range []struct{ mark, want string }{{"", ""}, {"first", "first"}, {"2nd", "2nd"}, {"", "2nd"}} {
		if boot.Mark(int(f.Fd()), row.mark); boot.Of(int(f.Fd())) != row.want {
			t.Errorf("marked with %q it names %q, want %q", row.mark, boot.Of(int(f.Fd())), row.want)
		}
	}
}

// A file is from the boot that it names, and otherwise from an earlier one if neither its content nor its inode has changed since
// the boot.
func TestEarlier(t *testing.T) {
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
		if boot.EarlierIn(path, "this", began) != want {
			t.Errorf("%s: %t", what, !want)
		}
	}
	check("changed after the boot", past, false)
	check("changed before the boot", future, true)
	if err := os.Chtimes(path, past, past); err != nil {
		t.Fatal(err)
	}
	check("only its time says before", time.Now().Add(-time.Minute), false)
	if boot.Earlier(path) {
		t.Error("written in this boot")
	}
	boot.Mark(int(f.Fd()), "this")
	check("names this boot", future, false)
	boot.Mark(int(f.Fd()), "that")
	check("names another boot", past, true)
	if !boot.Earlier(path) {
		t.Error("names another boot")
	}
	path += "absent"
	check("absent", future, false)
}
