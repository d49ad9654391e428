package cli

import (
	"cmp"
	"errors"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/network/config"
)

func (a *app) net() *cobra.Command {
	cmd := parent(&cobra.Command{
		Use:   "net",
		Short: "Inspect and write network configurations",
		Long: `Networks are files in --net-dir. The first file in alphabetical order wins: among
the files that define the same network, and as the default network of containers
that name none. These commands show which file that is, and why others are not
used.`,
		Example: `  tenon net new pods --type bridge --subnet 10.88.0.0/16
  tenon net list
  tenon net explain pods`,
	})
	cmd.AddCommand(a.netExplain(), a.netLint(), a.netList(), a.netNew(), a.netRm(), a.netShow())
	return cmd
}

// catalog reads the directory of networks. It returns an error if there is none.
func (r *settings) catalog() (*config.Catalog, error) {
	c, err := config.Discover(r.netDir)
	if err != nil {
		return nil, r.needsRoot(err)
	}
	return r.requireNetworks(c)
}

func (r *settings) requireNetworks(c *config.Catalog) (*config.Catalog, error) {
	if _, err := c.Default(); errors.Is(err, config.ErrNoConfig) {
		return nil, r.noConfig(err, c, "")
	}
	return c, nil
}

// baseName returns the path of a file relative to the directory of networks.
func (r *settings) baseName(path string) string {
	if rest, ok := strings.CutPrefix(path, filepath.Clean(r.netDir)+"/"); ok {
		return rest
	}
	return cmp.Or(path, "-")
}
