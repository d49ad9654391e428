package libcni

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/version"
)

// ErrorCheckNotSupp is wrapped by the errors of CHECK for a version before 0.4.0.
var ErrorCheckNotSupp = errors.New("does not support the CHECK command")

// CheckNetworkList checks an attachment: it runs CHECK of all plugins with the cached result, if
// there is one. It stops at the first plugin that fails and returns its error. It does nothing if
// the list disables CHECK.
//
// It returns an error for a version that cannot be parsed or is older than 0.4.0
// ([ErrorCheckNotSupp]), for a cached result that cannot be read, and a [*types.Error] if the name
// of the network, the container ID or the interface name is a path.
func (c *CNIConfig) CheckNetworkList(
	ctx context.Context, list *NetworkConfigList, rt *RuntimeConf,
) error {
	return c.check(ctx, chainOfList(list), rt, list.DisableCheck)
}

// CheckNetwork checks an attachment of a single plugin, like [CNIConfig.CheckNetworkList].
func (c *CNIConfig) CheckNetwork(ctx context.Context, net *PluginConfig, rt *RuntimeConf) error {
	return c.check(ctx, chainOfPlugin(net), rt, false)
}

func (c *CNIConfig) check(ctx context.Context, n chain, rt *RuntimeConf, disabled bool) error {
	exists, err := version.GreaterThanOrEqualTo(n.cniVersion, "0.4.0")
	if err != nil {
		return err
	}
	if !exists {
		return fmt.Errorf("configuration version %q %w", n.cniVersion, ErrorCheckNotSupp)
	}
	if disabled {
		return nil
	}
	if err := refusePaths(n.name, rt); err != nil {
		return err
	}
	result, err := c.cachedResult(n.name, n.cniVersion, rt)
	if err != nil {
		return fmt.Errorf("failed to get network %q cached result: %w", n.name, err)
	}
	for _, plugin := range n.plugins {
		k := call{command: "CHECK", plugin: plugin, previous: result, rt: rt}
		if err := c.run(ctx, n, k); err != nil {
			return err
		}
	}
	return nil
}
