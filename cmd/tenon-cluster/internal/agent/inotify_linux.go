package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// addressMask selects the creation and removal of reservations.
const addressMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_TO | unix.IN_ONLYDIR

// WatchAddresses returns a function for [Options.Changes] that watches the reservations in the
// directory of a node with inotify(7).
func WatchAddresses(dir string) func(ctx context.Context, changed func(pool string)) error {
	return func(ctx context.Context, changed func(pool string)) error {
		root := filepath.Join(dir, "addresses")
		if err := os.MkdirAll(root, 0o700); err != nil {
			return err
		}
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
		if err != nil {
			return fmt.Errorf("inotify: %w", err)
		}
		w := addressWatch{file: os.NewFile(uintptr(fd), "inotify"), root: root, pools: map[int]string{}}
		stop := context.AfterFunc(ctx, func() { w.file.Close() })
		defer stop()
		defer w.file.Close()
		return w.run(changed)
	}
}

// addressWatch watches the directory of the pools and one directory for each pool.
type addressWatch struct {
	file  *os.File
	root  string
	top   int            // watch descriptor of root
	pools map[int]string // pools by watch descriptor
}

// run reads events until the file is closed.
func (w *addressWatch) run(changed func(pool string)) (err error) {
	if w.top, err = w.add(w.root); err != nil {
		return err
	}
	entries, err := os.ReadDir(w.root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		w.addPool(e.Name(), changed)
	}
	buffer := make([]byte, 64<<10)
	for {
		n, err := w.file.Read(buffer)
		if err != nil {
			return err
		}
		w.dispatch(buffer[:n], changed)
	}
}

// add watches a directory.
func (w *addressWatch) add(path string) (wd int, err error) {
	conn, err := w.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var addErr error
	err = conn.Control(func(fd uintptr) {
		wd, addErr = unix.InotifyAddWatch(int(fd), path, addressMask)
	})
	return wd, errors.Join(err, addErr)
}

// addPool watches the directory of a pool, and reports it, because reservations may have been made
// before. A directory that no longer exists is no error.
func (w *addressWatch) addPool(name string, changed func(pool string)) {
	if wd, err := w.add(filepath.Join(w.root, name)); err == nil {
		w.pools[wd] = name
		changed(name)
	}
}

// dispatch reports the pools of a batch of events, each once.
func (w *addressWatch) dispatch(events []byte, changed func(pool string)) {
	seen := map[string]bool{}
	for len(events) >= unix.SizeofInotifyEvent {
		e := (*unix.InotifyEvent)(unsafe.Pointer(&events[0]))
		end := unix.SizeofInotifyEvent + int(e.Len)
		name := unix.ByteSliceToString(events[unix.SizeofInotifyEvent:end])
		events = events[end:]
		switch pool, ok := w.pools[int(e.Wd)]; {
		case int(e.Wd) == w.top:
			w.addPool(name, changed)
		case ok && e.Mask&unix.IN_IGNORED != 0:
			delete(w.pools, int(e.Wd))
		case ok && !seen[pool]:
			seen[pool] = true
			changed(pool)
		}
	}
}
