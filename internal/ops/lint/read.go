package lint

import (
	"os"

	"github.com/tenon-cni/tenon/network/config"
)

// largest is the size of a file that nobody reads up to which it may be a configuration.
const largest = 1 << 20

// Read reads a configuration folder, and of files that nobody reads the content: it may be meant to be read.
func Read(dir string) (*config.Catalog, error) {
	c, err := config.Discover(dir)
	if err != nil {
		return nil, err
	}
	for i := range c.Files {
		f := &c.Files[i]
		info, err := os.Stat(f.Path)
		if f.Use == config.Ignored && err == nil && info.Mode().IsRegular() && info.Size() <= largest {
			f.Content, _ = os.ReadFile(f.Path) // what cannot be read is nothing to tell of
		}
	}
	return c, nil
}

// Content judges a configuration list before it is written, without other networks and executables. policy is the policy
// of its directory, or nil.
func Content(list []byte, policy *config.Policy) ([]Finding, error) {
	n, err := config.LoadBytes(list)
	if err != nil {
		return nil, err
	}
	f := config.File{Path: "new.conflist", Kind: config.ListFile, Use: config.Chosen, Name: n.Name, Network: n, Content: list}
	return Check(&config.Catalog{Files: []config.File{f}, Policy: policy}, nil), nil
}
