package install

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/plugindir"
)

// askTimeout limits VERSION of a plugin that takes over.
const askTimeout = 30 * time.Second

// Unsupported lists plugins of other projects that take over attachments after the removal, but do
// not support the CNI version of their network: with them, DEL fails.
type Unsupported struct {
	Dir      string   // plugin directory
	Plugins  []string // names
	Version  cni.Version
	Networks []string // with attachments
}

// use is a plugin type in a network of an attachment that remains.
type use struct {
	typ, network string
	version      cni.Version
}

// unsupported fills p.Unsupported. A plugin that does not answer VERSION is left out.
func (p *Plan) unsupported(ctx context.Context) {
	for _, dir := range p.used() {
		replies := map[string]*cni.VersionReply{}
		for _, u := range p.uses() {
			reply, known := replies[u.typ]
			if !known {
				reply = p.successor(ctx, dir, u.typ)
				replies[u.typ] = reply
			}
			if reply != nil && !reply.Supports(u.version) {
				p.addUnsupported(dir, u)
			}
		}
	}
}

// used lists the plugin directories in which a runtime has found Tenon's plugins: directories that
// contain them, and the client's own if an attachment of its runtime remains.
func (p *Plan) used() []string {
	inUse := func(dir string) bool {
		return slices.ContainsFunc(slices.Concat(p.Plugins, p.Links), func(path string) bool {
			return filepath.Dir(path) == dir
		}) || slices.ContainsFunc(p.Attachments, func(a Attachment) bool {
			return a.Own && slices.Contains(p.request.Client.PluginDirs, dir)
		})
	}
	return slices.DeleteFunc(slices.Clone(p.dirs), func(dir string) bool { return !inUse(dir) })
}

// uses lists the plugin types of attachments that the removal hands over, or that block it.
func (p *Plan) uses() (uses []use) {
	for _, a := range p.Attachments {
		if a.List == nil || a.Outcome != HandOver && a.Outcome != Blocks {
			continue
		}
		for _, typ := range a.List.Executables() {
			u := use{typ, a.Record.Attachment.Network, a.List.Version}
			if !slices.Contains(uses, u) {
				uses = append(uses, u)
			}
		}
	}
	return uses
}

// successor returns the answer to VERSION of the plugin that has a name in a directory after the
// removal, or nil.
func (p *Plan) successor(ctx context.Context, dir, name string) *cni.VersionReply {
	path := filepath.Join(dir, name)
	if slices.Contains(p.Plugins, path) || slices.Contains(p.Links, path) {
		path = plugindir.Earlier(path)
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	reply, err := askVersions(ctx, path)
	if err != nil {
		return nil
	}
	return &reply
}

// addUnsupported adds a plugin to the entry of its directory and version.
func (p *Plan) addUnsupported(dir string, u use) {
	i := slices.IndexFunc(p.Unsupported, func(x Unsupported) bool {
		return x.Dir == dir && x.Version == u.version
	})
	if i < 0 {
		i = len(p.Unsupported)
		p.Unsupported = append(p.Unsupported, Unsupported{Dir: dir, Version: u.version})
	}
	x := &p.Unsupported[i]
	x.Plugins = appendNew(x.Plugins, u.typ)
	x.Networks = appendNew(x.Networks, u.network)
}
