package config

import (
	"errors"

	"github.com/tenon-cni/tenon/cni"
)

// DefaultDir is the configuration directory that all runtimes use.
const DefaultDir = "/etc/cni/net.d"

// Errors to test for with [errors.Is].
var (
	ErrNoConfig = errors.New("no network configuration") // the directory does not exist or holds no configuration file
	ErrNotFound = errors.New("no network of that name")  // there are configurations, but none with the name
)

// Validate refuses a network without a list, a valid name or plugins. A nil network is invalid too. The code is
// [cni.CodeInvalidConfig], or that of [cni.ValidateNetworkName].
func (n *Network) Validate() error {
	if n == nil || n.List == nil {
		return cni.Errorf(cni.CodeInvalidConfig, "no network given")
	}
	if err := cni.ValidateNetworkName(n.Name); err != nil {
		return err
	}
	if len(n.Plugins) == 0 {
		return cni.Errorf(cni.CodeInvalidConfig, "network %s has no plugins", n.Name).
			WithDetails("neither under the key plugins nor in a folder of the network's name")
	}
	return nil
}

// Network is one network configuration and where it came from.
type Network struct {
	*cni.List
	Source  string   // path of the file; empty if there is none
	DropIns []string // paths of the drop-in files that the last plugins are from, in their order

	// BuiltIn exempts the network from every [Policy]: the runtime defines it, not a file.
	BuiltIn bool
}

// WithVersion returns the network as it is run in version v and no other.
func (n *Network) WithVersion(v cni.Version) *Network {
	c := *n
	c.List = n.List.WithVersion(v)
	return &c
}

// Types returns the types of the plugins in their order.
func (n *Network) Types() []string {
	types := make([]string, len(n.Plugins))
	for i, p := range n.Plugins {
		types[i] = p.Type
	}
	return types
}

// PluginSource returns the path of the file that plugin i is from; empty if it is from none.
func (n *Network) PluginSource(i int) string {
	if k := i - (len(n.Plugins) - len(n.DropIns)); k >= 0 {
		return n.DropIns[k]
	}
	return n.Source
}
