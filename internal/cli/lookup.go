package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network/config"
)

// load finds the network that an argument means: a path if it has a slash, else a name.
func (r *settings) load(arg string) (*config.Network, error) {
	if isPath(arg) {
		n, err := config.LoadFile(arg)
		if err != nil {
			return nil, fmt.Errorf("network: %w", err)
		}
		return n, nil
	}
	c, err := config.Discover(r.netDir)
	if err != nil {
		return nil, r.needsRoot(err)
	}
	n, passed, err := c.Lookup(arg)
	for _, f := range passed {
		r.warnSkipped(f)
	}
	return n, r.notFound(err, c, arg)
}

// warnSkipped warns that a file is ignored.
func (r *settings) warnSkipped(f config.File) { r.warn("passed over %v", f.Err) }

// notFound adds to an error of a look-up what may help.
func (r *settings) notFound(err error, c *config.Catalog, name string) error {
	switch {
	case errors.Is(err, config.ErrNoConfig):
		return r.noConfig(fmt.Errorf("network %q: %w", name, err), c, name)
	case errors.Is(err, config.ErrNotFound):
		return hint(r.didYouMean(cni.Errorf(cni.CodeInvalidConfig, "%w", err), name, names(c)), r.elsewhere())
	case err != nil && cni.ValidateNetworkName(name) == nil:
		return r.needsRoot(hint(fmt.Errorf("network %q: %w", name, err), r.command("see all that is wrong with it: ", "net", "lint", name)))
	}
	return err
}

// noConfig adds to the error that a directory holds no network how to get one.
func (r *settings) noConfig(err error, c *config.Catalog, name string) error {
	what := r.command("write one: ", "net", "new", cmp.Or(name, "pods"), "--type", "bridge")
	if len(c.Files) > 0 {
		what = "no file there counts: rename it so that its name ends in .conflist, .conf or .json"
	}
	return hint(cni.Errorf(cni.CodeInvalidConfig, "%w", err), what, r.elsewhere())
}

func isPath(arg string) bool { return strings.Contains(arg, "/") }

func (r *settings) elsewhere() string {
	return fmt.Sprintf("networks were looked for in %s; --net-dir or NETCONFPATH names another directory, "+
		"and a path with a slash names a file", r.netDir)
}

// names are the networks that can be loaded.
func names(c *config.Catalog) []string {
	var names []string
	for _, f := range c.Candidates() {
		if f.Use == config.Chosen {
			names = append(names, f.Name)
		}
	}
	return names
}
