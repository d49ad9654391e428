package install

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// systemdPaths are the directories of systemd's state.
type systemdPaths struct {
	enabled string // with links to units in NAME.wants and NAME.requires
	active  string // with a link "invocation:UNIT" for each active unit
}

var systemdDirs = systemdPaths{"/etc/systemd/system", "/run/systemd/units"}

// unitsInUse returns the units of systemd in a list of files that are enabled or active.
func unitsInUse(files []installedFile, dirs systemdPaths) (units []string) {
	for _, f := range files {
		dir, name := filepath.Split(f.path)
		if !strings.HasSuffix(dir, "/systemd/system/") {
			continue
		}
		_, err := os.Lstat(filepath.Join(dirs.active, "invocation:"+name))
		if err == nil || len(enabledBy(name, dirs.enabled)) > 0 {
			units = append(units, name)
		}
	}
	slices.Sort(units)
	return units
}

// enabledBy returns the links that start a unit with another.
func enabledBy(unit, dir string) []string {
	links, _ := filepath.Glob(filepath.Join(dir, "*.wants", unit)) // the pattern is well-formed
	more, _ := filepath.Glob(filepath.Join(dir, "*.requires", unit))
	return append(links, more...)
}
