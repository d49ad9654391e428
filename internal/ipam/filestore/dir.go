package filestore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/statefile"
)

// dir is an open directory. Its methods do not follow symbolic links.
type dir struct {
	fd   int
	path string
}

// missing is the descriptor of a directory that does not exist; no file exists in it either.
const missing = -1

func openDir(path string) (*dir, error) {
	fd, err := openat(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return &dir{fd, path}, nil
}

func openat(at int, path string, flags int, mode uint32) (int, error) {
	if at == missing {
		return missing, unix.ENOENT
	}
	for {
		fd, err := unix.Openat(at, path, flags|unix.O_CLOEXEC, mode)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

func (d *dir) close() {
	if d.fd != missing {
		_ = unix.Close(d.fd)
	}
	d.fd = missing
}

func (d *dir) name(name string) string { return filepath.Join(d.path, name) }

// fail adds the operation and the path to err.
func (d *dir) fail(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: d.name(name), Err: err}
}

func (d *dir) open(name string, flags int, mode uint32) (int, error) {
	fd, err := openat(d.fd, name, flags|unix.O_NOFOLLOW, mode)
	return fd, d.fail("open", name, err)
}

// openFile opens a regular file. The error wraps [statefile.ErrNotRegular] if the name belongs to
// anything else.
func (d *dir) openFile(name string, flags int, mode uint32) (*os.File, error) {
	fd, err := d.open(name, flags|unix.O_NONBLOCK, mode)
	if errors.Is(err, unix.ENXIO) { // a FIFO without a reader, opened for writing
		err = d.fail("open", name, statefile.ErrNotRegular)
	}
	if err != nil {
		return nil, err
	}
	if err := statefile.Check(fd); err != nil {
		_ = unix.Close(fd)
		return nil, d.fail("open", name, err)
	}
	return os.NewFile(uintptr(fd), d.name(name)), nil
}

// sub opens a directory in d. On error the result is a missing directory.
func (d *dir) sub(name string) (*dir, error) {
	fd, err := d.open(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		fd = missing
	}
	return &dir{fd, d.name(name)}, err
}

func (d *dir) names() ([]string, error) {
	fd, err := d.open(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), d.path)
	defer f.Close()
	return statefile.Names(f)
}

func (d *dir) stat(name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	if d.fd == missing {
		return st, d.fail("stat", name, unix.ENOENT)
	}
	err := unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, d.fail("stat", name, err)
}

func (d *dir) remove(name string) error {
	return d.fail("remove", name, unix.Unlinkat(d.fd, name, 0))
}

// file is the content and the metadata of a regular file.
type file struct {
	content  []byte
	boot     string // see statefile.BootOf
	modified time.Time
}

// maxContent exceeds the size of every file that is read as a whole: a string of the environment,
// and therefore a container ID, has at most 128 KiB (MAX_ARG_STRLEN), and the bits of a bitmap have
// at most 128 KiB.
const maxContent = 129 << 10

// errStrange reports a file that host-local cannot have written.
var errStrange = errors.New("not a small regular file")

// read reads a whole file. The error wraps errStrange or ELOOP if no implementation of host-local
// has written the file.
func (d *dir) read(name string) (file, error) {
	fd, err := d.open(name, unix.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO does not block
	if err != nil {
		return file{}, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return file{}, d.fail("stat", name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > maxContent {
		return file{}, d.fail("read", name, errStrange)
	}
	content, err := readFull(fd, make([]byte, st.Size))
	if err != nil {
		return file{}, d.fail("read", name, err)
	}
	return file{content, statefile.BootOf(fd), time.Unix(st.Mtim.Unix())}, nil
}

func readFull(fd int, b []byte) ([]byte, error) {
	for have := 0; have < len(b); {
		switch n, err := unix.Read(fd, b[have:]); {
		case err == unix.EINTR:
		case err != nil:
			return nil, err
		case n == 0:
			return b[:have], nil
		default:
			have += n
		}
	}
	return b, nil
}

// put creates a new file with this content and the boot. It removes a file that a killed process
// left under the name instead of writing to it, because it may be a second link to an address file.
func (d *dir) put(name string, content []byte, id string) error {
	_ = d.remove(name)
	return d.create(name, content, id)
}

// create creates a file with this content and the boot. The error wraps fs.ErrExist if the name
// exists. After any other error the file does not exist.
func (d *dir) create(name string, content []byte, id string) error {
	f, err := d.openFile(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	statefile.MarkBoot(int(f.Fd()), id)
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = d.remove(name)
	}
	return err
}

// replace replaces a file atomically: a reader sees either the old or the new content.
func (d *dir) replace(name string, content []byte) error {
	unfinished := name + ".new"
	if err := d.put(unfinished, content, ""); err != nil {
		return err
	}
	return d.fail("rename", unfinished, unix.Renameat(d.fd, unfinished, d.fd, name))
}
