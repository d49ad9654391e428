package statefile

import (
	"os"
	"syscall"
)

const nonBlock = 0

func check(f *os.File) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return syscall.EISDIR
	case !info.Mode().IsRegular():
		return ErrNotRegular
	}
	return nil
}
