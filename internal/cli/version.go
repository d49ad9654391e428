package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/ops/table"
)

func (a *app) versions() *cobra.Command {
	r := &settings{app: a}
	plugins := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of tenon, CNI and installed plugins",
		Long: `Prints the version of tenon and the CNI versions that it implements. With
--plugins, also asks each executable file in the plugin directories for the
versions that it supports (VERSION).`,
		Example: `  tenon version
  tenon version --plugins --plugin-dir /opt/cni/bin`,
		Args: arguments(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versionInfo{Version: a.version, Go: runtime.Version(), CNI: cni.Versions()}
			var err error
			if plugins {
				v.Plugins, err = r.installed(cmd.Context())
			}
			return a.unfinished(
				cmd,
				errors.Join(r.print(v, func() error { return a.printVersion(v) }), err),
			)
		},
	}
	r.pluginFlags(cmd)
	r.outputFlags(cmd)
	cmd.Flags().BoolVar(&plugins, "plugins", false, "also ask the plugins in --plugin-dir")
	return cmd
}

type versionInfo struct {
	Version string          `json:"version"`
	Go      string          `json:"go"`
	CNI     []cni.Version   `json:"cniVersions"`
	Plugins []pluginVersion `json:"plugins,omitempty"`
}

type pluginVersion struct {
	Path     string   `json:"path"`
	Versions []string `json:"supportedVersions,omitempty"`
	Error    string   `json:"error,omitempty"`
}

// installed asks the executable files in the plugin directories for their versions. If several
// files have the same name, it asks the first, as runtimes do.
func (r *settings) installed(ctx context.Context) ([]pluginVersion, error) {
	client := r.client()
	var list []pluginVersion
	var errs []error
	seen := map[string]bool{}
	for _, dir := range r.pluginDirs.list {
		entries, err := os.ReadDir(dir)
		if err != nil {
			errs = append(errs, err)
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			info, err := os.Stat(path)
			if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 ||
				seen[e.Name()] ||
				e.Name() == dhcp.Program {
				continue
			}
			seen[e.Name()] = true
			p := pluginVersion{Path: path}
			reply, err := client.Versions(ctx, e.Name())
			if p.Versions = reply.Supported; err != nil {
				p.Error = err.Error()
			}
			list = append(list, p)
		}
	}
	return list, errors.Join(errs...)
}

func (a *app) printVersion(v versionInfo) error {
	_, err := fmt.Fprintf(a.stdout, "tenon %s (%s), CNI %s\n", v.Version, v.Go, versionList(v.CNI))
	if err != nil || v.Plugins == nil {
		return err
	}
	rows := [][]string{{"PLUGIN", "CNI"}}
	for _, p := range v.Plugins {
		supported := strings.Join(p.Versions, ", ")
		if p.Error != "" {
			supported = "not a CNI plugin: " + p.Error
		}
		rows = append(rows, []string{p.Path, supported})
	}
	return table.Write(a.stdout, rows)
}
