package install

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugins/hostlocal"
)

// Directories that only Tenon's plugins create, in the data directories of plugins.
const (
	ownersDir = ".owners" // of host-local, in the directory of each network
	tuningDir = ".tenon"  // of tuning, in the upstream plugin's directory
)

// state returns the existing files and directories of Tenon in the default and the configured data
// directories.
func (p *Plan) state(ctx context.Context) ([]string, error) {
	lists := slices.Clone(p.request.Lists)
	for _, a := range p.Attachments {
		lists = append(lists, a.List)
	}
	pools, err := hostlocal.Pools(ctx, lists, hostlocal.DefaultDataDir)
	var paths []string
	for _, pool := range pools {
		paths = append(paths, filepath.Join(pool.Dir, pool.Network, ownersDir))
	}
	paths = append(paths, filepath.Join("/run/cni/tuning", tuningDir), "/run/cni/host-device")
	for _, l := range lists {
		for _, c := range l.Plugins {
			if dir := dataDir(c); dir != "" && c.Type == "tuning" {
				paths = append(paths, filepath.Join(dir, tuningDir))
			} else if dir != "" && c.Type == "host-device" {
				paths = append(paths, dir)
			}
		}
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	return slices.DeleteFunc(paths, func(path string) bool {
		_, err := os.Lstat(path)
		return errors.Is(err, fs.ErrNotExist)
	}), err
}

func dataDir(p *cni.PluginConfig) (dir string) {
	if conf, err := object(p); err == nil {
		_ = json.Unmarshal(conf["dataDir"], &dir) // ADD has refused other types
	}
	return dir
}
