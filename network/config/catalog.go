package config

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
)

// Use states how a file in a configuration directory is used.
type Use string

// The uses of files.
const (
	Chosen     Use = "chosen"     // a look-up of the network's name returns it
	DropIn     Use = "drop-in"    // its plugin is appended to the lists of the network
	PolicyFile Use = "policy"     // see [Policy]
	Shadowed   Use = "shadowed"   // an earlier file has the network's name
	Broken     Use = "broken"     // neither the file nor its network can be used; see Err
	Suppressed Use = "suppressed" // a drop-in of a network with loadOnlyInlinedPlugins
	Ignored    Use = "ignored"    // no runtime reads it
)

// File is a file or directory in a configuration directory, and its use.
type File struct {
	Path string
	Use  Use

	// Reason explains to people why the file has no effect. It is empty if the file has one, or if
	// Err gives the reason.
	Reason string

	// Name is the network that the file states or, in a drop-in directory, belongs to; empty if
	// the file states none that can be read.
	Name string

	Network *Network // nil if the file holds none or cannot be loaded; see Err
	Err     error    // the mistake in the file: a [*FileError]
	Default bool     // runtimes use the file by default, even if it cannot be loaded

	ShadowedBy string // path of the earlier file with the same network name
	Kind       Kind   // what the file should hold
	Content    []byte // as read; nil if no runtime reads the file, or it cannot be read
}

// Kind is what a file holds according to its name and its directory.
type Kind string

// The kinds of files.
const (
	OtherFile  Kind = ""        // not read by runtimes, or the policy
	ListFile   Kind = "list"    // a network configuration list
	SingleFile Kind = "single"  // a network of a single plugin
	DropInFile Kind = "drop-in" // a plugin of the network that its directory is named after
)

// Catalog is the content of a configuration directory at one moment.
type Catalog struct {
	Dir    string
	Files  []File  // in the byte order of paths, including files in drop-in directories
	Policy *Policy // from [PolicyName]; nil if there is none
}

// Candidates returns the files that hold networks, and the broken ones, in the order of
// [Catalog.Lookup].
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

// list returns the first list with a name, or nil if there is none.
func (c *Catalog) list(name string) *File {
	for _, f := range c.candidates() {
		if f.Kind == ListFile && f.Name == name {
			return f
		}
	}
	return nil
}

// Lookup finds a network by name: the first file with that name, first among the lists (.conflist),
// then among the single plugins (.conf, .json), each in the byte order of file names.
//
// A broken file hides no other network. If the readable part of a broken file states the name,
// Lookup returns the error of that file. Lookup returns the other broken files in passed, up to the
// network or all of them if no network has the name, so that callers can report files that may have
// been meant. Use [Load] to fail on such a file instead.
//
// The error wraps [ErrNoConfig] if the directory holds no configuration or does not exist, and
// [ErrNotFound] if no network has the name. Otherwise the errors are the same as for [LoadFile].
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

// Default returns the network that runtimes use if no network is requested: the first file of any
// kind in the byte order of file names. It returns [ErrNoConfig] or an error of [LoadFile].
func (c *Catalog) Default() (*Network, error) {
	for _, f := range c.Files {
		if f.Default {
			return f.Network, f.Err
		}
	}
	return nil, c.none()
}

// Networks returns all networks in the order of [Catalog.Lookup]; the first of several with the
// same name takes precedence. The error joins the errors of the files that cannot be loaded, and is
// [ErrNoConfig] if there are no files.
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

// equal reports whether two catalogs have the same files with the same content, without regard to
// ignored files.
func (c *Catalog) equal(d *Catalog) bool {
	return slices.EqualFunc(c.used(), d.used(), func(a, b File) bool {
		return a.Path == b.Path && a.Use == b.Use && bytes.Equal(a.Content, b.Content)
	})
}

func (c *Catalog) used() []File {
	return slices.DeleteFunc(slices.Clone(c.Files), func(f File) bool { return f.Use == Ignored })
}

func (c *Catalog) none() error { return fmt.Errorf("%s: %w", c.Dir, ErrNoConfig) }
