package statefile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tenon-cni/tenon/internal/statefile"
)

func TestOpenAppends(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for _, line := range []string{"one\n", "two\n"} {
		f, err := statefile.Open(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(line); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); string(got) != "one\ntwo\n" || err != nil {
		t.Errorf("the file has %q, %v", got, err)
	}
}
