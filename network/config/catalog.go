package config

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
)

// Use is how a file in a configuration directory is used.
type Use string

// The uses of files.
const (
	Chosen     Use = "chosen"     // a look-up of the network's name takes it
	DropIn     Use = "drop-in"    // its plugin is appended to the lists of the network
	PolicyFile Use = "policy"     // see [Policy]
	Shadowed   Use = "shadowed"   // a file that is looked at earlier has the network's name
	Broken     Use = "broken"     // it cannot be used, see Err; so cannot its network
	Suppressed Use = "suppressed" // a drop-in of a network that says loadOnlyInlinedPlugins
	Ignored    Use = "ignored"    // nobody reads it
)

// File is a file or directory in a configuration directory, and its use.
type File struct {
	Path       string
	Use        Use
	Reason     string   // why nothing comes of it, for people; empty where something does, and where Err says it
	Name       string   // of the network that it states or, in a drop-in directory, belongs to; empty if that cannot be told
	Network    *Network // nil if it is none, or Err says why not
	Err        error    // what is wrong with it: a [*FileError]
	Default    bool     // runtimes take it where no network is asked for, whether it can be loaded or not
	ShadowedBy string   // path of the file that is looked at earlier
	Kind       Kind     // what it should hold
	Content    []byte   // as it was read; nil if nobody reads it, or it cannot be read
}

// Kind is what a file holds according to its name and its directory.
type Kind string

// The kinds of files.
const (
	OtherFile  Kind = ""        // nothing that a runtime reads, or the policy
	ListFile   Kind = "list"    // a network configuration list
	SingleFile Kind = "single"  // a network of a single plugin
	DropInFile Kind = "drop-in" // a plugin of the network whose name its directory bears
)

// Catalog is the content of a configuration directory at one moment.
type Catalog struct {
	Dir    string
	Files  []File  // in the byte order of paths, those of drop-in directories included
	Policy *Policy // of [PolicyName]; nil if there is none
}

// Candidates returns the files that hold networks, or are broken, in the order of [Catalog.Lookup].
func (c *Catalog) Candidates() []File {
	var all []File
	for _, f := range c.candidates() {
		all = append(all, *f)
	}
	return all
}

func (c *Catalog) candidates() []*File {
	var all []*File
	for _, k := range []Kind{ListFile, SingleFile} {
		for i := range c.Files {
			if c.Files[i].Kind == k {
				all = append(all, &c.Files[i])
			}
		}
	}
	return all
}

// list returns the first list of a name; nil if there is none.
func (c *Catalog) list(name string) *File {
	for _, f := range c.candidates() {
		if f.Kind == ListFile && f.Name == name {
			return f
		}
	}
	return nil
}

// Lookup finds a network by name: the first file that has it, first among the lists (.conflist), then among the single
// plugins (.conf, .json), each in the byte order of file names.
//
// A broken file hides no other network. If it states the name that is looked for, as far as it can be read, it is the
// network, and its error that of the look-up. Otherwise it is returned as passed, where it comes before the network or
// there is none of the name, so that somebody is told: it might have been meant. [Load] is for who must not go on then.
//
// The error is [ErrNoConfig] where the directory holds no configuration or does not exist, [ErrNotFound] where none has the
// name, and otherwise that of [LoadFile].
func (c *Catalog) Lookup(name string) (n *Network, passed []File, err error) {
	if err := cni.ValidateNetworkName(name); err != nil {
		return nil, nil, err
	}
	var present []string
	for _, f := range c.candidates() {
		switch {
		case f.Name == name:
			return f.Network, passed, f.Err
		case f.Err != nil:
			passed = append(passed, *f)
		default:
			present = append(present, f.Name)
		}
	}
	if present == nil && passed == nil {
		return nil, nil, c.none()
	}
	there := "none can be read"
	if present != nil {
		there = "there are: " + strings.Join(present, ", ")
	}
	return nil, passed, fmt.Errorf("network %q in %s: %w (%s)", name, c.Dir, ErrNotFound, there)
}

// Default returns the network that runtimes use where none is asked for: the first file of any kind in the byte order of
// file names. Errors are [ErrNoConfig] and those of [LoadFile].
func (c *Catalog) Default() (*Network, error) {
	for _, f := range c.Files {
		if f.Default {
			return f.Network, f.Err
		}
	}
	return nil, c.none()
}

// Networks returns every network in the order of [Catalog.Lookup]: of several of one name the first counts. The error
// joins those of the files that cannot be loaded, and is [ErrNoConfig] where there are none.
func (c *Catalog) Networks() ([]*Network, error) {
	candidates := c.candidates()
	if len(candidates) == 0 {
		return nil, c.none()
	}
	var networks []*Network
	var errs []error
	for _, f := range candidates {
		if f.Err != nil {
			errs = append(errs, f.Err)
			continue
		}
		networks = append(networks, f.Network)
	}
	return networks, errors.Join(errs...)
}

// equal reports whether two catalogues are of the same files with the same content, but for those that nobody reads.
func (c *Catalog) equal(d *Catalog) bool {
	return slices.EqualFunc(c.used(), d.used(), func(a, b File) bool {
		return a.Path == b.Path && a.Use == b.Use && bytes.Equal(a.Content, b.Content)
	})
}

func (c *Catalog) used() []File {
	return slices.DeleteFunc(slices.Clone(c.Files), func(f File) bool { return f.Use == Ignored })
}

func (c *Catalog) none() error { return fmt.Errorf("%s: %w", c.Dir, ErrNoConfig) }
