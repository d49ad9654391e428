package install

import (
	"os"
	"path/filepath"

	"github.com/tenon-cni/tenon/internal/ops/plugindir"
	"github.com/tenon-cni/tenon/internal/repair"
)

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
		_, err = os.Lstat(plugindir.Kept(path))
		kept := err == nil
		switch ours := repair.IsOurs(path); {
		case ours && kept:
			plugins, restored = append(plugins, path), append(restored, path)
		case ours:
			plugins = append(plugins, path)
		case kept:
			outdated = append(outdated, plugindir.Kept(path))
		}
	}
	return plugins, restored, outdated
}
