package invoke

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/tenon-cni/tenon/cni"
)

// Finder is a [Caller] with its own look-up, for example for plugins that are not files.
type Finder interface {
	Find(paths []string, typ string) (string, error)
}

// ErrNotFound is wrapped by the errors of a look-up that finds no plugin. Test for it with
// [errors.Is].
var ErrNotFound = errors.New("not found")

// Lookup returns the path of the binary of a plugin for c, with the Find method of c if c is a
// [Finder], else with [Find].
func Lookup(c Caller, paths []string, typ string) (string, error) {
	if f, ok := c.(Finder); ok {
		return f.Find(paths, typ)
	}
	return Find(paths, typ)
}

// linkedPrefix is not a directory, and CNI_PATH cannot name it, because CNI_PATH splits at colons.
const linkedPrefix = "linked:/"

// LinkedPath returns a path for a plugin that is linked into this program, for callers that choose
// such a plugin without a file. No file has this path.
func LinkedPath(typ string) string { return linkedPrefix + typ }

// LinkedType returns the plugin type in a path of [LinkedPath]; ok is false for the path of a file.
func LinkedType(path string) (typ string, ok bool) { return strings.CutPrefix(path, linkedPrefix) }

// Find returns the path of the binary of a plugin type: the first regular file of that name in
// paths, following symbolic links (specification 1.0.0, "Execution Protocol"). Find ignores the
// execute bit: a file without it fails to start, and Find does not search for another file of the
// same name. On Windows the file may also be named TYPE.exe. If there is no file, the error wraps
// [ErrNotFound]. The code of all errors is [cni.CodeInvalidConfig].
func Find(paths []string, typ string) (string, error) {
	if err := cni.ValidatePluginType(typ); err != nil {
		return "", err
	}
	var searched []string
	for _, dir := range paths {
		if dir == "" {
			continue
		}
		for _, ext := range extensions() {
			path := filepath.Join(dir, typ+ext)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				return path, nil
			}
		}
		searched = append(searched, dir)
	}
	if searched == nil {
		return "", cni.Errorf(cni.CodeInvalidConfig,
			"plugin %q %w: there are no plugin directories to search", typ, ErrNotFound).
			WithDetails("set the plugin directories (CNI_PATH)")
	}
	return "", cni.Errorf(cni.CodeInvalidConfig,
		"plugin %q %w in %s", typ, ErrNotFound, strings.Join(searched, ", ")).
		WithDetails("install the plugin there " +
			"or add its directory to the plugin directories (CNI_PATH)")
}

const windowsExt = ".exe"

// extensions returns the possible extensions of a plugin's file name, in order of preference.
func extensions() []string {
	if runtime.GOOS == "windows" {
		return []string{windowsExt, ""}
	}
	return []string{""}
}

// typeOf returns the type of the plugin at a path.
func typeOf(path string) string {
	name := filepath.Base(path)
	if runtime.GOOS == "windows" {
		name = strings.TrimSuffix(name, windowsExt)
	}
	return name
}
