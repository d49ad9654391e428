package libcni

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// GCArgs are the arguments of [CNIConfig.GCNetworkList].
type GCArgs struct {
	ValidAttachments []types.GCAttachment // attachments of the network that are in use
}

// GCNetworkList removes the attachments of a network that are no longer in use: DEL runs for each
// cached attachment that is not among the valid ones, and then, from version 1.1.0 on, GC of all
// plugins. GCNetworkList continues past failures and joins their errors. It does nothing if the
// list disables GC.
//
// Nil args mean that no attachment is valid: DEL runs for all of them.
//
// GCNetworkList returns an error, and runs no plugin, for a version that cannot be parsed and for a
// cache directory that cannot be read. It does not see attachments in [RuntimeConf.CacheDir].
func (c *CNIConfig) GCNetworkList(
	ctx context.Context, list *NetworkConfigList, args *GCArgs,
) error {
	if list.DisableGC {
		return nil
	}
	exists, err := version.GreaterThanOrEqualTo(list.CNIVersion, "1.1.0")
	if err != nil {
		return err
	}
	cached, err := c.GetCachedAttachments("")
	if err != nil {
		return err
	}
	errs := c.delStale(ctx, list, cached, args)
	if exists {
		errs = append(errs, c.gcPlugins(ctx, list, args)...)
	}
	return errors.Join(errs...)
}

// delStale runs DEL of the attachments of a network that are not valid.
func (c *CNIConfig) delStale(
	ctx context.Context, list *NetworkConfigList, cached []*NetworkAttachment, args *GCArgs,
) []error {
	var valid []types.GCAttachment
	if args != nil {
		valid = args.ValidAttachments
	}
	var errs []error
	for _, a := range cached {
		key := types.GCAttachment{ContainerID: a.ContainerID, IfName: a.IfName}
		if a.Network != list.Name || slices.Contains(valid, key) {
			continue
		}
		rt := &RuntimeConf{ContainerID: a.ContainerID, NetNS: a.NetNS, IfName: a.IfName,
			Args: a.CniArgs, CapabilityArgs: a.CapabilityArgs}
		if err := c.DelNetworkList(ctx, list, rt); err != nil {
			errs = append(errs, fmt.Errorf("failed to delete stale attachment %s %s: %w",
				a.ContainerID, a.IfName, err))
		}
	}
	return errs
}

// gcPlugins runs GC of all plugins.
func (c *CNIConfig) gcPlugins(
	ctx context.Context, list *NetworkConfigList, args *GCArgs,
) []error {
	more := map[string]any{}
	if args != nil {
		more["cni.dev/valid-attachments"] = args.ValidAttachments
		more["cni.dev/attachments"] = args.ValidAttachments // the key of specification 1.1.0
	}
	n := chainOfList(list)
	var errs []error
	for _, plugin := range n.plugins {
		request, err := n.request(plugin, more)
		if err != nil {
			errs = append(errs, fmt.Errorf("failed to generate configuration to GC plugin %s: %w",
				plugin.typeOf(), err))
			continue
		}
		if err := c.runNetwork(ctx, "GC", plugin.typeOf(), request); err != nil {
			errs = append(errs, fmt.Errorf("failed to GC plugin %s: %w", plugin.typeOf(), err))
		}
	}
	return errs
}
