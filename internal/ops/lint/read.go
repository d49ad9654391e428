package lint

import (
	"os"

	"github.com/tenon-cni/tenon/network"
)

// largest is the size of a file that nobody reads up to which it may be a configuration.
const largest = 1 << 20

// Read reads a configuration folder, and of files that nobody reads the content: it may be meant to be read.
func Read(dir string) (*network.Catalog, error) {
	c, err := network.Discover(dir)
	if err != nil {
		return nil, err
	}
	for i := range c.Files {
		f := &c.Files[i]
		info, err := os.Stat(f.Path)
		if f.Use == network.Ignored && err == nil && info.Mode().IsRegular() && info.Size() <= largest {
			f.Content, _ = os.ReadFile(f.Path) // what cannot be read is nothing to tell of
		}
	}
	return c, nil
}
