package libcni

import (
	"context"
	"fmt"

	"github.com/containernetworking/cni/pkg/version"
)

// GetStatusNetworkList asks the plugins of a network whether they can serve an ADD. It stops at the
// first one that cannot and returns its error, usually a [*types.Error] with code
// [types.ErrPluginNotAvailable] or [types.ErrLimitedConnectivity]. It does nothing for a version
// before 1.1.0, and returns an error for a version that cannot be parsed.
func (c *CNIConfig) GetStatusNetworkList(ctx context.Context, list *NetworkConfigList) error {
	exists, err := version.GreaterThanOrEqualTo(list.CNIVersion, "1.1.0")
	if err != nil || !exists {
		return err
	}
	n := chainOfList(list)
	for _, plugin := range n.plugins {
		request, err := n.request(plugin, nil)
		if err != nil {
			return fmt.Errorf("failed to generate configuration to get plugin STATUS %s: %w",
				plugin.typeOf(), err)
		}
		if err := c.runNetwork(ctx, "STATUS", plugin.typeOf(), request); err != nil {
			return err
		}
	}
	return nil
}
