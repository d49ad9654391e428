package install

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tenon-cni/tenon/internal/repair"
)

// keptSuffix marks files of other programs that Run replaced. Package plugindir uses the same
// suffix for files that a package replaces.
const keptSuffix = ".before-tenon"

// keep gives a file that Run is about to replace a second name, unless it is a build of Tenon.
func keep(path string) error {
	if repair.IsOurs(path) {
		return nil
	}
	if err := ioFailure(os.Remove(path+keptSuffix), fs.ErrNotExist); err != nil {
		return err
	}
	return ioFailure(os.Link(path, path+keptSuffix))
}

// removePlugin removes a plugin, or replaces it with the file that Run kept.
func removePlugin(path string) error {
	err := os.Rename(path+keptSuffix, path)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.Remove(path)
	}
	return ioFailure(err, fs.ErrNotExist)
}

// find returns the files in a plugin directory that have names of plugins and are builds of this
// program. It skips symbolic links. restored lists the plugins that replaced another file; outdated
// lists kept files that removal does not restore, because another program has replaced the plugin.
func find(dir string, names []string) (plugins, restored, outdated []string) {
	for _, name := range names {
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		_, err = os.Lstat(path + keptSuffix)
		kept := err == nil
		switch ours := repair.IsOurs(path); {
		case ours && kept:
			plugins, restored = append(plugins, path), append(restored, path)
		case ours:
			plugins = append(plugins, path)
		case kept:
			outdated = append(outdated, path+keptSuffix)
		}
	}
	return plugins, restored, outdated
}
