package lint

import (
	"os"
	"path/filepath"

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
	dir, err := os.MkdirTemp("", "tenon-lint-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "new.conflist")
	if err := os.WriteFile(path, list, 0o600); err != nil {
		return nil, err
	}
	c := config.DiscoverFile(path)
	c.Policy = policy
	return Check(c, nil), nil
}
