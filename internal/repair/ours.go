package repair

import (
	"debug/buildinfo"
	"errors"
	"io/fs"
	"os"
)

const module = "github.com/tenon-cni/tenon"

// ours remembers which executables are this program or one that was built from the same module: then a plugin in it made
// what the plugin of that name here would make. One that does not exist can only be part of this program.
type ours map[string]bool

func (o ours) has(path string) bool {
	own, known := o[path]
	if !known {
		own = isOurs(path)
		o[path] = own
	}
	return own
}

func isOurs(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	if self, err := os.Stat("/proc/self/exe"); err == nil && os.SameFile(self, info) {
		return true
	}
	built, err := buildinfo.ReadFile(path)
	return err == nil && built.Main.Path == module
}
