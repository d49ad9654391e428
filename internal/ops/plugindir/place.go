package plugindir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// state is the state of a plugin in a directory.
type state int

const (
	missing     state = iota
	linked            // a link to the package
	alternative       // a link to the alternative of another package's file
	other             // another file or link
	unusable          // a directory or device
)

// place is the file of a plugin in a directory.
type place struct {
	path   string
	target string // of the link
	group  string // of alternatives
	state  state
	// earlier is the file to restore: the file itself or, if it is from an earlier installation of
	// this program, the file that it has replaced.
	earlier string
}

// divertedSuffix is the suffix that dpkg-divert uses by default.
const divertedSuffix = ".distrib"

// diverted is the path of another package's file while the link has its name.
func (p place) diverted() string { return p.path + divertedSuffix }

// inspect returns the place of a plugin and its state.
func (h *Host) inspect(dir, name string) (place, error) {
	p := place{
		path:   filepath.Join(dir, name),
		target: filepath.Join(h.Source, name),
		group:  strings.ReplaceAll(strings.Trim(dir, "/"), "/", "-") + "-" + name,
	}
	info, err := os.Lstat(p.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return p, nil
	case err != nil:
		return p, err
	case info.Mode().IsRegular():
		p.state = other
		if name == createdFile {
			p.state = missing // not a plugin
		}
		p.earlier = p.path
		if h.ours(p.path) && exists(Kept(p.path)) {
			p.earlier = Kept(p.path)
		}
		return p, nil
	case info.Mode().Type() != fs.ModeSymlink:
		p.state = unusable
		return p, nil
	}
	to, err := os.Readlink(p.path)
	p.state, p.earlier = other, p.path
	if to == p.target {
		p.state = linked
	} else if h.Dpkg != nil && to == h.Dpkg.link(p.group) {
		p.state = alternative
	}
	return p, err
}

// symlink makes a symbolic link, in place of a file if there is one.
func symlink(target, path string) error {
	draft := path + draftSuffix
	if err := remove(draft); err != nil {
		return err
	}
	if err := os.Symlink(target, draft); err != nil {
		return err
	}
	return os.Rename(draft, path)
}

// Kept returns the path of the file that a plugin of Tenon has replaced, if there was one.
func Kept(plugin string) string { return plugin + keptSuffix }

// Earlier returns the path of the file that [Restore] or [Host.Restore] puts in the place of a
// plugin, or "" if there is none.
func Earlier(plugin string) string {
	for _, path := range []string{plugin + divertedSuffix, Kept(plugin)} {
		if exists(path) {
			return path
		}
	}
	return ""
}

// Keep keeps a file of another program that a plugin is about to replace. Both names exist until
// then.
func Keep(plugin string) error { return secondName(plugin, Kept(plugin)) }

// Restore removes a plugin, or puts the kept file back in its place atomically. It succeeds if
// neither exists.
func Restore(plugin string) error {
	err := os.Rename(Kept(plugin), plugin)
	if errors.Is(err, fs.ErrNotExist) {
		return remove(plugin)
	}
	return err
}

// secondName gives a file a second name. A file of that name is from an interrupted run, or older.
func secondName(path, second string) error {
	if err := remove(second); err != nil {
		return err
	}
	return os.Link(path, second)
}

// remove removes a file if it exists.
func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
