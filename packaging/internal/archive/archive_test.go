package archive_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/packaging/internal/archive"
)

func TestWriteTarGz(t *testing.T) {
	t.Parallel()
	source := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(source, []byte("binary"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := []archive.File{
		{Path: "share/man/man8/tenon.8", Data: []byte("manual")},
		{Path: "bin/tenon", Source: source, Mode: 0o755},
		{Path: "cni/bridge", Link: "../bin/tenon"},
		{Path: "LICENSE", Data: nil},
	}
	first := write(t, files)
	files[0], files[3] = files[3], files[0]
	if err := os.Chtimes(source, time.Now(), time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, write(t, files)) {
		t.Error("the archive depends on the order of files or on their times")
	}
	const want = `d 755 root:root 0:0 1700000000 top/ 
- 644 root:root 0:0 1700000000 top/LICENSE 
d 755 root:root 0:0 1700000000 top/bin/ 
- 755 root:root 0:0 1700000000 top/bin/tenon binary
d 755 root:root 0:0 1700000000 top/cni/ 
L 777 root:root 0:0 1700000000 top/cni/bridge ../bin/tenon
d 755 root:root 0:0 1700000000 top/share/ 
d 755 root:root 0:0 1700000000 top/share/man/ 
d 755 root:root 0:0 1700000000 top/share/man/man8/ 
- 644 root:root 0:0 1700000000 top/share/man/man8/tenon.8 manual
`
	if got := list(t, first); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestDuplicates(t *testing.T) {
	t.Parallel()
	err := archive.WriteTarGz(io.Discard, "top", time.Now(),
		[]archive.File{{Path: "a"}, {Path: "b"}, {Path: "a"}})
	if err == nil || !strings.Contains(err.Error(), "a: listed twice") {
		t.Errorf("two files with one path: %v", err)
	}
}

func TestMissingSource(t *testing.T) {
	t.Parallel()
	err := archive.WriteTarGz(io.Discard, "top", time.Now(),
		[]archive.File{{Path: "a", Source: filepath.Join(t.TempDir(), "missing")}})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing source: %v", err)
	}
}

func write(t *testing.T, files []archive.File) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := archive.WriteTarGz(&b, "top", time.Unix(1700000000, 0), files); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// list describes the entries of an archive, one per line.
func list(t *testing.T, content []byte) string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	if !z.ModTime.IsZero() || z.Name != "" {
		t.Errorf("the gzip header has time %v and name %q", z.ModTime, z.Name)
	}
	var b strings.Builder
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return b.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %o %s:%s %d:%d %d %s %s%s\n", h.FileInfo().Mode().String()[:1], h.Mode,
			h.Uname, h.Gname, h.Uid, h.Gid, h.ModTime.Unix(), h.Name, h.Linkname, content)
	}
}
