package ledger_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/ledger"
	"github.com/tenon-cni/tenon/internal/statefile"
)

type value struct {
	MAC string `json:"mac,omitempty"`
	MTU int    `json:"mtu,omitempty"`
}

func open(t *testing.T) ledger.Ledger {
	return ledger.Ledger{Dir: filepath.Join(t.TempDir(), "a", "b"), Boot: "this"}
}

func write(t *testing.T, l ledger.Ledger, name string, v any) {
	t.Helper()
	if err := l.Write(name, v); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, l ledger.Ledger, name string, want value, there bool) {
	t.Helper()
	var got value
	if ok, err := l.Read(name, &got); ok != there || got != want || err != nil {
		t.Errorf("%s: %+v, %t, %v; want %+v, %t", name, got, ok, err, want, there)
	}
}

func wantNames(t *testing.T, l ledger.Ledger, want ...string) {
	t.Helper()
	if names, err := l.Names(); !slices.Equal(names, want) || err != nil {
		t.Errorf("names %q, %v; want %q", names, err, want)
	}
}

// Read refuses a FIFO, and Remove removes it like a value.
func TestFIFO(t *testing.T) {
	t.Parallel()
	l := open(t)
	write(t, l, "x", value{MTU: 1})
	if err := unix.Mkfifo(filepath.Join(l.Dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if ok, err := l.Read("fifo", new(value)); ok || !errors.Is(err, statefile.ErrNotRegular) {
		t.Errorf("read: %t, %v", ok, err)
	}
	wantNames(t, l, "x")
	if err := l.Remove("fifo"); err != nil {
		t.Error(err)
	}
	want(t, l, "fifo", value{}, false)
}

func TestLedger(t *testing.T) {
	t.Parallel()
	l := open(t)
	want(t, l, "x", value{}, false)
	wantNames(t, l)
	if err := l.Remove("x"); err != nil {
		t.Error(err)
	}
	write(t, l, "x", value{MAC: "m", MTU: 1})
	write(t, l, "y", value{MTU: 2})
	want(t, l, "x", value{MAC: "m", MTU: 1}, true)
	write(t, l, "x", value{MTU: 3})
	want(t, l, "x", value{MTU: 3}, true)
	wantNames(t, l, "x", "y")
	if err := l.Remove("x"); err != nil {
		t.Error(err)
	}
	want(t, l, "x", value{}, false)
	wantNames(t, l, "y")
}

// TestRemoveDrafts checks that the draft of a killed Write is removed with its value, and nothing
// else.
func TestRemoveDrafts(t *testing.T) {
	t.Parallel()
	l := open(t)
	write(t, l, "x", value{MTU: 1})
	for _, name := range []string{".x123", ".x.123", ".xy123", ".y123"} {
		if err := os.WriteFile(filepath.Join(l.Dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	left := func(want ...string) {
		t.Helper()
		var left []string
		entries, err := os.ReadDir(l.Dir)
		for _, e := range entries {
			left = append(left, e.Name())
		}
		if !slices.Equal(left, want) || err != nil {
			t.Errorf("left %q, %v; want %q", left, err, want)
		}
	}
	if err := l.Remove("x"); err != nil {
		t.Error(err)
	}
	left(".x.123", ".xy123", ".y123")
	write(t, l, "z", value{MTU: 1})
	if err := os.WriteFile(filepath.Join(l.Dir, ".hidden"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.RemoveDrafts(func(name string) bool { return name == "y12" }); err != nil {
		t.Error(err)
	}
	left(".hidden", ".x.123", ".xy123", "z")
	if err := l.RemoveDrafts(func(string) bool { return true }); err != nil {
		t.Error(err)
	}
	left(".hidden", "z")
}

// TestFiles checks the format on disk, for other implementations, and that only the owner can read
// it.
func TestFiles(t *testing.T) {
	t.Parallel()
	l := open(t)
	write(t, l, "x", value{MAC: "m", MTU: 1})
	path, err := l.Path("x")
	if err != nil {
		t.Fatal(err)
	}
	const want = "{\n \"mac\": \"m\",\n \"mtu\": 1\n}"
	if content, err := os.ReadFile(path); string(content) != want || err != nil {
		t.Errorf("%q, %v", content, err)
	}
	for path, mode := range map[string]os.FileMode{path: 0o600, l.Dir: 0o700 | os.ModeDir,
		filepath.Dir(l.Dir): 0o700 | os.ModeDir} {
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v; want %v", path, info.Mode(), err, mode)
		}
	}
	entries, err := os.ReadDir(l.Dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestNames checks that no name leads out of the directory.
func TestNames(t *testing.T) {
	t.Parallel()
	l := open(t)
	write(t, l, "x", value{})
	for _, name := range []string{"", ".", "..", ".hidden", "../x", "a/../../x", "/etc/passwd",
		"a\x00b"} {
		_, read := l.Read(name, &value{})
		for what, err := range map[string]error{"read": read, "write": l.Write(name, value{}),
			"remove": l.Remove(name)} {
			if !errors.Is(err, ledger.ErrName) {
				t.Errorf("%s %q: %v", what, name, err)
			}
		}
	}
	// Directories and hidden files are not values.
	if err := errors.Join(os.Mkdir(filepath.Join(l.Dir, "folder"), 0o700),
		os.WriteFile(filepath.Join(l.Dir, ".x"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	wantNames(t, l, "x")
}

// TestNothingThere checks that there is no value if the directory is a file, or the name is too
// long.
func TestNothingThere(t *testing.T) {
	t.Parallel()
	l := open(t)
	write(t, l, "x", value{})
	inFile := ledger.Ledger{Dir: filepath.Join(l.Dir, "x", "below")}
	for _, l := range []ledger.Ledger{l, inFile} {
		long := strings.Repeat("x", 300)
		want(t, l, long, value{}, false)
		if err := l.Remove(long); err != nil {
			t.Error(err)
		}
		if err := l.Write(long, value{}); err == nil {
			t.Error("an impossible value was written")
		}
	}
	wantNames(t, inFile)
}

// TestBoot checks that values of an earlier boot are removed, and values without a boot, which
// other programs write, are kept.
func TestBoot(t *testing.T) {
	t.Parallel()
	l := open(t)
	before, unknown := l, l
	before.Boot, unknown.Boot = "before", ""
	write(t, before, "read", value{MTU: 1})
	write(t, before, "listed", value{MTU: 1})
	write(t, unknown, "foreign", value{MTU: 1})
	write(t, l, "now", value{MTU: 1})
	wantNames(t, unknown, "foreign", "listed", "now", "read")
	want(t, l, "read", value{}, false)
	wantNames(t, l, "foreign", "now")
	wantNames(t, unknown, "foreign", "now")
	want(t, l, "foreign", value{MTU: 1}, true)
}

// TestBroken checks that an unreadable value is an error, and can be removed and replaced.
func TestBroken(t *testing.T) {
	t.Parallel()
	l := open(t)
	write(t, l, "x", value{})
	path, _ := l.Path("x")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if ok, err := l.Read("x", &value{}); ok || err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%t, %v", ok, err)
	}
	write(t, l, "x", value{MTU: 1})
	want(t, l, "x", value{MTU: 1}, true)
}

// TestAtomic checks that a concurrent reader gets one of the values as a whole.
func TestAtomic(t *testing.T) {
	t.Parallel()
	l := open(t)
	write(t, l, "x", value{})
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			for i := range 100 {
				v := value{MAC: strings.Repeat(fmt.Sprint(n), i), MTU: i}
				if err := l.Write("x", v); err != nil {
					t.Error(err)
				}
				var got value
				if ok, err := l.Read("x", &got); !ok || err != nil || len(got.MAC) != got.MTU {
					t.Errorf("%+v, %t, %v", got, ok, err)
				}
			}
		})
	}
	wg.Wait()
	wantNames(t, l, "x")
}
