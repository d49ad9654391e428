package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/cni"
)

// Snapshot is the configuration in use from one moment on. It never changes.
type Snapshot struct {
	Dir        string
	Generation uint64    // of one [Directory], from 1
	Read       time.Time // when the directory was looked at

	// Networks are in use, each name once, in the byte order of the paths of their files, whatever the kinds of those:
	// runtimes that take some networks take the first.
	Networks []*Network

	// Policy is in use; nil if there is none. It does not have to allow all networks: Client.Add of package network refuses those.
	Policy *Policy

	// Problems are why this is not what the directory says, or not all of it, in the byte order of paths.
	Problems []Problem

	due time.Time // when something that lingers counts; zero is never
}

// Problem is why something in a configuration directory is not used.
type Problem struct {
	Path    string    // of the file, or the directory
	Network string    // its name; empty if it is not of one, or nobody knows of which
	Err     error     // what is wrong, a [*FileError]
	Since   time.Time // when that was first seen
	Kept    bool      // what was there before is in use instead

	kind trouble
}

// trouble is the kind of a problem. A problem of another kind is another problem, and begins anew.
type trouble uint8

const (
	_         trouble = iota
	unread            // the directory cannot be read, or not in one state
	tooFew            // it has too few networks
	unusable          // a file cannot be loaded
	lingering         // a file has disappeared, which does not count yet
	last              // it has disappeared, which does not count as too few would be left
	forbidden         // the policy forbids what the file says, but not what it said before
)

// Network returns the network of a name that is in use. Where there is none the error is that of the file which should hold
// it, [ErrNoConfig] where the directory holds nothing, and [ErrNotFound] otherwise, with what there is.
func (s *Snapshot) Network(name string) (*Network, error) {
	if err := cni.ValidateNetworkName(name); err != nil {
		return nil, err
	}
	var present, broken []string
	for _, n := range s.Networks {
		if n.Name == name {
			return n, nil
		}
		present = append(present, n.Name)
	}
	for _, p := range s.Problems {
		switch {
		case p.Network == name, p.kind == unread && len(s.Networks) == 0:
			return nil, p.Err
		case p.kind == unusable && !p.Kept:
			broken = append(broken, p.Path)
		}
	}
	if present == nil && broken == nil {
		return nil, fmt.Errorf("%s: %w", s.Dir, ErrNoConfig)
	}
	there := "none can be used"
	if present != nil {
		there = "there are: " + strings.Join(present, ", ")
	}
	if broken != nil {
		there += "; broken: " + strings.Join(broken, ", ")
	}
	return nil, fmt.Errorf("network %q in %s: %w (%s)", name, s.Dir, ErrNotFound, there)
}

// Err joins the problems, with [cni.CodeNotAvailable]; nil if there are none. With problems that are all Kept, ADD works as
// before: whether a node is ready then is for its runtime to say.
func (s *Snapshot) Err() error {
	if len(s.Problems) == 0 {
		return nil
	}
	errs := make([]error, len(s.Problems))
	for i, p := range s.Problems {
		errs[i] = p.Err
	}
	return cni.Errorf(cni.CodeNotAvailable, "%w", errors.Join(errs...))
}

// unread reports whether the directory could not be read.
func (s *Snapshot) unread() bool {
	return slices.ContainsFunc(s.Problems, func(p Problem) bool { return p.kind == unread })
}

// problem returns a problem that there is already; nil if it is new.
func (s *Snapshot) problem(like Problem) *Problem {
	for i, p := range s.Problems {
		if p.kind == like.kind && p.Path == like.Path && p.Network == like.Network {
			return &s.Problems[i]
		}
	}
	return nil
}

// since returns when a problem was first seen, now if it is new.
func (s *Snapshot) since(p Problem, now time.Time) time.Time {
	if before := s.problem(p); before != nil {
		return before.Since
	}
	return now
}
