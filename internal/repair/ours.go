package repair

import (
	"bytes"
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
		own = IsOurs(path)
		o[path] = own
	}
	return own
}

// IsOurs reports whether an executable is this program or another build of it; one that does not exist counts. It looks for the line in an executable by which Go notes its main module; package debug/buildinfo, which reads it
// properly, is larger than any plugin.
func IsOurs(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	if self, err := os.Stat("/proc/self/exe"); err == nil && os.SameFile(self, info) {
		return true
	}
	program, err := os.ReadFile(path)
	return err == nil && bytes.Contains(program, append([]byte("\nmod\t"), module+"\t"...))
}
