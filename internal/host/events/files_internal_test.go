package events

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/exefile"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestFiles checks which changes are reported, also of paths that do not exist yet or are replaced.
func TestFiles(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	dir, lock := filepath.Join(top, "state", "records"), filepath.Join(top, "lock")
	f, err := openFiles(lock)
	must(t, err)
	defer f.file.Close()
	f.dirs = []string{dir}
	_, err = f.arm()
	must(t, err)
	// A child of a parallel test that still had a file open would close it in a later step.
	write := func(path string) func() { return func() { must(t, exefile.Write(path, nil)) } }
	for _, step := range []struct {
		name              string
		do                func()
		changed, unlocked bool
	}{
		{"foreign file", write(filepath.Join(top, "other")), false, false},
		{"directory above", func() { must(t, os.Mkdir(filepath.Dir(dir), 0o700)) }, false, false},
		{"directory", func() { must(t, os.Mkdir(dir, 0o700)) }, true, true},
		{"record", write(filepath.Join(dir, "a")), true, false},
		{"lock created", write(lock), true, true},
		{"lock closed", write(lock), false, true},
		{"replaced", func() {
			must(t, os.Rename(dir, dir+".old"))
			must(t, os.Mkdir(dir, 0o700))
		}, true, true},
		{"record in the new one", write(filepath.Join(dir, "b")), true, false},
	} {
		step.do()
		changed, unlocked, err := f.next()
		must(t, err)
		if changed != step.changed || unlocked != step.unlocked {
			t.Errorf("%s: changed %t, unlocked %t", step.name, changed, unlocked)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
