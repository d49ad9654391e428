package invoke

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
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

// linkedPrefix is not a directory, and CNI_PATH cannot name it, because CNI_PATH splits at colons.
const linkedPrefix = "linked:/"

// LinkedPath returns what stands for the path of a plugin that is part of this program, where a caller calls such plugins
// by choice and not because of a file. There is no file of that name.
func LinkedPath(typ string) string { return linkedPrefix + typ }

// LinkedType returns the type of the plugin that a path of [LinkedPath] stands for; ok is false for a file.
func LinkedType(path string) (typ string, ok bool) { return strings.CutPrefix(path, linkedPrefix) }

// Find returns the path of the executable of a plugin type: the first regular file of that name in
// paths, symbolic links followed (specification 1.0.0, "Execution Protocol"). Find ignores the
// execute bit: a file that lacks it fails to start, and Find does not look for a namesake. If there
// is no file the error is [ErrNotFound]. The code of an error is [cni.CodeInvalidConfig].
// On Windows the file may also be called TYPE.exe.
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
		return "", cni.Errorf(cni.CodeInvalidConfig, "plugin %q %w: there are no plugin folders to search", typ, ErrNotFound).
			WithDetails("set the plugin folders (CNI_PATH)")
	}
	return "", cni.Errorf(cni.CodeInvalidConfig, "plugin %q %w in %s", typ, ErrNotFound, strings.Join(searched, ", ")).
		WithDetails("install the plugin there or add its folder to the plugin folders (CNI_PATH)")
}

const windowsExt = ".exe"

// extensions returns what the name of the executable of a plugin may have behind its type, first
// choice first.
func extensions() []string {
	if runtime.GOOS == "windows" {
		return []string{windowsExt, ""}
	}
	return []string{""}
}

// typeOf returns the type of the plugin that a path leads to.
func typeOf(path string) string {
	name := filepath.Base(path)
	if runtime.GOOS == "windows" {
		name = strings.TrimSuffix(name, windowsExt)
	}
	return name
}
