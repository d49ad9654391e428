package libcni

import (
	"context"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

const CNICacheV1 = "cniCacheV1"

var CacheDir string

var ErrorCheckNotSupp error

type CNI interface {
	AddNetwork(ctx context.Context, net *PluginConfig, rt *RuntimeConf) (types.Result, error)
	AddNetworkList(ctx context.Context, net *NetworkConfigList, rt *RuntimeConf) (types.Result, error)
	CheckNetwork(ctx context.Context, net *PluginConfig, rt *RuntimeConf) error
	CheckNetworkList(ctx context.Context, net *NetworkConfigList, rt *RuntimeConf) error
	DelNetwork(ctx context.Context, net *PluginConfig, rt *RuntimeConf) error
	DelNetworkList(ctx context.Context, net *NetworkConfigList, rt *RuntimeConf) error
	GCNetworkList(ctx context.Context, net *NetworkConfigList, args *GCArgs) error
	GetCachedAttachments(containerID string) ([]*NetworkAttachment, error)
	GetNetworkCachedConfig(net *PluginConfig, rt *RuntimeConf) ([]byte, *RuntimeConf, error)
	GetNetworkCachedResult(net *PluginConfig, rt *RuntimeConf) (types.Result, error)
	GetNetworkListCachedConfig(net *NetworkConfigList, rt *RuntimeConf) ([]byte, *RuntimeConf, error)
	GetNetworkListCachedResult(net *NetworkConfigList, rt *RuntimeConf) (types.Result, error)
	GetStatusNetworkList(ctx context.Context, net *NetworkConfigList) error
	GetVersionInfo(ctx context.Context, pluginType string) (version.PluginInfo, error)
	ValidateNetwork(ctx context.Context, net *PluginConfig) ([]string, error)
	ValidateNetworkList(ctx context.Context, net *NetworkConfigList) ([]string, error)
}

type CNIConfig struct {
	Path []string
}

type GCArgs struct {
	ValidAttachments []types.GCAttachment
}

type NetworkAttachment struct {
	CapabilityArgs map[string]interface{}
	CniArgs        [][2]string
	Config         []byte
	ContainerID    string
	IfName         string
	NetNS          string
	Network        string
}

type NetworkConfig = PluginConfig

type NetworkConfigList struct {
	Bytes                  []byte
	CNIVersion             string
	DisableCheck           bool
	DisableGC              bool
	LoadOnlyInlinedPlugins bool
	Name                   string
	Plugins                []*PluginConfig
}

type NoConfigsFoundError struct {
	Dir string
}

type NotFoundError struct {
	Dir  string
	Name string
}

type PluginConfig struct {
	Bytes   []byte
	Network *types.PluginConf
}

type RuntimeConf struct {
	Args           [][2]string
	CacheDir       string
	CapabilityArgs map[string]interface{}
	ContainerID    string
	IfName         string
	NetNS          string
}

func ConfFiles(dir string, extensions []string) ([]string, error) { panic("not implemented") }

func ConfFromBytes(bytes []byte) (*NetworkConfig, error) { panic("not implemented") }

func ConfFromFile(filename string) (*NetworkConfig, error) { panic("not implemented") }

func ConfListFromBytes(bytes []byte) (*NetworkConfigList, error) { panic("not implemented") }

func ConfListFromConf(original *PluginConfig) (*NetworkConfigList, error) { panic("not implemented") }

func ConfListFromFile(filename string) (*NetworkConfigList, error) { panic("not implemented") }

func InjectConf(original *PluginConfig, newValues map[string]interface{}) (*PluginConfig, error) {
	panic("not implemented")
}

func LoadConf(dir string, name string) (*NetworkConfig, error) { panic("not implemented") }

func LoadConfList(dir string, name string) (*NetworkConfigList, error) { panic("not implemented") }

func LoadNetworkConf(dir string, name string) (*NetworkConfigList, error) { panic("not implemented") }

func NetworkConfFromBytes(confBytes []byte) (*NetworkConfigList, error) { panic("not implemented") }

func NetworkConfFromFile(filename string) (*NetworkConfigList, error) { panic("not implemented") }

func NetworkPluginConfFromBytes(pluginConfBytes []byte) (*PluginConfig, error) {
	panic("not implemented")
}

func NetworkPluginConfsFromFiles(networkConfPath string, networkName string) ([]*PluginConfig, error) {
	panic("not implemented")
}

func NewCNIConfig(path []string, exec invoke.Exec) *CNIConfig { panic("not implemented") }

func NewCNIConfigWithCacheDir(path []string, cacheDir string, exec invoke.Exec) *CNIConfig {
	panic("not implemented")
}

func (r *CNIConfig) AddNetwork(ctx context.Context, net *PluginConfig, rt *RuntimeConf) (types.Result, error) {
	panic("not implemented")
}

func (r *CNIConfig) AddNetworkList(ctx context.Context, list *NetworkConfigList, rt *RuntimeConf) (types.Result, error) {
	panic("not implemented")
}

func (r *CNIConfig) CheckNetwork(ctx context.Context, net *PluginConfig, rt *RuntimeConf) error {
	panic("not implemented")
}

func (r *CNIConfig) CheckNetworkList(ctx context.Context, list *NetworkConfigList, rt *RuntimeConf) error {
	panic("not implemented")
}

func (r *CNIConfig) DelNetwork(ctx context.Context, net *PluginConfig, rt *RuntimeConf) error {
	panic("not implemented")
}

func (r *CNIConfig) DelNetworkList(ctx context.Context, list *NetworkConfigList, rt *RuntimeConf) error {
	panic("not implemented")
}

func (r *CNIConfig) GCNetworkList(ctx context.Context, list *NetworkConfigList, args *GCArgs) error {
	panic("not implemented")
}

func (r *CNIConfig) GetCachedAttachments(containerID string) ([]*NetworkAttachment, error) {
	panic("not implemented")
}

func (r *CNIConfig) GetNetworkCachedConfig(net *PluginConfig, rt *RuntimeConf) ([]byte, *RuntimeConf, error) {
	panic("not implemented")
}

func (r *CNIConfig) GetNetworkCachedResult(net *PluginConfig, rt *RuntimeConf) (types.Result, error) {
	panic("not implemented")
}

func (r *CNIConfig) GetNetworkListCachedConfig(list *NetworkConfigList, rt *RuntimeConf) ([]byte, *RuntimeConf, error) {
	panic("not implemented")
}

func (r *CNIConfig) GetNetworkListCachedResult(list *NetworkConfigList, rt *RuntimeConf) (types.Result, error) {
	panic("not implemented")
}

func (r *CNIConfig) GetStatusNetworkList(ctx context.Context, list *NetworkConfigList) error {
	panic("not implemented")
}

func (r *CNIConfig) GetVersionInfo(ctx context.Context, pluginType string) (version.PluginInfo, error) {
	panic("not implemented")
}

func (r *CNIConfig) ValidateNetwork(ctx context.Context, net *PluginConfig) ([]string, error) {
	panic("not implemented")
}

func (r *CNIConfig) ValidateNetworkList(ctx context.Context, list *NetworkConfigList) ([]string, error) {
	panic("not implemented")
}

func (r NoConfigsFoundError) Error() string { panic("not implemented") }

func (r NotFoundError) Error() string { panic("not implemented") }
