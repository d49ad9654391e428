package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tenon-cni/tenon/internal/ops/install"
	"github.com/tenon-cni/tenon/internal/ops/plugindir"
	"github.com/tenon-cni/tenon/internal/repair"
	"github.com/tenon-cni/tenon/network"
)

const (
	packageName = "tenon"
	// packagedDir is the directory in which a package installs links to its programs, one for each
	// plugin.
	packagedDir = "/usr/lib/tenon/cni"
	// scriptPrefix is the default prefix of the install script.
	scriptPrefix = "/usr/local"
)

// systemHost returns the plugin directories of this host.
func systemHost(ctx context.Context) *plugindir.Host {
	h := &plugindir.Host{
		Source: packagedDir,
		Dirs:   []string{network.DefaultPluginDir},
		Shared: []string{"/usr/lib/cni", "/usr/libexec/cni"},
		Ours:   repair.IsOurs,
	}
	if dpkg := (&plugindir.Dpkg{Package: packageName}); dpkg.Installed(ctx) {
		h.Dpkg = dpkg
	}
	return h
}

// linkSystem links the plugins of the package in the plugin directories of this host.
func (a *app) linkSystem(ctx context.Context) error {
	done, err := systemHost(ctx).Link(ctx)
	for _, d := range done {
		fmt.Fprintf(a.stdout, "%s: %d plugins linked", d.Path, d.Linked)
		if d.Kept+d.Diverted > 0 {
			fmt.Fprintf(a.stdout, ", earlier files kept: %d, diverted: %d", d.Kept, d.Diverted)
		}
		fmt.Fprintln(a.stdout)
	}
	if _, missing := os.Stat(filepath.Join(scriptPrefix, install.ManifestPath)); missing == nil {
		a.warn("the install script has installed another version in %s", scriptPrefix)
		a.printHint("remove it: " + scriptPrefix + "/bin/tenon uninstall")
	}
	return a.needsRoot(err)
}
