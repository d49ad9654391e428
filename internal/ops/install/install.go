// Package install installs the built-in plugins into a plugin directory, and removes Tenon from a
// host.
package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/plugindir"
	"github.com/tenon-cni/tenon/internal/repair"
	"github.com/tenon-cni/tenon/internal/statefile"
	"github.com/tenon-cni/tenon/invoke"
)

// Change states how Run changed the file of a plugin.
type Change string

// The changes.
const (
	Installed Change = "installed" // new file
	Replaced  Change = "replaced"  // replaced a file with other content
	Unchanged Change = "unchanged" // already installed
)

// Plugin is an installed plugin.
type Plugin struct {
	Name     string
	Path     string
	Change   Change
	Versions []string // of CNI, from its answer to VERSION
}

// Request lists the plugins to install, and the directory.
type Request struct {
	Dir   string   // plugin directory; Run creates it if it is missing
	Names []string // plugins, file names of the links
	// Programs are copied or linked too: plugins that are programs of their own, and programs that
	// plugins expect in their directory.
	Programs []Program
	// Host has the links of an installed package; nil if there is none. Run installs nothing in a
	// directory that contains such links.
	Host *plugindir.Host
}

// Program is a program other than tenon.
type Program struct {
	Path   string
	Name   string // file name in the directory
	Plugin bool   // it answers VERSION
}

// programDirs lists the directories of programs. A plugin there could replace a program, such as
// iproute2's bridge.
var programDirs = []string{
	"/bin",
	"/sbin",
	"/usr/bin",
	"/usr/sbin",
	"/usr/local/bin",
	"/usr/local/sbin",
}

// self is a path of the running binary that remains valid after a rename.
const self = "/proc/self/exe"

// Run creates a hard link to the running binary for each plugin, or one copy and links to it if the
// directory is on another file system. It tests each file with VERSION before the file replaces
// another of the same name. A replaced file of another program remains as NAME.before-tenon, from
// which [Plan.Run] restores it. A second Run changes nothing. Concurrent calls for one directory
// wait for each other.
//
// Run returns an error and changes nothing if one of the names is neither a file nor a symbolic
// link, or if a package has linked its plugins in the directory.
func Run(ctx context.Context, r Request) ([]Plugin, error) {
	dir, err := filepath.Abs(r.Dir)
	if err != nil {
		return nil, err
	}
	names := slices.Clone(r.Names)
	for _, p := range r.Programs {
		names = append(names, p.Name)
	}
	if err := usable(dir, names); err != nil {
		return nil, err
	}
	if err := r.notPackaged(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, cni.Errorf(cni.CodeIOFailure, "plugin directory: %w", err)
	}
	staging, end, err := stage(ctx, dir)
	if err != nil {
		return nil, err
	}
	in := installation{dir: dir, staging: staging}
	err = in.run(ctx, r.Names)
	for _, p := range r.Programs {
		if err == nil {
			err = in.program(ctx, p)
		}
	}
	return in.done, errors.Join(err, end())
}

// usable refuses directories of programs, and names that are neither files nor symbolic links.
func usable(dir string, names []string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		real = dir
	}
	if slices.Contains(programDirs, dir) || slices.Contains(programDirs, real) {
		return cni.Errorf(cni.CodeInvalidConfig, "%s is a directory of programs, not of plugins", dir).
			WithDetails("use /opt/cni/bin: a plugin could replace a program of the same name there, such as iproute2's bridge")
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return cni.Errorf(cni.CodeInvalidConfig, "%s is not a directory", dir)
	}
	for _, name := range names {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err == nil && !info.Mode().IsRegular() && info.Mode().Type() != fs.ModeSymlink {
			return cni.Errorf(cni.CodeInvalidConfig, "%s is not a file", filepath.Join(dir, name))
		}
	}
	return nil
}

// notPackaged refuses a directory with links of a package: the package would neither upgrade nor
// remove the files that replace them.
func (r Request) notPackaged(dir string) error {
	if r.Host == nil {
		return nil
	}
	links, err := r.Host.Links()
	if err != nil {
		return ioFailure(err)
	}
	for _, link := range links {
		if filepath.Dir(link) == dir {
			err := cni.Errorf(cni.CodeInvalidConfig,
				"the package tenon has linked its plugins in %s", dir)
			return err.WithDetails(
				"upgrade the package, or remove it first, for example with: apt remove tenon")
		}
	}
	return nil
}

type installation struct {
	dir, staging string
	source       string // target of the links
	done         []Plugin
}

func (in *installation) run(ctx context.Context, names []string) error {
	if err := in.findSource(names); err != nil {
		return err
	}
	for _, name := range names {
		p, err := in.install(ctx, name)
		if err != nil {
			return fmt.Errorf("plugin %s: %w", name, err)
		}
		in.done = append(in.done, p)
	}
	return nil
}

