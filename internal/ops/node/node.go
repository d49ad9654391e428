// Package node installs Tenon on a node of a cluster, from a container that sees the node's
// directories: the plugins, and the network configurations of a directory. It checks the networks
// with STATUS before their configurations appear, restores files that disappear, and removes what
// it installed. Package install does the work on plugins, and netconf on networks.
package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/install"
	"github.com/tenon-cni/tenon/internal/ops/lint"
	"github.com/tenon-cni/tenon/internal/statefile"
	"github.com/tenon-cni/tenon/network/config"
)

// Node lists what to install on a node.
type Node struct {
	Plugins install.Request // with the plugin directory of the node
	Source  string          // directory of the network configurations to install
	NetDir  string          // configuration directory of the node

	// Status returns an error if the installed plugins cannot attach containers to a network.
	Status func(context.Context, *config.Network) error
}

// Report lists the changes of an installation.
type Report struct {
	Plugins []install.Plugin
	Files   []File // configurations
}

// File is a configuration file that Install changed.
type File struct {
	Path   string
	Change install.Change
}

// Removed is the change of a file that an earlier installation wrote and that is no longer part of
// the source.
const Removed install.Change = "removed"

// Lock excludes other installations on the node and removals until unlock is called. It does not
// wait: if there is another, the error has [cni.CodeTryAgainLater].
func Lock(pluginDir string) (unlock func(), err error) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	lock, err := statefile.TakeLock(ended, filepath.Join(pluginDir, ".tenon-node.lock"),
		statefile.Exclusive)
	switch {
	case err == nil:
		return lock.Release, nil
	case errors.Is(err, context.Canceled):
		return nil, cni.Errorf(cni.CodeTryAgainLater,
			"another installation or removal of Tenon runs on this node").
			WithDetails("delete the DaemonSet of the other one, or wait until it ends")
	}
	return nil, cni.Errorf(cni.CodeIOFailure, "%w", err)
}

// Install installs the plugins, checks the networks with STATUS and then writes the configurations.
// Runtimes see each file complete or not at all, and configurations only when they work: if a
// network is not ready, Install returns the error, and all configurations remain as they were. It
// removes the configurations of an earlier installation that the source no longer has. A second
// Install changes nothing.
//
// Install returns an error and changes nothing if a configuration has mistakes, or would replace a
// file of another program.
func (n *Node) Install(ctx context.Context) (Report, error) {
	var done Report
	source, err := n.source()
	if err != nil {
		return done, err
	}
	old, err := readReceipt(n.NetDir)
	if err != nil {
		return done, err
	}
	if err := n.foreign(source, old); err != nil {
		return done, err
	}
	if err := old.removeDrafts(n.NetDir); err != nil {
		return done, err
	}
	if done.Plugins, err = install.Run(ctx, n.Plugins); err != nil {
		return done, err
	}
	if err := n.status(ctx, source); err != nil {
		return done, err
	}
	done.Files, err = n.write(source, old)
	return done, err
}

// source reads the configurations to install, without mistakes. The policy comes first.
func (n *Node) source() (files []config.File, err error) {
	c, err := config.Discover(n.Source)
	if err != nil {
		return nil, err
	}
	for _, f := range lint.Check(c, nil) {
		if f.Severity == lint.Error {
			err = errors.Join(err, errors.New(f.String()))
		}
	}
	if err != nil {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "%w", err)
	}
	for _, f := range c.Files {
		if f.Use == config.PolicyFile {
			files = append(files, f)
		}
	}
	files = append(files, c.Candidates()...)
	if len(files) == 0 {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "%s: %w", n.Source, config.ErrNoConfig).
			WithDetails("file names must end in .conflist, .conf or .json")
	}
	return files, nil
}

// target returns the path on the node of a file of the source.
func (n *Node) target(f config.File) string {
	return filepath.Join(n.NetDir, filepath.Base(f.Path))
}

// foreign returns an error if the installation would replace the file of another program.
func (n *Node) foreign(source []config.File, old receipt) error {
	for _, f := range source {
		path := n.target(f)
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || bytes.Equal(content, f.Content) ||
			err == nil && old.has(path, content) {
			continue
		}
		if err != nil {
			return cni.Errorf(cni.CodeIOFailure, "%w", err)
		}
		return cni.Errorf(cni.CodeInvalidConfig, "%s exists, and has other content than Tenon wrote",
			path).WithDetails("remove it, or rename the configuration to install")
	}
	return nil
}

// status checks the networks of the source.
func (n *Node) status(ctx context.Context, source []config.File) (err error) {
	for _, f := range source {
		if f.Network != nil && f.Use == config.Chosen {
			if e := n.Status(ctx, f.Network); e != nil {
				err = errors.Join(err, fmt.Errorf("network %s: %w", f.Name, e))
			}
		}
	}
	return err
}

// write writes the configurations. The receipt lists each file before it exists.
func (n *Node) write(source []config.File, old receipt) (changes []File, err error) {
	if err := os.MkdirAll(n.NetDir, 0o755); err != nil {
		return nil, cni.Errorf(cni.CodeIOFailure, "%w", err)
	}
	next, both := receipt{}, old.clone()
	var missing []config.File
	for _, f := range source {
		path := n.target(f)
		content, err := os.ReadFile(path)
		switch {
		case err != nil || !bytes.Equal(content, f.Content):
			missing = append(missing, f)
		case !old.has(path, content):
			continue // another program wrote the same content
		}
		next.add(path, f.Content)
		both.add(path, f.Content)
	}
	outdated := old.without(next)
	if len(missing)+len(outdated) == 0 && next.equal(old) {
		return nil, nil
	}
	if err := both.write(n.NetDir); err != nil {
		return nil, err
	}
	for _, f := range missing {
		change := File{n.target(f), install.Installed}
		if _, err := os.Lstat(change.Path); err == nil {
			change.Change = install.Replaced
		}
		if err := statefile.Replace(change.Path, f.Content, 0o644, nil); err != nil {
			return changes, cni.Errorf(cni.CodeIOFailure, "%w", err)
		}
		changes = append(changes, change)
	}
	for _, path := range outdated {
		if err := os.Remove(path); err != nil {
			return changes, cni.Errorf(cni.CodeIOFailure, "%w", err)
		}
		changes = append(changes, File{path, Removed})
	}
	return changes, next.write(n.NetDir)
}

// Check returns an error if a plugin or a configuration on the node differs from the installation,
// or if a network is not ready. It changes nothing.
func (n *Node) Check(ctx context.Context) error {
	source, err := n.source()
	if err != nil {
		return err
	}
	for _, f := range source {
		content, err := os.ReadFile(n.target(f))
		if err == nil && !bytes.Equal(content, f.Content) {
			err = fmt.Errorf("%s differs from %s", n.target(f), f.Path)
		}
		if err != nil {
			return cni.Errorf(cni.CodeNotAvailable, "%w", err)
		}
	}
	if err := n.Plugins.Complete(); err != nil {
		return err
	}
	return n.status(ctx, source)
}

// Absent returns an error if a configuration that Install wrote is on the node.
func Absent(netDir string) error {
	r, err := readReceipt(netDir)
	if err == nil && len(r) > 0 {
		err = cni.Errorf(cni.CodeTryAgainLater, "installed: %q", slices.Sorted(r.paths()))
	}
	return err
}
