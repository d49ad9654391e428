package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/internal/statefile"
)

// fingerprint identifies a state of a directory: the identities of the files in it that are read,
// by path. For directories it holds only device and inode, because any temporary file changes their
// times.
type fingerprint map[string]statefile.Identity

// view is a state of directories, and the directories to watch to notice a change of it.
type view struct {
	files       fingerprint
	directories []string
}

// viewConfig returns the state of a configuration directory: networks, policy, and the drop-ins of
// all networks.
func viewConfig(dir string) view {
	v := view{files: fingerprint{}}
	counts := func(name string) bool { return KindOf(name) != OtherFile || name == PolicyName }
	v.addDirectory(dir, counts, v.addDropIns)
	return v
}

// viewPlugins returns the state of all files in plugin directories.
func viewPlugins(dirs []string) view {
	v := view{files: fingerprint{}}
	for _, dir := range dirs {
		v.addDirectory(dir, func(string) bool { return true }, func(string) {})
	}
	return v
}

func (v *view) addDropIns(dir string) {
	v.directories = append(v.directories, dir)
	v.addFiles(dir, func(name string) bool { return filepath.Ext(name) == singleExt },
		func(string) {})
}

// addDirectory adds a directory and watches for its creation and removal.
func (v *view) addDirectory(
	dir string, counts func(name string) bool, directory func(path string),
) {
	v.directories = append(v.directories, dir, nearest(filepath.Dir(dir)))
	if real, err := filepath.EvalSymlinks(dir); err == nil && real != dir {
		v.directories = append(v.directories, filepath.Dir(real))
	}
	v.addFiles(dir, counts, directory)
}

// nearest returns dir or, if it does not exist, its nearest existing ancestor.
func nearest(dir string) string {
	for !isDirectory(dir) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}
	return dir
}

// addFiles adds the files in a directory for which counts returns true, and calls directory for its
// subdirectories.
func (v *view) addFiles(dir string, counts func(name string) bool, directory func(path string)) {
	id := statefile.Identify(dir)
	v.files[dir] = statefile.Identity{Device: id.Device, Inode: id.Inode}
	entries, _ := os.ReadDir(dir) // the caller that reads the directory gets the error, too
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !counts(e.Name()) && e.Type().IsRegular() {
			continue
		}
		info, err := os.Stat(path)
		switch {
		case err == nil && info.IsDir():
			directory(path)
		case !counts(e.Name()):
			continue
		case err == nil:
			v.files[path] = statefile.IdentityOf(info)
		case !errors.Is(err, fs.ErrNotExist) || e.Type() == fs.ModeSymlink:
			v.files[path] = statefile.Identity{}
		}
		if real, err := filepath.EvalSymlinks(path); err == nil && e.Type() == fs.ModeSymlink {
			v.directories = append(v.directories, filepath.Dir(real))
		}
	}
}

// settles returns the time from now until every change of a file changes its times, too.
func (f fingerprint) settles(now time.Time) time.Duration {
	var longest time.Duration
	for _, id := range f {
		longest = max(longest, id.Settles(now))
	}
	return longest
}

// watched returns the directories of both views without duplicates.
func (v view) watched(others view) []string {
	all := slices.Concat(v.directories, others.directories)
	slices.Sort(all)
	return slices.Compact(all)
}
