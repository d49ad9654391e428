package filestore

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/trace"
)

// openLocked opens the directory at path and locks the file lock in it, like upstream, which it
// opens with flags. It calls wait if another process has the lock. If the directory is removed
// meanwhile, it starts again.
func openLocked(path string, flags int, wait func(*os.File) error) (*dir, *os.File, error) {
	for {
		d, err := openDir(path)
		if err != nil {
			return nil, nil, err
		}
		lock, err := d.openFile("lock", unix.O_RDONLY|flags, 0o750)
		if errors.Is(err, fs.ErrNotExist) && flags == 0 { // no process has ever changed the directory
			return d, nil, errBusy
		}
		if err == nil {
			err = acquire(lock, wait)
		}
		if err == nil {
			return d, lock, nil
		}
		if errors.Is(err, errBusy) {
			return d, nil, err
		}
		d.close()
		if !errors.Is(err, errRemoved) {
			return nil, nil, err
		}
	}
}

var (
	errRemoved = errors.New("lock was removed")
	errBusy    = errors.New("another process holds the lock")
)

// acquire locks f. On error it closes f; after an interrupted wait, f is closed when the lock is
// granted.
func acquire(f *os.File, wait func(*os.File) error) error {
	switch err := flock(f, unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		if err := wait(f); err != nil {
			return &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
	case err != nil:
		return errors.Join(&fs.PathError{Op: "lock", Path: f.Name(), Err: err}, f.Close())
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err == nil && st.Nlink > 0 {
		return nil
	}
	return errors.Join(errRemoved, f.Close())
}

// await blocks a separate thread, which cannot be interrupted, so that the kernel grants the lock
// in order.
func await(ctx context.Context, f *os.File) (err error) {
	if s := trace.From(ctx); s != nil {
		wait := s.Waiting("lock", "lock "+f.Name())
		defer func() { wait.End(err) }()
	}
	result := make(chan error)
	go func() {
		err := flock(f, unix.LOCK_EX)
		select {
		case result <- err:
		case <-ctx.Done():
			_ = f.Close()
		}
	}()
	select {
	case err := <-result:
		if err != nil {
			return errors.Join(err, f.Close())
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// giveUp returns errBusy instead of waiting.
func giveUp(f *os.File) error { return errors.Join(errBusy, f.Close()) }

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}
