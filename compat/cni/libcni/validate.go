package libcni

import (
	"context"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/version"
)

// ValidateNetworkList checks that the binaries of all plugins exist and support the version of the
// list; an empty version means 0.1.0. It returns the capabilities that the plugins enable, sorted
// and without duplicates. The error has the texts of all failures.
func (c *CNIConfig) ValidateNetworkList(
	ctx context.Context, list *NetworkConfigList,
) ([]string, error) {
	var errs []error
	for _, plugin := range list.Plugins {
		if err := c.validatePlugin(ctx, plugin.typeOf(), list.CNIVersion); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("%v", errs)
	}
	return enabled(list.Plugins...), nil
}

// ValidateNetwork checks a single plugin, like [CNIConfig.ValidateNetworkList]. It does not change
// the text of the error.
func (c *CNIConfig) ValidateNetwork(ctx context.Context, net *PluginConfig) ([]string, error) {
	n := chainOfPlugin(net)
	if err := c.validatePlugin(ctx, net.typeOf(), n.cniVersion); err != nil {
		return nil, err
	}
	return enabled(net), nil
}

// enabled returns the capabilities that plugins enable, sorted and without duplicates.
func enabled(plugins ...*PluginConfig) []string {
	names := []string{}
	for _, plugin := range plugins {
		if plugin == nil || plugin.Network == nil {
			continue
		}
		for name, on := range plugin.Network.Capabilities {
			if on {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// validatePlugin checks that the binary of a plugin exists and supports a version.
func (c *CNIConfig) validatePlugin(ctx context.Context, pluginType, cniVersion string) error {
	info, err := c.GetVersionInfo(ctx, pluginType)
	if err != nil {
		return err
	}
	if cniVersion == "" {
		cniVersion = "0.1.0"
	}
	if !slices.Contains(info.SupportedVersions(), cniVersion) {
		return fmt.Errorf("plugin %s does not support config version %q", pluginType, cniVersion)
	}
	return nil
}

// GetVersionInfo runs VERSION of a plugin and returns the versions that it supports. It returns an
// error if the binary is missing or its reply cannot be decoded.
func (c *CNIConfig) GetVersionInfo(
	ctx context.Context, pluginType string,
) (version.PluginInfo, error) {
	path, err := c.find(pluginType)
	if err != nil {
		return nil, err
	}
	return invoke.GetVersionInfo(ctx, path, c.executor())
}
