package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/cni"
)

// Snapshot is the configuration in use at one moment. It never changes.
type Snapshot struct {
	Dir        string
	Generation uint64    // counts the snapshots of one [Directory], from 1
	Read       time.Time // when the directory was read

	// Networks are the networks in use, each name once, in the byte order of the paths of their
	// files and regardless of the kinds of files. Runtimes that use a limited number of networks
	// use the first ones.
	Networks []*Network

	// Policy is the policy in use; nil if there is none. It may forbid networks of the snapshot:
	// Client.Add of package network refuses those.
	Policy *Policy

	// Problems are the differences between the snapshot and the directory, in the byte order of
	// paths.
	Problems []Problem

	due time.Time // when the next missing file goes out of use; zero means never
}

// Problem states why something in a configuration directory is not used.
type Problem struct {
	Path    string    // of the file, or the directory
	Network string    // empty if the problem concerns no network or an unknown one
	Err     error     // the cause, a [*FileError]
	Since   time.Time // when the problem was first seen
	Kept    bool      // the previous configuration stays in use instead

	kind trouble
}

// trouble is the kind of a problem. A problem of a different kind is a new problem.
type trouble uint8

const (
	_         trouble = iota
	unread            // the directory cannot be read, or keeps changing
	tooFew            // the directory has too few networks
	unusable          // a file cannot be loaded
	lingering         // a file has disappeared, but stays in use for a while
	last              // a file has disappeared, but too few networks would be left
	forbidden         // the policy forbids the new content of the file, but not the old
)

// Network returns the network in use with a name. If there is none, the error is the problem of the
// file that should define it, [ErrNoConfig] if the directory is empty, and otherwise [ErrNotFound]
// with the names of the available networks.
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

// Err joins the problems in an error with [cni.CodeNotAvailable], or returns nil if there are none.
// If all problems are Kept, ADD works as before, and the runtime decides whether the node is ready.
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

// problem returns the existing problem of the same kind, path and network; nil if the problem is
// new.
func (s *Snapshot) problem(like Problem) *Problem {
	for i, p := range s.Problems {
		if p.kind == like.kind && p.Path == like.Path && p.Network == like.Network {
			return &s.Problems[i]
		}
	}
	return nil
}

// since returns when a problem was first seen; that is now for a new problem.
func (s *Snapshot) since(p Problem, now time.Time) time.Time {
	if before := s.problem(p); before != nil {
		return before.Since
	}
	return now
}
