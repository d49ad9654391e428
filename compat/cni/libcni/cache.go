package libcni

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network/cache"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/create"
)

// CNICacheV1 is the format of cache files.
const CNICacheV1 = cache.Kind

// NetworkAttachment is an attachment in the cache.
type NetworkAttachment struct {
	ContainerID    string
	Network        string // name of the network
	IfName         string
	Config         []byte // of the network, without plugins from other files
	NetNS          string
	CniArgs        [][2]string
	CapabilityArgs map[string]interface{} // numbers are a float64, or a json.Number if too large
}

// cache returns the cache directory of an attachment.
func (c *CNIConfig) cache(rt *RuntimeConf) cache.Dir {
	switch {
	case c.cacheDir != "":
		return cache.Dir(c.cacheDir)
	case rt.CacheDir != "":
		return cache.Dir(rt.CacheDir)
	}
	return cache.Dir(CacheDir)
}

// cacheKey returns the key of a cache file.
func cacheKey(network string, rt *RuntimeConf) (cni.Attachment, error) {
	if network == "" || rt.ContainerID == "" || rt.IfName == "" {
		return cni.Attachment{}, fmt.Errorf("cache file path requires network name (%q), "+
			"container ID (%q), and interface name (%q)", network, rt.ContainerID, rt.IfName)
	}
	return cni.Attachment{Network: network, Container: rt.ContainerID, IfName: rt.IfName},
		refusePaths(network, rt)
}

// store writes the cache file of an attachment.
func (c *CNIConfig) store(n chain, rt *RuntimeConf, result types.Result) error {
	key, err := cacheKey(n.name, rt)
	if err != nil {
		return err
	}
	entry := &cache.Entry{Attachment: key, Config: n.bytes, Netns: rt.NetNS}
	for _, pair := range rt.Args {
		entry.Args = append(entry.Args, cni.Arg{Key: pair[0], Value: pair[1]})
	}
	for name, value := range rt.CapabilityArgs {
		encoded, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if entry.CapabilityArgs == nil {
			entry.CapabilityArgs = map[string]json.RawMessage{}
		}
		entry.CapabilityArgs[name] = encoded
	}
	if result != nil {
		if entry.Result, err = json.Marshal(result); err != nil {
			return err
		}
	}
	return c.cache(rt).Put(entry)
}

// forget removes the cache file of an attachment. Like upstream libcni, it ignores errors: the
// plugins have detached the container.
func (c *CNIConfig) forget(network string, rt *RuntimeConf) {
	if key, err := cacheKey(network, rt); err == nil {
		_ = c.cache(rt).Remove(key)
	}
}

// GetNetworkListCachedResult returns the result of an attachment in the version of the list, or nil
// if there is no cache file, it cannot be opened, or it belongs to another attachment. It returns
// an error if the network name, the container ID or the interface name is empty or a path, and if
// the result cannot be decoded or converted.
func (c *CNIConfig) GetNetworkListCachedResult(
	list *NetworkConfigList, rt *RuntimeConf,
) (types.Result, error) {
	return c.cachedResult(list.Name, list.CNIVersion, rt)
}

// GetNetworkCachedResult is [CNIConfig.GetNetworkListCachedResult] for a single plugin.
func (c *CNIConfig) GetNetworkCachedResult(
	net *PluginConfig, rt *RuntimeConf,
) (types.Result, error) {
	n := chainOfPlugin(net)
	return c.cachedResult(n.name, n.cniVersion, rt)
}

func (c *CNIConfig) cachedResult(
	network, cniVersion string, rt *RuntimeConf,
) (types.Result, error) {
	key, err := cacheKey(network, rt)
	if err != nil {
		return nil, err
	}
	entry, err := c.cache(rt).Get(key)
	var raw []byte
	format := (*cache.FormatError)(nil)
	switch {
	case errors.As(err, &format):
		raw = format.Content // a bare result, as old releases stored it
	case err != nil || entry.Result == nil:
		return nil, nil
	default:
		raw = entry.Result
	}
	result, err := create.CreateFromBytes(raw)
	if err != nil {
		return nil, err
	}
	converted, err := result.GetAsVersion(cniVersion)
	if err != nil {
		return nil, fmt.Errorf("failed to convert cached result to config version %q: %w",
			cniVersion, err)
	}
	return converted, nil
}

