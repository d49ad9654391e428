package events

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// files watches directories, and a file that programs lock, with inotify(7). A path that does not
// exist may be created later; until then it watches the nearest directory above.
type files struct {
	file *os.File
	conn syscall.RawConn
	lock string // "" for none

	buffer []byte

	mu    sync.Mutex
	dirs  []string
	armed map[string]int // descriptors of watched paths, also of those above missing ones
	roles map[int]role   // by descriptor
}

// role is why a path is watched.
type role int

const (
	above     role = iota // of a missing path
	directory             // its entries are of interest
	locked                // it is the lock
)

func openFiles(lock string) (*files, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w", err)
	}
	f := &files{file: os.NewFile(uintptr(fd), "inotify"), lock: lock, buffer: make([]byte, 64<<10)}
	if f.conn, err = f.file.SyscallConn(); err == nil {
		_, err = f.arm()
	}
	if err != nil {
		f.file.Close()
		return nil, err
	}
	return f, nil
}

// Watch replaces the directories that the source watches. It returns an error if it cannot watch
// one of them, for example because the user has used up all inotify watches.
func (s *Source) Watch(dirs []string) error {
	f := s.files
	f.mu.Lock()
	f.dirs = dirs
	f.mu.Unlock()
	appeared, err := f.arm()
	if appeared {
		s.add(func(b *Batch) { b.Files = true })
	}
	return err
}

// next waits for changes. changed reports changes in the directories, and unlocked that a program
// has closed the lock.
func (f *files) next() (changed, unlocked bool, err error) {
	n, err := f.file.Read(f.buffer)
	if err != nil {
		return false, false, fmt.Errorf("inotify: %w", err)
	}
	f.mu.Lock()
	for b := f.buffer[:n]; len(b) >= unix.SizeofInotifyEvent; {
		descriptor := int(int32(binary.NativeEndian.Uint32(b)))
		mask := binary.NativeEndian.Uint32(b[4:])
		size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
		r, known := f.roles[descriptor]
		lost := mask&unix.IN_Q_OVERFLOW != 0
		changed = changed || lost || known && r == directory
		unlocked = unlocked || lost || known && r == locked
		b = b[min(size, len(b)):]
	}
	f.mu.Unlock()
	appeared, err := f.arm()
	return changed || appeared, unlocked || appeared, err
}

// arm watches all paths, or directories above them. It is fast if it has done so before, because
// the kernel watches inodes and returns the descriptor that one has. appeared reports that a path
// has been created or replaced, so that changes may have been missed.
func (f *files) arm() (appeared bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.armed
	armed, roles := map[string]int{}, map[int]role{}
	for _, dir := range f.dirs {
		err = errors.Join(err, f.add(armed, roles, dir, directory))
	}
	if f.lock != "" {
		err = errors.Join(err, f.add(armed, roles, f.lock, locked))
	}
	for path, descriptor := range armed {
		if roles[descriptor] == above {
			continue
		}
		if old, known := before[path]; known && old != descriptor || !known && before != nil {
			appeared = true
		}
	}
	f.armed, f.roles = armed, roles
	return appeared, err
}

// add watches a path, or the nearest directory above that exists.
func (f *files) add(armed map[string]int, roles map[int]role, path string, r role) error {
	mask := uint32(unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR)
	if r == locked {
		mask = unix.IN_CLOSE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	}
	descriptor, err := f.watch(path, mask)
	switch {
	case errors.Is(err, fs.ErrNotExist) && filepath.Dir(path) != path:
		return f.add(armed, roles, filepath.Dir(path), above)
	case err != nil:
		return fmt.Errorf("inotify of %s: %w", path, err)
	}
	armed[path] = descriptor
	roles[descriptor] = max(roles[descriptor], r)
	return nil
}

func (f *files) watch(path string, mask uint32) (descriptor int, err error) {
	failed := f.conn.Control(func(fd uintptr) {
		descriptor, err = unix.InotifyAddWatch(int(fd), path, mask)
	})
	return descriptor, errors.Join(failed, err)
}
