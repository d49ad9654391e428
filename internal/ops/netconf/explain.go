package netconf

import (
	"context"
	"errors"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// Directory reports the content of a configuration directory.
type Directory struct {
	Dir      string    `json:"dir"`
	Files    []File    `json:"files"` // in the byte order of paths
	Policy   *Policy   `json:"policy,omitempty"`
	Networks []Network `json:"networks"` // as a lookup by name finds them
}

// File reports how a file or directory is used: see [config.File].
type File struct {
	Path       string     `json:"path"`
	Use        config.Use `json:"use"`
	Network    string     `json:"network,omitempty"`
	Version    string     `json:"cniVersion,omitempty"`
	Plugins    []string   `json:"plugins,omitempty"`
	Default    bool       `json:"default,omitempty"`
	ShadowedBy string     `json:"shadowedBy,omitempty"`
	Reason     string     `json:"reason,omitempty"`
	Error      string     `json:"error,omitempty"`
	Line       int        `json:"line,omitempty"`
	Column     int        `json:"column,omitempty"`
}

// Policy is the policy of the directory.
type Policy struct {
	Path            string              `json:"path"`
	RequiredPlugins map[string][]string `json:"requiredPlugins,omitempty"`
	Executables     map[string][]string `json:"executables,omitempty"` // allowed digests, by type
}

// Network reports how a network runs.
type Network struct {
	Name         string        `json:"network"`
	Path         string        `json:"path"`
	Plugins      []Plugin      `json:"plugins"`     // in the order of ADD
	Executables  []Executable  `json:"executables"` // of plugins and IPAM plugins
	Offered      []cni.Version `json:"offeredVersions"`
	Selected     string        `json:"selectedVersion,omitempty"`
	LimitedBy    []string      `json:"limitedBy,omitempty"` // plugins that do not support the newest offered version
	VersionError string        `json:"versionError,omitempty"`
	Refused      string        `json:"refused,omitempty"` // why the policy forbids it
}

// Plugin is one plugin of a network and the file that configures it.
type Plugin struct {
	Type string `json:"type"`
	Path string `json:"path"`
}

// Executable is the executable file of a plugin.
type Executable struct {
	Type  string `json:"type"`
	Path  string `json:"path,omitempty"`
	Error string `json:"error,omitempty"`
}

// Explain reports on a directory with the settings of a client. It runs only VERSION and changes
// nothing. A name limits the report to one network and its files, including broken files that name
// no network.
func Explain(
	ctx context.Context,
	client *network.Client,
	c *config.Catalog,
	name string,
) Directory {
	var files []config.File
	for _, f := range c.Files {
		if name == "" || f.Name == name || f.Use == config.PolicyFile ||
			f.Use == config.Broken && f.Name == "" {
			files = append(files, f)
		}
	}
	report := Directory{Dir: c.Dir, Files: Files(files), Networks: []Network{}}
	if c.Policy != nil {
		report.Policy = &Policy{
			Path:            c.Policy.Source,
			RequiredPlugins: c.Policy.RequiredPlugins,
			Executables:     c.Policy.Executables,
		}
	}
	for _, f := range files {
		if f.Use == config.Chosen {
			report.Networks = append(
				report.Networks,
				explainNetwork(ctx, client, c.Policy, f.Network),
			)
		}
	}
	return report
}

// Files reports how files are used.
func Files(files []config.File) []File {
	out := []File{}
	for _, f := range files {
		e := File{
			Path:       f.Path,
			Use:        f.Use,
			Network:    f.Name,
			Default:    f.Default,
			ShadowedBy: f.ShadowedBy,
			Reason:     f.Reason,
		}
		if f.Network != nil {
			e.Version, e.Plugins = f.Network.Version.String(), f.Network.Types()
		}
		if wrong := (*config.FileError)(nil); errors.As(f.Err, &wrong) {
			e.Error, e.Line, e.Column = wrong.Err.Error(), wrong.Line, wrong.Column
		}
		out = append(out, e)
	}
	return out
}

func explainNetwork(
	ctx context.Context,
	client *network.Client,
	policy *config.Policy,
	n *config.Network,
) Network {
	e := Network{Name: n.Name, Path: n.Source, Offered: n.Versions}
	for i, typ := range n.Types() {
		e.Plugins = append(e.Plugins, Plugin{typ, n.PluginSource(i)})
	}
	for _, typ := range n.Executables() {
		x := Executable{Type: typ}
		var err error
		if x.Path, err = invoke.Lookup(client.Caller, client.PluginDirs, typ); err == nil {
			err = policy.CheckExecutable(typ, x.Path)
		}
		if err != nil {
			x.Error = cni.AsError(err).Msg
		}
		e.Executables = append(e.Executables, x)
	}
	g, err := client.Negotiate(ctx, n)
	e.LimitedBy = g.LimitedBy(n.Version)
	if err != nil {
		e.VersionError = err.Error()
	} else {
		e.Selected = g.Version.String()
	}
	if err := policy.Check(n); err != nil {
		e.Refused = err.Error()
	}
	return e
}
