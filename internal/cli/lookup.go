package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network/config"
)

// load loads the network that an argument names: a path if it contains a slash, otherwise a name in
// --net-dir.
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
	n, skipped, err := c.Lookup(arg)
	for _, f := range skipped {
		r.warnSkipped(f)
	}
	return n, r.notFound(err, c, arg)
}

// warnSkipped warns that a file is ignored.
func (r *settings) warnSkipped(f config.File) { r.warn("skipped %v", f.Err) }

// notFound adds hints to an error of a lookup.
func (r *settings) notFound(err error, c *config.Catalog, name string) error {
	switch {
	case errors.Is(err, config.ErrNoConfig):
		return r.noConfig(fmt.Errorf("network %q: %w", name, err), c, name)
	case errors.Is(err, config.ErrNotFound):
		return hint(
			r.didYouMean(cni.Errorf(cni.CodeInvalidConfig, "%w", err), name, names(c)),
			r.elsewhere(),
		)
	case err != nil && cni.ValidateNetworkName(name) == nil:
		return r.needsRoot(
			hint(
				fmt.Errorf("network %q: %w", name, err),
				r.command("show all mistakes in it: ", "net", "lint", name),
			),
		)
	}
	return err
}

// noConfig adds hints to the error that a directory contains no network.
func (r *settings) noConfig(err error, c *config.Catalog, name string) error {
	advice := r.command(
		"write a network configuration: ",
		"net",
		"new",
		cmp.Or(name, "pods"),
		"--type",
		"bridge",
	)
	if len(c.Files) > 0 {
		advice = "none of the files there is a network configuration; file names must end in .conflist, .conf or .json"
	}
	return hint(cni.Errorf(cni.CodeInvalidConfig, "%w", err), advice, r.elsewhere())
}

func isPath(arg string) bool { return strings.Contains(arg, "/") }

func (r *settings) elsewhere() string {
	return fmt.Sprintf(
		"searched %s; use --net-dir or NETCONFPATH for another directory, or give the path of a file",
		r.netDir,
	)
}

// names returns the names of the networks that can be loaded.
func names(c *config.Catalog) []string {
	var names []string
	for _, f := range c.Candidates() {
		if f.Use == config.Chosen {
			names = append(names, f.Name)
		}
	}
	return names
}
