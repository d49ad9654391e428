package config

import (
	"errors"

	"github.com/tenon-cni/tenon/cni"
)

// DefaultDir is the configuration directory that all runtimes use.
const DefaultDir = "/etc/cni/net.d"

// Errors to test for with [errors.Is].
var (
	// the directory does not exist or holds no configuration file
	ErrNoConfig = errors.New("no network configuration")
	// there are networks, but none with that name
	ErrNotFound = errors.New("no network of that name")
)

// Validate returns an error if the network is nil or lacks a list, a valid name or plugins. The
// code is [cni.CodeInvalidConfig] or a code of [cni.ValidateNetworkName].
func (n *Network) Validate() error {
	if n == nil || n.List == nil {
		return cni.Errorf(cni.CodeInvalidConfig, "no network given")
	}
	if err := cni.ValidateNetworkName(n.Name); err != nil {
		return err
	}
	if len(n.Plugins) == 0 {
		return cni.Errorf(cni.CodeInvalidConfig, "network %s has no plugins", n.Name).
			WithDetails("neither under the key plugins nor in a drop-in directory")
	}
	return nil
}

// Network is a network configuration with its source.
type Network struct {
	*cni.List
	Source  string   // path of the file; empty if there is none
	DropIns []string // paths of the drop-in files of the last plugins, in order

	// BuiltIn exempts the network from every [Policy], because the runtime defines it, not a file.
	BuiltIn bool
}

// WithVersion returns a copy of the network that runs only in version v.
func (n *Network) WithVersion(v cni.Version) *Network {
	c := *n
	c.List = n.List.WithVersion(v)
	return &c
}

// Types returns the types of the plugins in order.
func (n *Network) Types() []string {
	types := make([]string, len(n.Plugins))
	for i, p := range n.Plugins {
		types[i] = p.Type
	}
	return types
}

// PluginSource returns the path of the file that defines plugin i; empty if no file does.
func (n *Network) PluginSource(i int) string {
	if k := i - (len(n.Plugins) - len(n.DropIns)); k >= 0 {
		return n.DropIns[k]
	}
	return n.Source
}
