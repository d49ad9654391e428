package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// inotify watches with inotify(7). The kernel watches inodes, not paths: a directory that was
// replaced must be watched again.
type inotify struct {
	file  *os.File
	armed map[int]bool  // watch descriptors
	ended chan struct{} // closed when the reader has ended
}

// inotifyMask selects the creation, removal and renaming of files, the closing of written files,
// changes of attributes, and changes of the directory itself.
const inotifyMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
	unix.IN_CLOSE_WRITE | unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// newWatcher returns a watcher that sends to events on a change, unless the channel still holds an
// earlier event.
func newWatcher(events chan<- struct{}) (watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w", err)
	}
	w := &inotify{file: os.NewFile(uintptr(fd), "inotify"), armed: map[int]bool{},
		ended: make(chan struct{})}
	go w.read(events)
	return w, nil
}

// read sends an event for each batch of changes until the file is closed.
func (w *inotify) read(events chan<- struct{}) {
	defer close(w.ended)
	buf := make([]byte, 64<<10)
	for {
		if _, err := w.file.Read(buf); err != nil {
			return
		}
		select {
		case events <- struct{}{}:
		default:
		}
	}
}

func (w *inotify) watch(dirs []string) (more bool, err error) {
	conn, err := w.file.SyscallConn()
	if err != nil {
		return false, err
	}
	var errs []error
	now := map[int]bool{}
	err = conn.Control(func(fd uintptr) {
		for _, dir := range dirs {
			wd, err := unix.InotifyAddWatch(int(fd), dir, inotifyMask)
			switch {
			case err == nil:
				now[wd] = true
				more = more || !w.armed[wd]
			case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR):
				errs = append(errs, fmt.Errorf("inotify of %s: %w", dir, err))
			}
		}
		for wd := range w.armed {
			if !now[wd] {
				// the kernel has removed it if the directory is gone
				_, _ = unix.InotifyRmWatch(int(fd), uint32(wd))
			}
		}
	})
	w.armed = now
	return more, errors.Join(append(errs, err)...)
}

// Close stops watching.
func (w *inotify) Close() error {
	err := w.file.Close()
	<-w.ended
	return err
}
