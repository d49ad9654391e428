package cache_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network/cache"
)

var key = cni.Attachment{Network: "red", Container: "c-1", IfName: "eth0"}

func entry(a cni.Attachment) *cache.Entry {
	return &cache.Entry{Attachment: a, Config: []byte(`{"name":"red"}`)}
}

func put(t *testing.T, d cache.Dir, e *cache.Entry) {
	t.Helper()
	if err := d.Put(e); err != nil {
		t.Fatal(err)
	}
}

// write writes a file among the results and returns its path.
func write(t *testing.T, d cache.Dir, name, content string) string {
	t.Helper()
	path := filepath.Join(string(d), "results", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// all returns the paths of all files below a directory, relative to it.
func all(t *testing.T, dir string) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			path, err = filepath.Rel(dir, path)
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// Put writes the file that libcni writes, with the modes that it uses, and nothing else; Get returns
// the same entry.
func TestPutAndGet(t *testing.T) {
	t.Parallel()
	d := cache.Dir(filepath.Join(t.TempDir(), "cache"))
	e := entry(key)
	e.Netns, e.Result = "/run/netns/x", []byte(`{"cniVersion":"1.0.0"}`)
	e.Args = cni.Args{{Key: "K", Value: "V"}}
	e.CapabilityArgs = map[string]json.RawMessage{"mac": json.RawMessage(`"02:00:00:00:00:aa"`)}
	put(t, d, entry(key))
	put(t, d, e)
	if got := all(t, string(d)); !slices.Equal(got, []string{"results/red-c-1-eth0"}) {
		t.Errorf("files %q", got)
	}
	path, err := d.Path(key)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"kind":"cniCacheV1","containerId":"c-1","config":"eyJuYW1lIjoicmVkIn0=",` +
		`"ifName":"eth0","networkName":"red","netns":"/run/netns/x","cniArgs":[["K","V"]],` +
		`"capabilityArgs":{"mac":"02:00:00:00:00:aa"},"result":{"cniVersion":"1.0.0"}}`
	if diff := cmp.Diff(want, string(b)); diff != "" {
		t.Error(diff)
	}
	for path, mode := range map[string]fs.FileMode{
		path: 0o600, filepath.Dir(path): 0o700 | fs.ModeDir,
	} {
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("%s: mode %v, %v; want %v", path, info.Mode(), err, mode)
		}
	}
	got, err := d.Get(key)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(e, got); diff != "" {
		t.Error(diff)
	}
}

// The key in a file is authoritative: two attachments can share a file name, and neither operation
// on one of them returns or removes the file of the other.
func TestAmbiguousNames(t *testing.T) {
	t.Parallel()
	d := cache.Dir(t.TempDir())
	other := cni.Attachment{Network: "red-c", Container: "1", IfName: "eth0"}
	put(t, d, entry(key))
	if _, err := d.Get(other); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Get: %v", err)
	}
	if err := d.Remove(other); err != nil {
		t.Errorf("Remove: %v", err)
	}
	if _, err := d.Get(key); err != nil {
		t.Errorf("Get after Remove of the other attachment: %v", err)
	}
	put(t, d, entry(other))
	if _, err := d.Get(key); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Get of a replaced file: %v", err)
	}
}

// Get returns a file with an incomplete key, because only the file name names its attachment.
func TestIncompleteKey(t *testing.T) {
	t.Parallel()
	d := cache.Dir(t.TempDir())
	write(t, d, "red-c-1-eth0", `{"kind":"cniCacheV1","networkName":"red"}`)
	if _, err := d.Get(key); err != nil {
		t.Error(err)
	}
	if _, err := d.Get(cni.Attachment{Network: "red-c", Container: "1",
		IfName: "eth0"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Get of another network: %v", err)
	}
}

// Remove removes unreadable files and succeeds without a file.
func TestRemove(t *testing.T) {
	t.Parallel()
	d := cache.Dir(t.TempDir())
	for range 2 {
		if err := d.Remove(key); err != nil {
			t.Error(err)
		}
		if got := all(t, string(d)); got != nil {
			t.Errorf("left %q", got)
		}
		write(t, d, "red-c-1-eth0", "garbage")
	}
}

// SEC-01: the name of a file cannot leave the directory.
func TestPathLikeNames(t *testing.T) {
	t.Parallel()
	d := cache.Dir(t.TempDir())
	for _, a := range []cni.Attachment{
		{Network: "../red", Container: "c", IfName: "eth0"},
		{Network: "red", Container: "../../x", IfName: "eth0"},
		{Network: "red", Container: "c", IfName: "/eth0"},
		{Network: "red", Container: "c", IfName: "eth\x000"},
		{Container: "c", IfName: "eth0"},
		{Network: "red", IfName: "eth0"},
		{Network: "red", Container: "c"},
	} {
		_, getErr := d.Get(a)
		for verb, err := range map[string]error{
			"Get": getErr, "Put": d.Put(entry(a)), "Remove": d.Remove(a),
		} {
			if cni.CodeOf(err) != cni.CodeInvalidEnvironment {
				t.Errorf("%s %q: %v", verb, a, err)
			}
		}
	}
	long := cni.Attachment{Network: strings.Repeat("x", 300), Container: "c", IfName: "eth0"}
	if _, err := d.Get(long); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Get of a long name: %v", err)
	}
	if err := d.Remove(long); err != nil {
		t.Errorf("Remove of a long name: %v", err)
	}
	if err := d.Put(entry(long)); !errors.Is(err, syscall.ENAMETOOLONG) {
		t.Errorf("Put of a long name: %v", err)
	}
	if got := all(t, string(d)); got != nil {
		t.Errorf("left %q", got)
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	d := cache.Dir(t.TempDir())
	if got, err := d.Files(); got != nil || err != nil {
		t.Errorf("without a directory: %q, %v", got, err)
	}
	a, b := write(t, d, "a", ""), write(t, d, "b", "")
	write(t, d, ".draft-1", "")
	if got, err := d.Files(); err != nil || !slices.Equal(got, []string{a, b}) {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := cache.ReadFile(a); err == nil {
		t.Error("an empty file is an entry")
	}
	unusable := cache.Dir(filepath.Join(string(d), "file"))
	if err := os.MkdirAll(string(unusable), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(string(unusable), "results"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := unusable.Files(); err == nil {
		t.Error("a file as directory is listed")
	}
	if err := unusable.Put(entry(key)); err == nil {
		t.Error("an entry is stored in a file")
	}
}

// The error for a file in another format has its content and its kind.
func TestFormatError(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"":                         "unexpected end of JSON input",
		"{}":                       `kind is missing, not "cniCacheV1"`,
		`{"cniVersion":"0.4.0"}`:   `kind is missing, not "cniCacheV1"`,
		`{"kind":"cniCacheV2"}`:    `kind is "cniCacheV2", not "cniCacheV1"`,
		`{"kind":5}`:               `kind is 5, not "cniCacheV1"`,
		`{"kind":"cniCacheV1","x"`: "unexpected end of JSON input",
	} {
		_, err := cache.Decode([]byte(content))
		format := (*cache.FormatError)(nil)
		if !errors.As(err, &format) || string(format.Content) != content || err.Error() != want {
			t.Errorf("%s: %v, want %q", content, err, want)
		}
	}
}

// A failed Put keeps the old file and leaves no draft. Put removes the draft of a killed process,
// but neither a young one, which another process may be writing, nor other files.
func TestDrafts(t *testing.T) {
	t.Parallel()
	d := cache.Dir(t.TempDir())
	if err := os.MkdirAll(filepath.Join(string(d), "results", "red-c-1-eth0", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.Put(entry(key)); err == nil {
		t.Error("Put replaced a directory")
	}
	if got := all(t, string(d)); got != nil {
		t.Errorf("left %q", got)
	}
	long := time.Now().Add(-time.Hour)
	for name, at := range map[string]time.Time{
		"../.draft-killed": long, "../.draft-young": time.Now(), "../other": long,
	} {
		if err := os.Chtimes(write(t, d, name, "x"), at, at); err != nil {
			t.Fatal(err)
		}
	}
	put(t, d, entry(cni.Attachment{Network: "red", Container: "c-2", IfName: "eth0"}))
	want := []string{".draft-young", "other", "results/red-c-2-eth0"}
	if got := all(t, string(d)); !slices.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
}

// Readers never see a partial file while another goroutine replaces it.
func TestConcurrentReaders(t *testing.T) {
	t.Parallel()
	d := cache.Dir(t.TempDir())
	e := entry(key)
	e.Config = []byte(strings.Repeat("x", 1<<16))
	put(t, d, e)
	done := make(chan error)
	go func() {
		var err error
		for range 50 {
			err = errors.Join(err, d.Put(e))
		}
		done <- err
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		default:
			if _, err := d.Get(key); err != nil {
				t.Error(err)
			}
		}
	}
}

// SEC-05: any program can write a file in the cache of libcni.
func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("../../conformance/examples/cache-*.json")
	if err != nil || files == nil {
		f.Fatal(files, err)
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := cache.Decode(b)
		if err != nil {
			return
		}
		out, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := cache.Decode(out)
		if err != nil {
			t.Fatal(err)
		}
		if out2, err := again.Encode(); err != nil || string(out2) != string(out) {
			t.Errorf("%s, %v; want %s", out2, err, out)
		}
	})
}