// GetNetworkListCachedConfig returns the configuration of an attachment, and a copy of rt with the
// cached arguments and capability arguments. All values are nil if there is no cache file, it
// cannot be opened, or it belongs to another attachment. It returns an error if the network name,
// the container ID or the interface name is empty or a path, and if the file cannot be decoded.
func (c *CNIConfig) GetNetworkListCachedConfig(
	list *NetworkConfigList, rt *RuntimeConf,
) ([]byte, *RuntimeConf, error) {
	return c.cachedConfig(list.Name, rt)
}

// GetNetworkCachedConfig is [CNIConfig.GetNetworkListCachedConfig] for a single plugin.
func (c *CNIConfig) GetNetworkCachedConfig(
	net *PluginConfig, rt *RuntimeConf,
) ([]byte, *RuntimeConf, error) {
	return c.cachedConfig(chainOfPlugin(net).name, rt)
}

func (c *CNIConfig) cachedConfig(network string, rt *RuntimeConf) ([]byte, *RuntimeConf, error) {
	key, err := cacheKey(network, rt)
	if err != nil {
		return nil, nil, err
	}
	entry, err := c.cache(rt).Get(key)
	format := (*cache.FormatError)(nil)
	if errors.As(err, &format) {
		return nil, nil, configFormatError(network, format)
	}
	if err != nil {
		return nil, nil, nil
	}
	restored := *rt
	if len(entry.Args) > 0 {
		restored.Args = pairs(entry.Args)
	}
	restored.CapabilityArgs = values(entry.CapabilityArgs)
	return entry.Config, &restored, nil
}

// configFormatError returns the error for a cache file without configuration.
func configFormatError(network string, format *cache.FormatError) error {
	kind := ""
	err := format.Err
	if err == nil && format.Kind != nil {
		err = json.Unmarshal(format.Kind, &kind)
	}
	if err != nil {
		return fmt.Errorf("failed to unmarshal cached network %q config: %w", network, err)
	}
	return fmt.Errorf("read cached network %q config has wrong kind: %s", network, kind)
}

func pairs(args cni.Args) [][2]string {
	var all [][2]string
	for _, a := range args {
		all = append(all, [2]string{a.Key, a.Value})
	}
	return all
}

// GetCachedAttachments returns the attachments of a container, or of all containers if containerID
// is empty, in the order of file names. It skips files that cannot be read or are incomplete, and
// does not look into [RuntimeConf.CacheDir]. It returns nil if the cache directory does not exist,
// and an error if it cannot be read.
func (c *CNIConfig) GetCachedAttachments(containerID string) ([]*NetworkAttachment, error) {
	paths, err := c.cache(&RuntimeConf{}).Files()
	if err != nil {
		return nil, fmt.Errorf("failed to list cached attachments: %w", err)
	}
	var attachments []*NetworkAttachment
	for _, path := range paths {
		if containerID != "" && !strings.Contains(filepath.Base(path), "-"+containerID+"-") {
			continue
		}
		a, err := readAttachment(path)
		if err == nil && (containerID == "" || a.ContainerID == containerID) {
			attachments = append(attachments, a)
		}
	}
	return attachments, nil
}

// readAttachment reads a cache file, which must name the network and the interface.
func readAttachment(path string) (*NetworkAttachment, error) {
	entry, err := cache.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if entry.Attachment.Network == "" || entry.Attachment.IfName == "" {
		return nil, errors.New("the file does not name its attachment")
	}
	return &NetworkAttachment{
		ContainerID: entry.Attachment.Container, Network: entry.Attachment.Network,
		IfName: entry.Attachment.IfName, Config: entry.Config, NetNS: entry.Netns,
		CniArgs: pairs(entry.Args), CapabilityArgs: values(entry.CapabilityArgs),
	}, nil
}
