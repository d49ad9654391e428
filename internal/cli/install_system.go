package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/tenon-cni/tenon/internal/ops/plugindir"
	"github.com/tenon-cni/tenon/network"
)

const (
	packageName = "tenon"
	// packagedDir is the directory in which a package installs links to its programs, one for each
	// plugin.
	packagedDir = "/usr/lib/tenon/cni"
)

// systemHost returns the plugin directories of this host.
func systemHost() *plugindir.Host {
	h := &plugindir.Host{
		Source: packagedDir,
		Dirs:   []string{network.DefaultPluginDir},
		Shared: []string{"/usr/lib/cni", "/usr/libexec/cni"},
	}
	// A host may have dpkg although its packages are from another package manager.
	_, err := os.Stat("/var/lib/dpkg/info/" + packageName + ".list")
	if _, missing := exec.LookPath("dpkg-divert"); err == nil && missing == nil {
		h.Dpkg = &plugindir.Dpkg{Package: packageName}
	}
	return h
}

// linkSystem links the plugins of the package in the plugin directories of this host.
func (a *app) linkSystem(ctx context.Context) error {
	done, err := systemHost().Link(ctx)
	for _, d := range done {
		fmt.Fprintf(a.stdout, "%s: %d plugins linked", d.Path, d.Linked)
		if d.Kept+d.Diverted > 0 {
			fmt.Fprintf(a.stdout, ", earlier files kept: %d, diverted: %d", d.Kept, d.Diverted)
		}
		fmt.Fprintln(a.stdout)
	}
	return a.needsRoot(err)
}
