package invoke

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/tenon-cni/tenon/cni"
)

// Finder is a [Caller] that has a look-up of its own, such as one that calls plugins which are no files.
type Finder interface {
	Find(paths []string, typ string) (string, error)
}

// ErrNotFound is what a look-up of an executable that is not there wraps, to test for with [errors.Is].
var ErrNotFound = errors.New("not found")

// Lookup finds the executable of a plugin for c: with c's own Find if c is a [Finder], else with [Find].
func Lookup(c Caller, paths []string, typ string) (string, error) {
	if f, ok := c.(Finder); ok {
		return f.Find(paths, typ)
	}
	return Find(paths, typ)
}

// Find returns the path of the executable of a plugin type: the first regular file of that name in
// paths, symbolic links followed (specification 1.0.0, "Execution Protocol"). The execute bit is not
// consulted: a file that lacks it fails to start rather than being passed over for a namesake. Where there is none the
// error is [ErrNotFound]. The code of an error is [cni.CodeInvalidConfig].
func Find(paths []string, typ string) (string, error) {
	if err := cni.ValidatePluginType(typ); err != nil {
		return "", err
	}
	var searched []string
	for _, dir := range paths {
		if dir == "" {
			continue
		}
		path := filepath.Join(dir, typ)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
		searched = append(searched, dir)
	}
	if searched == nil {
		return "", cni.Errorf(cni.CodeInvalidConfig, "plugin %q %w: there are no plugin folders to search", typ, ErrNotFound).
			WithDetails("set the plugin folders (CNI_PATH)")
	}
	return "", cni.Errorf(cni.CodeInvalidConfig, "plugin %q %w in %s", typ, ErrNotFound, strings.Join(searched, ", ")).
		WithDetails("install the plugin there or add its folder to the plugin folders (CNI_PATH)")
}
