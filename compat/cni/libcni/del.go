package libcni

import (
	"context"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// DelNetworkList detaches a container from a network: it runs DEL of all plugins in reverse order
// with the cached result, if there is one and the version is 0.4.0 or newer, and then removes the
// cache file. A cached result that cannot be read does not prevent DEL. If a plugin fails,
// DelNetworkList stops, keeps the file and wraps the error of the plugin.
//
// If the configuration has changed since ADD, DEL uses the plugins, their order and the version of
// the cached configuration, followed by the plugins of list that come from other files. This does
// not apply if a binary of the cached configuration no longer exists.
//
// It returns an error for a version that cannot be parsed, and a [*types.Error] if the name of the
// network, the container ID or the interface name is a path.
func (c *CNIConfig) DelNetworkList(
	ctx context.Context, list *NetworkConfigList, rt *RuntimeConf,
) error {
	return c.del(ctx, chainOfList(list), rt)
}

// DelNetwork detaches a container from a network with a single plugin. It is like
// [CNIConfig.DelNetworkList], but the error of the plugin is not wrapped.
func (c *CNIConfig) DelNetwork(ctx context.Context, net *PluginConfig, rt *RuntimeConf) error {
	return c.del(ctx, chainOfPlugin(net), rt)
}

func (c *CNIConfig) del(ctx context.Context, n chain, rt *RuntimeConf) error {
	if _, _, _, err := version.ParseVersion(n.cniVersion); err != nil {
		return err
	}
	if err := refusePaths(n.name, rt); err != nil {
		return err
	}
	n = c.asAdded(n, rt)
	withResult, err := version.GreaterThanOrEqualTo(n.cniVersion, "0.4.0")
	if err != nil {
		return err
	}
	var result types.Result
	if withResult {
		if result, err = c.cachedResult(n.name, n.cniVersion, rt); err != nil {
			c.forget(n.name, rt)
		}
	}
	for _, plugin := range slices.Backward(n.plugins) {
		k := call{command: "DEL", plugin: plugin, previous: result, rt: rt}
		if err := c.run(ctx, n, k); err != nil {
			return n.failure(plugin, "delete", err)
		}
	}
	c.forget(n.name, rt)
	return nil
}
