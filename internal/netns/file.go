package netns

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// ReadFile returns the contents of a small file in /proc; files about the network show the
// namespace of the calling thread. ReadFile needs a third of the system calls of [os.ReadFile], and
// does not start the poller of the Go runtime.
func ReadFile(path string) (contents string, err error) {
	err = withFile(path, unix.O_RDONLY, "read", func(fd int) error {
		var all []byte
		for buf := make([]byte, 512); ; {
			n, err := unix.Read(fd, buf)
			switch {
			case err == unix.EINTR:
			case err != nil:
				return err
			case n == 0:
				contents = string(all)
				return nil
			default:
				all = append(all, buf[:n]...)
			}
		}
	})
	return contents, err
}

// WriteFile writes contents to a file in /proc with a single system call.
func WriteFile(path, contents string) error {
	return withFile(path, unix.O_WRONLY, "write", func(fd int) error {
		for {
			if _, err := unix.Write(fd, []byte(contents)); err != unix.EINTR {
				return err
			}
		}
	})
}

// withFile calls do with an open file. It wraps errors of its own and of do with the name of the
// operation.
func withFile(path string, flags int, op string, do func(fd int) error) error {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &fs.PathError{Op: "open", Path: path, Err: err}
		}
		defer unix.Close(fd)
		if err := do(fd); err != nil {
			return &fs.PathError{Op: op, Path: path, Err: err}
		}
		return nil
	}
}
