// Package plugindir links the plugins of an installed package in the plugin directories of a host,
// and restores the earlier files. It keeps no state: links, kept files and diversions show what it
// did, so that an interrupted run can be repeated.
package plugindir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// keptSuffix marks files of other programs that a plugin replaces.
	keptSuffix = ".before-tenon"
	// draftSuffix marks links before they get their name.
	draftSuffix = ".tenon-new"
	// createdFile marks a directory that Link created. It holds the first directory that did not
	// exist before.
	createdFile = ".created-by-tenon"
)

// Host describes the directories of a host.
type Host struct {
	Source string   // directory of the package, with one file or link for each plugin
	Dirs   []string // plugin directories, which Link creates if they are missing
	// Shared lists the plugin directories of the distribution. Link uses one only if it contains
	// other plugins, because runtimes search it only then.
	Shared []string
	// Dpkg handles files of other packages; nil keeps them like files that no package owns.
	Dpkg *Dpkg
	// Ours reports whether a file is from an earlier installation of this program. Restore does not
	// restore such files, but the files that they have replaced. nil: no file is.
	Ours func(path string) bool
}

// ours reports whether a file is from an earlier installation of this program. A symbolic link is
// not: the user made it, and it may lead to one of the links.
func (h *Host) ours(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular() && h.Ours != nil && h.Ours(path)
}

// Directory counts the plugins that Link linked in a directory.
type Directory struct {
	Path     string
	Linked   int // links, of which
	Kept     int // replace a file that is kept aside, and
	Diverted int // replace a file of another package
}

// Link links each plugin in each directory. The file of a plugin exists at any time: a link replaces
// it atomically. Link removes the traces of packages that were removed since its last run. A second
// run changes nothing.
func (h *Host) Link(ctx context.Context) ([]Directory, error) {
	names, err := h.names()
	if err != nil {
		return nil, err
	}
	var done []Directory
	for _, dir := range h.Dirs {
		if err := create(dir); err != nil {
			return done, err
		}
		d, err := h.linkAll(ctx, dir, names)
		done = append(done, d)
		if err != nil {
			return done, err
		}
	}
	for _, dir := range h.Shared {
		foreign, err := h.foreign(dir)
		if err != nil {
			return done, err
		}
		if !foreign {
			if err := h.leave(ctx, dir); err != nil {
				return done, err
			}
			continue
		}
		d, err := h.linkAll(ctx, dir, names)
		done = append(done, d)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// names lists the plugins of the package.
func (h *Host) names() (names []string, err error) {
	entries, err := os.ReadDir(h.Source)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s has no plugins", h.Source)
	}
	return names, err
}

func (h *Host) linkAll(ctx context.Context, dir string, names []string) (Directory, error) {
	d := Directory{Path: dir}
	for _, name := range names {
		p, err := h.inspect(dir, name)
		if err == nil {
			err = h.link(ctx, &p)
		}
		if err != nil {
			return d, fmt.Errorf("plugin %s: %w", p.path, err)
		}
		d.Linked++
		if p.state == alternative {
			d.Diverted++
		} else if exists(Kept(p.path)) {
			d.Kept++
		}
	}
	return d, nil
}

// link brings one plugin into its state: a link, or an alternative if another package owns the file.
func (h *Host) link(ctx context.Context, p *place) error {
	if p.state == alternative && !exists(p.diverted()) { // the other package was removed
		if err := h.Dpkg.release(ctx, *p); err != nil {
			return err
		}
		p.state = missing
	}
	switch p.state {
	case linked:
		return nil
	case alternative:
		if h.Dpkg.registered(ctx, *p) {
			return nil
		}
		return h.Dpkg.register(ctx, *p)
	case missing:
		return symlink(p.target, p.path)
	case unusable:
		return errors.New("not a file")
	}
	if h.Dpkg != nil {
		owned, err := h.Dpkg.owned(ctx, p.path)
		if err != nil {
			return err
		}
		if owned {
			p.state = alternative
			return h.Dpkg.divert(ctx, *p)
		}
	}
	if p.earlier == p.path && !h.replaceable(p.path) {
		if err := Keep(p.path); err != nil {
			return err
		}
	}
	p.state = linked
	return symlink(p.target, p.path)
}

// replaceable reports whether the file of a plugin need not be kept: it is from an earlier
// installation of this program. In a shared directory, kept files show that it is in use.
func (h *Host) replaceable(path string) bool {
	return slices.Contains(h.Dirs, filepath.Dir(path)) && h.ours(path)
}

// leave removes the links from a directory without other plugins, and earlier files of packages
// that were removed. It removes the directory too, because the package manager could not remove it
// while it contained these files.
func (h *Host) leave(ctx context.Context, dir string) error {
	if entries, _ := os.ReadDir(dir); len(entries) == 0 {
		return nil // missing, or empty for reasons of its own
	}
	if err := h.restoreDir(ctx, dir); err != nil {
		return err
	}
	_ = os.Remove(dir) // other files remain
	return nil
}

// foreign reports whether a directory contains files that are not from this package, also kept ones.
func (h *Host) foreign(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	for _, e := range entries {
		name, kept := strings.CutSuffix(e.Name(), keptSuffix)
		p, err := h.inspect(dir, name)
		if err != nil {
			return false, err
		}
		if p.state == other || kept && p.state == linked {
			return true, nil
		}
	}
	return false, err
}

// Links returns the paths of all links in the directories.
func (h *Host) Links() (paths []string, err error) {
	for _, dir := range slices.Concat(h.Dirs, h.Shared) {
		links, err := h.linksIn(dir)
		if err != nil {
			return nil, err
		}
		paths = append(paths, links...)
	}
	return paths, nil
}

func (h *Host) linksIn(dir string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		p, err := h.inspect(dir, e.Name())
		if err != nil {
			return nil, err
		}
		if p.state == linked || p.state == alternative {
			paths = append(paths, p.path)
		}
	}
	return paths, nil
}

