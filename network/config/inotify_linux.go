package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// inotify watches with inotify(7). The kernel watches directories, not paths: those that are gone have to be given again when
// there are others in their place.
type inotify struct {
	file  *os.File
	armed map[int]bool  // watch descriptors
	ended chan struct{} // nobody reads any more
}

// inotifyMask selects files that come and go, files that writers close, permissions, and the directory itself.
const inotifyMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_CLOSE_WRITE | unix.IN_ATTRIB |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// newWatcher returns a watcher that sends to events on a change, unless the channel still holds the event before.
func newWatcher(events chan<- struct{}) (watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w", err)
	}
	w := &inotify{file: os.NewFile(uintptr(fd), "inotify"), armed: map[int]bool{}, ended: make(chan struct{})}
	go w.read(events)
	return w, nil
}

// read ends when the file is closed.
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
				_, _ = unix.InotifyRmWatch(int(fd), uint32(wd)) // the kernel has removed it if the directory is gone
			}
		}
	})
	w.armed = now
	return more, errors.Join(append(errs, err)...)
}

// Close ends the watch.
func (w *inotify) Close() error {
	err := w.file.Close()
	<-w.ended
	return err
}
