package lint

import (
	"os"

	"github.com/tenon-cni/tenon/network/config"
)

// largest is the maximum size of an unused file that Read reads.
const largest = 1 << 20

// Read reads a configuration directory, including the content of unused files, which may be
// intended as configurations.
func Read(dir string) (*config.Catalog, error) {
	c, err := config.Discover(dir)
	if err != nil {
		return nil, err
	}
	for i := range c.Files {
		f := &c.Files[i]
		info, err := os.Stat(f.Path)
		if f.Use == config.Ignored && err == nil && info.Mode().IsRegular() &&
			info.Size() <= largest {
			f.Content, _ = os.ReadFile(
				f.Path,
			) // an unused file that cannot be read needs no finding
		}
	}
	return c, nil
}

// Content checks a configuration list before it is written, without other networks and executable
// files. policy is the policy of its directory, or nil.
func Content(list []byte, policy *config.Policy) ([]Finding, error) {
	n, err := config.LoadBytes(list)
	if err != nil {
		return nil, err
	}
	f := config.File{
		Path:    "new.conflist",
		Kind:    config.ListFile,
		Use:     config.Chosen,
		Name:    n.Name,
		Network: n,
		Content: list,
	}
	return Check(&config.Catalog{Files: []config.File{f}, Policy: policy}, nil), nil
}