// Restore removes all links and restores the earlier files, each atomically. If another program
// has replaced a link in the meantime, its file stays. Restore removes directories that Link
// created, and shared ones that only links kept, unless they contain other files.
func (h *Host) Restore(ctx context.Context) error {
	var errs []error
	for _, dir := range h.Dirs {
		errs = append(errs, h.restoreDir(ctx, dir))
	}
	for _, dir := range h.Shared {
		errs = append(errs, h.leave(ctx, dir))
	}
	return errors.Join(errs...)
}

func (h *Host) restoreDir(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), draftSuffix) { // of an interrupted run
			errs = append(errs, remove(filepath.Join(dir, e.Name())))
			continue
		}
		name := strings.TrimSuffix(strings.TrimSuffix(e.Name(), keptSuffix), divertedSuffix)
		p, err := h.inspect(dir, name)
		if err == nil {
			err = h.restore(ctx, p)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("plugin %s: %w", p.path, err))
		}
	}
	return errors.Join(append(errs, removeCreated(dir))...)
}

// restore restores the file of one plugin.
func (h *Host) restore(ctx context.Context, p place) error {
	switch p.state {
	case alternative:
		return errors.Join(h.Dpkg.release(ctx, p), remove(Kept(p.path)))
	case linked:
		if kept := Kept(p.path); exists(kept) && h.ours(kept) {
			return errors.Join(remove(p.path), remove(kept))
		}
		return Restore(p.path)
	}
	var err error
	if h.Dpkg != nil {
		err = h.Dpkg.finish(ctx, p)
	}
	return errors.Join(err, remove(Kept(p.path))) // the file that replaced the link is newer
}

// create makes a directory and marks it.
func create(dir string) error {
	first := ""
	for d := dir; !exists(d); d = filepath.Dir(d) {
		first = d
	}
	if first == "" {
		return nil
	}
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = MarkCreated(dir, first)
	}
	if err != nil {
		removeEmpty(dir, first)
	}
	return err
}

// MarkCreated marks a plugin directory that did not exist before the installation, with the first
// of its parents that did not exist. [Host.Restore] removes them if they are empty.
func MarkCreated(dir, first string) error {
	return os.WriteFile(filepath.Join(dir, createdFile), []byte(first+"\n"), 0o644)
}

// removeCreated removes a directory and its parents as far as create made them and they are empty.
func removeCreated(dir string) error {
	mark := filepath.Join(dir, createdFile)
	text, err := os.ReadFile(mark)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.Remove(mark); err != nil {
		return err
	}
	removeEmpty(dir, strings.TrimSpace(string(text)))
	return nil
}

// removeEmpty removes a directory and its parents up to first, unless other files remain.
func removeEmpty(dir, first string) {
	_ = os.Remove(filepath.Join(dir, createdFile))
	for d := dir; strings.HasPrefix(d, first); d = filepath.Dir(d) {
		if err := os.Remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
}