// findSource chooses the target of the links: the running binary or, if the directory is on another
// file system, an existing or a new copy.
func (in *installation) findSource(names []string) error {
	in.source = self
	first := filepath.Join(in.staging, "source")
	if err := link(self, first); err == nil {
		return nil
	}
	for _, name := range names {
		path := filepath.Join(in.dir, name)
		if same, err := sameContent(self, path); err == nil && same {
			in.source = path
			return nil
		}
	}
	in.source = first
	if err := copyFile(self, first); err != nil {
		return cni.Errorf(cni.CodeIOFailure, "copy the binary: %w", err)
	}
	return nil
}

func (in *installation) install(ctx context.Context, name string) (Plugin, error) {
	p := Plugin{Name: name, Path: filepath.Join(in.dir, name), Change: Installed}
	if info, err := os.Lstat(p.Path); err == nil {
		p.Change = Replaced
		if source, err := os.Stat(in.source); err == nil && os.SameFile(source, info) {
			p.Change = Unchanged
			p.Versions, err = versions(ctx, p.Path)
			return p, err
		}
	}
	draft := filepath.Join(in.staging, name)
	if err := link(in.source, draft); err != nil {
		return p, cni.Errorf(cni.CodeIOFailure, "%w", err)
	}
	var err error
	if p.Versions, err = versions(ctx, draft); err != nil {
		return p, err
	}
	return p, p.put(draft)
}

// program installs a link to a program, or a copy if the directory is on another file system.
func (in *installation) program(ctx context.Context, from Program) error {
	p := Plugin{Name: from.Name, Path: filepath.Join(in.dir, from.Name), Change: Installed}
	if _, err := os.Lstat(p.Path); err == nil {
		p.Change = Replaced
		if same, err := sameContent(from.Path, p.Path); err == nil && same {
			p.Change = Unchanged
		}
	}
	draft := filepath.Join(in.staging, from.Name)
	if p.Change == Unchanged {
		draft = p.Path
	} else if err := link(from.Path, draft); err != nil {
		if err := copyFile(from.Path, draft); err != nil {
			return cni.Errorf(cni.CodeIOFailure, "program %s: %w", from.Name, err)
		}
	}
	if from.Plugin {
		var err error
		if p.Versions, err = versions(ctx, draft); err != nil {
			return fmt.Errorf("plugin %s: %w", from.Name, err)
		}
	}
	if p.Change != Unchanged {
		if err := p.put(draft); err != nil {
			return fmt.Errorf("program %s: %w", from.Name, err)
		}
	}
	in.done = append(in.done, p)
	return nil
}

// put gives the file of a plugin its name, and keeps the file that it replaces unless that is a
// build of Tenon. A link to one belongs to a package.
func (p Plugin) put(draft string) error {
	if info, err := os.Lstat(p.Path); err == nil && (!info.Mode().IsRegular() ||
		!repair.IsOurs(p.Path)) {
		if err := ioFailure(plugindir.Keep(p.Path)); err != nil {
			return err
		}
	}
	return ioFailure(os.Rename(draft, p.Path))
}

// link creates a hard link to old, following symbolic links.
func link(old, new string) error {
	if err := unix.Linkat(unix.AT_FDCWD, old, unix.AT_FDCWD, new, unix.AT_SYMLINK_FOLLOW); err != nil {
		return &os.LinkError{Op: "link", Old: old, New: new, Err: err}
	}
	return nil
}

// versions returns the CNI versions that an executable file supports. It returns an error unless
// they include the newest.
func versions(ctx context.Context, path string) ([]string, error) {
	v, err := askVersions(ctx, path)
	if err != nil {
		return nil, err
	}
	if !v.Supports(cni.Newest) {
		return nil, cni.Errorf(
			cni.CodeIncompatibleVersion,
			"the installed file does not support CNI version %v",
			cni.Newest,
		)
	}
	return v.Supported, nil
}

// askVersions runs VERSION of a plugin.
func askVersions(ctx context.Context, path string) (cni.VersionReply, error) {
	reply, err := invoke.Process{}.Call(ctx, invoke.Call{
		Path: path, Env: cni.Env{Command: cni.VersionCommand}, Stdin: []byte(`{"cniVersion":"` + cni.Newest.String() + `"}`),
	})
	if err != nil {
		return cni.VersionReply{}, err
	}
	return cni.DecodeVersionReply(reply.Stdout)
}

// copyFile copies a file with a single write. The kernel caches a file in units of the written
// size: a plugin starts in 2.0 ms from one unit, and in 2.9 ms from pages (Linux 6.18, ext4).
func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return statefile.Replace(to, content, 0o755, nil)
}

// sameContent compares two files, without following a symbolic link at b.
func sameContent(a, b string) (bool, error) {
	if info, err := os.Lstat(b); err != nil || !info.Mode().IsRegular() {
		return false, err
	}
	content, err := os.ReadFile(a)
	if err != nil {
		return false, err
	}
	other, err := os.ReadFile(b)
	return err == nil && bytes.Equal(content, other), err
}
