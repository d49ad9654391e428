package libcni

import (
	"bytes"

	"github.com/containernetworking/cni/pkg/version"
)

// asAdded returns the network as the ADD of an attachment ran it, according to the cache file, with
// the plugins from other files that n has. It returns n itself if the configuration has not changed
// since, if there is no usable file, or if a binary of the stored configuration no longer exists:
// such a DEL could never succeed.
func (c *CNIConfig) asAdded(n chain, rt *RuntimeConf) chain {
	key, err := cacheKey(n.name, rt)
	if err != nil {
		return n
	}
	entry, err := c.cache(rt).Get(key)
	if err != nil || bytes.Equal(entry.Config, n.bytes) {
		return n
	}
	stored, ok := n.withConfig(entry.Config)
	if !ok {
		return n
	}
	for _, plugin := range stored.plugins {
		if _, err := c.find(plugin.typeOf()); err != nil {
			return n
		}
	}
	return stored
}

// withConfig returns the network with the version and the plugins of another configuration.
func (n chain) withConfig(config []byte) (stored chain, ok bool) {
	if n.single {
		plugin, err := NetworkPluginConfFromBytes(config)
		if err != nil {
			return chain{}, false
		}
		stored = chainOfPlugin(plugin)
	} else {
		list, err := NetworkConfFromBytes(config)
		if err != nil || len(list.Plugins) == 0 {
			return chain{}, false
		}
		stored = chainOfList(list)
		if !list.LoadOnlyInlinedPlugins {
			stored.plugins = append(stored.plugins, n.notInlined()...)
		}
	}
	stored.name = n.name
	_, _, _, err := version.ParseVersion(stored.cniVersion)
	return stored, err == nil
}

// notInlined returns the plugins of a list that are not in its document.
func (n chain) notInlined() []*PluginConfig {
	list, err := NetworkConfFromBytes(n.bytes)
	if err != nil {
		return nil
	}
	return n.plugins[min(len(list.Plugins), len(n.plugins)):]
}
