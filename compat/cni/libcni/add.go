package libcni

import (
	"context"
	"fmt"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
)

// AddNetworkList attaches a container to a network: it runs ADD of all plugins, each with the
// result of the previous one, writes the cache file and returns the last result, in the version
// that the last plugin chose. The result is nil if the list has no plugins.
//
// If a plugin fails, its error is wrapped. DEL then runs for the plugins that ran, the failing one
// included, in reverse order and without a previous result. It runs for at most a minute, each plugin
// for its share. If ctx has ended, it runs for at most five seconds, and the plugin that was stopped
// comes last. If DEL fails too, the text of the error ends in "; rollback failed: …" and the error wraps
// both. The same happens if the cache file cannot be written. DEL does not run if the
// cache has a file of this attachment or of another network with the same container and interface
// name, because DEL would remove an interface that is in use, or if the environment variable
// TENON_ROLLBACK is "off".
//
// AddNetworkList returns a [*types.Error] below the prefix for an invalid container ID, network
// name or interface name, and an error if a binary is missing.
func (c *CNIConfig) AddNetworkList(
	ctx context.Context, list *NetworkConfigList, rt *RuntimeConf,
) (types.Result, error) {
	return c.add(ctx, chainOfList(list), rt)
}

// AddNetwork attaches a container with a single plugin. It is like [CNIConfig.AddNetworkList], but
// the error of the plugin is not wrapped, unless DEL fails with another text.
func (c *CNIConfig) AddNetwork(
	ctx context.Context, net *PluginConfig, rt *RuntimeConf,
) (types.Result, error) {
	return c.add(ctx, chainOfPlugin(net), rt)
}

func (c *CNIConfig) add(ctx context.Context, n chain, rt *RuntimeConf) (types.Result, error) {
	var result types.Result
	for i, plugin := range n.plugins {
		k := call{command: "ADD", plugin: plugin, previous: result, rt: rt}
		path, request, err := c.prepare(n, k)
		ran := i
		if err == nil {
			ran++
			result, err = invoke.ExecPluginWithResult(ctx, path, request, c.args("ADD", rt),
				c.executor())
		}
		if err != nil {
			return nil, c.rollBack(ctx, n, n.plugins[:ran], rt, n.failure(plugin, "add", err))
		}
	}
	if err := c.store(n, rt, result); err != nil {
		err = fmt.Errorf("failed to set network %q cached result: %w", n.name, err)
		return nil, c.rollBack(ctx, n, n.plugins, rt, err)
	}
	return result, nil
}

// failure adds the plugin and the operation to the error of a plugin in a list.
func (n chain) failure(plugin *PluginConfig, operation string, err error) error {
	if n.single {
		return err
	}
	return fmt.Errorf("%s failed (%s): %w", plugin.describe(), operation, err)
}
