//go:build unix

package statefile_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/statefile"
)

// All functions refuse FIFOs, sockets, devices, directories, and links to them without
// blocking.
func TestRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	socket, err := net.Listen("unix", in("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	err = errors.Join(unix.Mkfifo(in("fifo"), 0o600), os.Symlink("fifo", in("link")),
		os.Mkdir(in("dir"), 0o700))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{
		in("fifo"): statefile.ErrNotRegular, in("link"): statefile.ErrNotRegular,
		in("socket"): statefile.ErrNotRegular,
		"/dev/null":  statefile.ErrNotRegular, in("dir"): unix.EISDIR, in("none"): nil,
	} {
		_, read := statefile.ReadFile(path)
		_, both := statefile.Open(path, os.O_RDWR, 0o600)
		errs := map[string]error{"read": read, "open": both}
		if want != nil {
			errs["write"] = statefile.WriteFile(path, []byte("x"), 0o600)
		} else {
			want = fs.ErrNotExist
		}
		for how, err := range errs {
			var pathError *fs.PathError
			if !errors.Is(err, want) || !errors.As(err, &pathError) || pathError.Path != path {
				t.Errorf("%s %s: %v, want %v", how, path, err, want)
			}
		}
	}
}

// Regular files are written and read as a whole.
func TestRegularFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	for _, content := range []string{"longer than the next", "short", ""} {
		err := statefile.WriteFile(path, []byte(content), 0o600)
		b, errRead := statefile.ReadFile(path)
		if err := errors.Join(err, errRead); err != nil || string(b) != content {
			t.Errorf("%q, %v; want %q", b, err, content)
		}
	}
	f, err := statefile.Open(path, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0); err != nil ||
		flags&unix.O_NONBLOCK != 0 {
		t.Errorf("flags %#x, %v", flags, err)
	}
}
