package repair

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
)

const module = "github.com/tenon-cni/tenon"

// ours remembers for which paths [IsOurs] returns true. The plugin in such a file makes what the plugin of that name in
// this program would make.
type ours map[string]bool

func (o ours) has(path string) bool {
	own, known := o[path]
	if !known {
		own = IsOurs(path)
		o[path] = own
	}
	return own
}

// IsOurs reports whether an executable file is this program or another build of its module. A file that does not exist can
// only be part of this program, so it counts. IsOurs searches the file for the line by which Go notes the main module:
// package debug/buildinfo, which decodes it, is larger than any plugin.
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
