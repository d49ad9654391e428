package install

import (
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/ops/plugindir"
)

// superseded lists the files of the install script, after a package has taken over: the package
// has replaced its plugins by links.
func (p *Plan) superseded() error {
	m, err := readManifest(p.request.Manifest)
	if err != nil {
		return err
	}
	for _, dir := range m.pluginDirs {
		plugins, restored, _ := find(dir, names())
		p.Plugins = append(p.Plugins, plugins...)
		p.Restored = append(p.Restored, restored...)
	}
	if err := p.installed(m); err != nil {
		return err
	}
	p.inherit()
	return nil
}

// inherit leaves plugin directories that the script created to the package, with their parents.
func (p *Plan) inherit() {
	p.inherited = map[string]string{}
	for _, dir := range p.request.Host.Dirs {
		p.Directories = slices.DeleteFunc(p.Directories, func(d string) bool {
			above := d == dir || strings.HasPrefix(dir, d+"/")
			if above {
				p.inherited[dir] = d // children first, so the last is the top
			}
			return above
		})
	}
}

// removeSuperseded removes the plugins of the install script. Its plugin directories pass to the
// package.
func (p *Plan) removeSuperseded() error {
	for _, path := range p.Plugins {
		if err := ioFailure(plugindir.Restore(path)); err != nil {
			return err
		}
	}
	for dir, first := range p.inherited {
		if err := ioFailure(plugindir.MarkCreated(dir, first)); err != nil {
			return err
		}
	}
	return nil
}
