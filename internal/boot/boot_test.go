package boot_test

import (
	"os"
	"path/filepath"
	"testing"

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
