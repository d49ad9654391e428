package repair

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
)

const module = "github.com/tenon-cni/tenon"

// ours caches the results of [IsOurs]. A plugin in a file for which IsOurs returns true makes the
// same rules as the plugin of that name in this program.
type ours map[string]bool

func (o ours) has(path string) bool {
	own, known := o[path]
	if !known {
		own = IsOurs(path)
		o[path] = own
	}
	return own
}

// IsOurs reports whether an executable file is this program, another build of its module, or a
// program of a module below cmd. It also returns true for a file that does not exist, because that plugin can only be part of this
// program. IsOurs searches the file for the line in which Go records the main module; package
// debug/buildinfo, which decodes it, is larger than any plugin.
func IsOurs(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	if self, err := os.Stat("/proc/self/exe"); err == nil && os.SameFile(self, info) {
		return true
	}
	program, err := os.ReadFile(path)
	return err == nil && (bytes.Contains(program, []byte("\nmod\t"+module+"\t")) ||
		bytes.Contains(program, []byte("\nmod\t"+module+"/cmd/")))
}
