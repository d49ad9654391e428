package filestore

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// openLocked opens the directory at path and locks the file lock in it, as the upstream plugin does. wait is called where
// somebody else has the lock. It starts again when the directory was removed while it waited.
func openLocked(path string, wait func(*os.File) error) (*dir, *os.File, error) {
	for {
		d, err := openDir(path)
		if err != nil {
			return nil, nil, err
		}
		lock, err := d.openFile("lock", unix.O_RDONLY|unix.O_CREAT, 0o750)
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
	errBusy    = errors.New("somebody else is at work")
)

// acquire locks f. On error f is closed, if need be later, when the lock is granted that nobody waits for any more.
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

// await blocks a thread of its own, which cannot be interrupted, so the others take their turns in the kernel's order.
func await(ctx context.Context, f *os.File) error {
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

// giveUp does not wait.
func giveUp(f *os.File) error { return errors.Join(errBusy, f.Close()) }

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}
