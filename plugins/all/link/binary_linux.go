package link

import (
	"debug/buildinfo"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// mainPackage is the import path of the program that is installed as the plugins.
const mainPackage = "github.com/tenon-cni/tenon/cmd/tenon"

// binaries remembers which files are Tenon's. The zero value is ready for use.
type binaries struct {
	mu    sync.Mutex
	tenon map[identity]bool
}

// maxKnown limits the number of remembered files: more than a plugin directory has, so that only a
// long series of upgrades reaches it.
const maxKnown = 1024

// identity changes when a file is replaced or written.
type identity struct {
	device, inode   uint64
	size            int64
	written, change unix.Timespec
}

func identityOf(st *unix.Stat_t) identity {
	return identity{uint64(st.Dev), st.Ino, st.Size, st.Mtim, st.Ctim}
}

// accepts reports whether the file at a path, following symbolic links, is Tenon's and executable.
func (b *binaries) accepts(path string) bool {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil || !executable(&st) {
		return false
	}
	id := identityOf(&st)
	b.mu.Lock()
	answer, known := b.tenon[id]
	b.mu.Unlock()
	if known {
		return answer
	}
	return b.read(path)
}

// read reads the build information of a file, and remembers the answer for the file that it has
// opened.
func (b *binaries) read(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil || !executable(&st) {
		return false
	}
	info, err := buildinfo.Read(f)
	answer := err == nil && info.Path == mainPackage
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tenon == nil || len(b.tenon) >= maxKnown {
		b.tenon = map[identity]bool{}
	}
	b.tenon[identityOf(&st)] = answer
	return answer
}

// executable reports whether a file is a regular file with an execute bit. Executing any other file
// fails with the same error as in a program without this package.
func executable(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o111 != 0
}
