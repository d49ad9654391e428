package network

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// fingerprint is what tells one state of a folder from another: the identities of the files in it that are read, by path.
// Of folders it is only which they are, as any file that is put in one for a moment changes their times.
type fingerprint map[string]identity

// view is a state of folders, and which have to be watched to see that it changes.
type view struct {
	files   fingerprint
	folders []string
}

// viewConfig looks at a configuration folder: networks, policy, and drop-ins of any network.
func viewConfig(dir string) view {
	v := view{files: fingerprint{}}
	v.addFolder(dir, func(name string) bool { return kindOf(name) != OtherFile || name == PolicyName }, v.addDropIns)
	return v
}

// viewPlugins looks at folders of plugins: each file in them.
func viewPlugins(dirs []string) view {
	v := view{files: fingerprint{}}
	for _, dir := range dirs {
		v.addFolder(dir, func(string) bool { return true }, func(string) {})
	}
	return v
}

func (v *view) addDropIns(dir string) {
	v.folders = append(v.folders, dir)
	v.addFiles(dir, func(name string) bool { return filepath.Ext(name) == singleExt }, func(string) {})
}

// addFolder adds a folder of which it matters when it comes or goes.
func (v *view) addFolder(dir string, counts func(name string) bool, folder func(path string)) {
	v.folders = append(v.folders, dir, nearest(filepath.Dir(dir)))
	if real, err := filepath.EvalSymlinks(dir); err == nil && real != dir {
		v.folders = append(v.folders, filepath.Dir(real))
	}
	v.addFiles(dir, counts, folder)
}

// nearest returns a folder or, if it is not there, the nearest above it that is.
func nearest(dir string) string {
	for !isFolder(dir) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}
	return dir
}

// addFiles adds the files in a folder whose names count, and calls folder for the folders in it.
func (v *view) addFiles(dir string, counts func(name string) bool, folder func(path string)) {
	id := identify(dir)
	v.files[dir] = identity{Device: id.Device, Inode: id.Inode}
	entries, _ := os.ReadDir(dir) // who reads the folder gets the error, too
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !counts(e.Name()) && e.Type().IsRegular() {
			continue
		}
		info, err := os.Stat(path)
		switch {
		case err == nil && info.IsDir():
			folder(path)
		case !counts(e.Name()):
			continue
		case err == nil:
			v.files[path] = identityOf(info)
		case !errors.Is(err, fs.ErrNotExist) || e.Type() == fs.ModeSymlink:
			v.files[path] = identity{}
		}
		if real, err := filepath.EvalSymlinks(path); err == nil && e.Type() == fs.ModeSymlink {
			v.folders = append(v.folders, filepath.Dir(real))
		}
	}
}

// young reports whether a file was changed so shortly before that another change of it need not be seen.
func (f fingerprint) young(now time.Time) bool {
	for _, id := range f {
		if id.young(now) {
			return true
		}
	}
	return false
}

// watched returns the folders, each once.
func (v view) watched(others view) []string {
	all := slices.Concat(v.folders, others.folders)
	slices.Sort(all)
	return slices.Compact(all)
}
