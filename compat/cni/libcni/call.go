package libcni

import (
	"context"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
)

// executor returns the Exec for all calls. It does not store the default one, so that goroutines
// can share a CNIConfig without one.
func (c *CNIConfig) executor() invoke.Exec {
	if c.exec != nil {
		return c.exec
	}
	return &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: os.Stderr}}
}

// find returns the path of the binary of a plugin type.
func (c *CNIConfig) find(pluginType string) (string, error) {
	return c.executor().FindInPath(pluginType, c.Path)
}

// args returns the parameters of a call.
func (c *CNIConfig) args(command string, rt *RuntimeConf) *invoke.Args {
	return &invoke.Args{
		Command:     command,
		ContainerID: rt.ContainerID,
		NetNS:       rt.NetNS,
		PluginArgs:  rt.Args,
		IfName:      rt.IfName,
		Path:        strings.Join(c.Path, string(os.PathListSeparator)),
	}
}

// call is ADD, CHECK or DEL of one plugin.
type call struct {
	command  string
	plugin   *PluginConfig
	previous types.Result // nil means none
	rt       *RuntimeConf
}

// prepare finds the plugin of a call and builds its request. It uses the type and the capabilities
// in plugin.Network, which callers may have changed, and the other keys in plugin.Bytes.
func (c *CNIConfig) prepare(n chain, k call) (path string, request []byte, err error) {
	if path, err = c.find(k.plugin.typeOf()); err != nil {
		return "", nil, err
	}
	if k.command == "ADD" {
		if err := validate(n.name, k.rt); err != nil {
			return "", nil, err
		}
	}
	conf, err := n.attachmentRequest(k)
	if err != nil {
		return "", nil, err
	}
	return path, conf.Bytes, nil
}

// run calls a plugin for CHECK or DEL.
func (c *CNIConfig) run(ctx context.Context, n chain, k call) error {
	path, request, err := c.prepare(n, k)
	if err != nil {
		return err
	}
	return invoke.ExecPluginWithoutResult(ctx, path, request, c.args(k.command, k.rt),
		c.executor())
}

// runNetwork calls a plugin for GC or STATUS, verbs without an attachment.
func (c *CNIConfig) runNetwork(
	ctx context.Context, command, pluginType string, request *PluginConfig,
) error {
	path, err := c.find(pluginType)
	if err != nil {
		return err
	}
	return invoke.ExecPluginWithoutResult(ctx, path, request.Bytes,
		c.args(command, &RuntimeConf{}), c.executor())
}
