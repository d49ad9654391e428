package libcni

import (
	"context"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// CacheDir is the cache directory of runtimes that choose none.
var CacheDir = "/var/lib/cni"

// CNI is the interface of [CNIConfig], for callers that replace it in tests.
type CNI interface {
	// AddNetworkList attaches a container to a network.
	AddNetworkList(ctx context.Context, net *NetworkConfigList, rt *RuntimeConf) (types.Result, error)
	// CheckNetworkList checks an attachment.
	CheckNetworkList(ctx context.Context, net *NetworkConfigList, rt *RuntimeConf) error
	// DelNetworkList detaches a container from a network.
	DelNetworkList(ctx context.Context, net *NetworkConfigList, rt *RuntimeConf) error
	// GetNetworkListCachedResult returns the result of an attachment.
	GetNetworkListCachedResult(net *NetworkConfigList, rt *RuntimeConf) (types.Result, error)
	// GetNetworkListCachedConfig returns the configuration and the arguments of an attachment.
	GetNetworkListCachedConfig(net *NetworkConfigList, rt *RuntimeConf) ([]byte, *RuntimeConf, error)

	// AddNetwork attaches a container with a single plugin.
	AddNetwork(ctx context.Context, net *PluginConfig, rt *RuntimeConf) (types.Result, error)
	// CheckNetwork checks an attachment of a single plugin.
	CheckNetwork(ctx context.Context, net *PluginConfig, rt *RuntimeConf) error
	// DelNetwork detaches a container from a network with a single plugin.
	DelNetwork(ctx context.Context, net *PluginConfig, rt *RuntimeConf) error
	// GetNetworkCachedResult returns the result of an attachment of a single plugin.
	GetNetworkCachedResult(net *PluginConfig, rt *RuntimeConf) (types.Result, error)
	// GetNetworkCachedConfig returns the configuration and the arguments of an attachment of a
	// single plugin.
	GetNetworkCachedConfig(net *PluginConfig, rt *RuntimeConf) ([]byte, *RuntimeConf, error)

	// ValidateNetworkList checks that all plugins exist and support the version.
	ValidateNetworkList(ctx context.Context, net *NetworkConfigList) ([]string, error)
	// ValidateNetwork checks that a plugin exists and supports the version.
	ValidateNetwork(ctx context.Context, net *PluginConfig) ([]string, error)

	// GCNetworkList removes the attachments of a network that are no longer in use.
	GCNetworkList(ctx context.Context, net *NetworkConfigList, args *GCArgs) error
	// GetStatusNetworkList asks the plugins whether they can serve an ADD.
	GetStatusNetworkList(ctx context.Context, net *NetworkConfigList) error

	// GetCachedAttachments lists the attachments in the cache directory.
	GetCachedAttachments(containerID string) ([]*NetworkAttachment, error)
	// GetVersionInfo returns the versions that a plugin supports.
	GetVersionInfo(ctx context.Context, pluginType string) (version.PluginInfo, error)
}

var _ CNI = (*CNIConfig)(nil)

// CNIConfig runs networks. The zero value is ready to use once Path is set. It is safe for
// concurrent use.
type CNIConfig struct {
	Path []string // directories of plugins, in the order of the search

	exec     invoke.Exec // nil means the default one
	cacheDir string      // empty means the default one
}

// NewCNIConfig returns a CNIConfig that finds plugins in the directories of path and keeps its
// cache in [CacheDir]. A nil exec runs plugins as processes and passes their standard error on.
func NewCNIConfig(path []string, exec invoke.Exec) *CNIConfig {
	return NewCNIConfigWithCacheDir(path, "", exec)
}

// NewCNIConfigWithCacheDir is [NewCNIConfig] with another cache directory, unless cacheDir is
// empty.
func NewCNIConfigWithCacheDir(path []string, cacheDir string, exec invoke.Exec) *CNIConfig {
	return &CNIConfig{Path: path, cacheDir: cacheDir, exec: exec}
}

// RuntimeConf are the arguments of an attachment.
type RuntimeConf struct {
	ContainerID string
	NetNS       string // path of the network namespace
	IfName      string // interface name in the container
	Args        [][2]string

	// CapabilityArgs are the capability arguments by name. A plugin receives the ones that its
	// configuration enables under the key capabilities.
	CapabilityArgs map[string]interface{}

	// CacheDir is the cache directory, unless the [CNIConfig] has one. [CNIConfig.GCNetworkList] and
	// [CNIConfig.GetCachedAttachments] have no RuntimeConf and do not see attachments in it.
	//
	// Deprecated: use [NewCNIConfigWithCacheDir].
	CacheDir string
}
