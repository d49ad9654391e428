// Package ledger keeps values that the kernel cannot store for an object, such as its settings
// before a change, in a directory with one JSON file per value. It does not interpret the values or
// their names.
//
// The ledger replaces a file as a whole: a reader sees the value before or after, never a part.
// Only the owner of the directory can read it. A file names the boot in which it was written. The
// ledger removes files of an earlier boot, because no network namespace survives a reboot. A file
// without a boot was written by another program and is valid.
package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/statefile"
)

// ErrName reports a name that no file in the directory can have.
var ErrName = errors.New("invalid name")

// Ledger is a directory of values. If the directory does not exist, the ledger is empty; Write
// creates the directory.
type Ledger struct {
	Dir  string
	Boot string // ID of the running boot, see [statefile.BootID]; if empty, all values are valid
}

// Path returns the file of a name. The error wraps [ErrName] if the name leads out of the directory
// or to a hidden file.
func (l Ledger) Path(name string) (string, error) {
	if name == "" || name[0] == '.' || strings.ContainsAny(name, "/\x00") {
		return "", fmt.Errorf("%s: %w %q", l.Dir, ErrName, name)
	}
	return filepath.Join(l.Dir, name), nil
}

// Read decodes the value of a name into v and reports whether there is one. It removes a value of
// an earlier boot. If it returns an error, v may have changed.
func (l Ledger) Read(name string, v any) (ok bool, err error) {
	path, err := l.Path(name)
	if err != nil {
		return false, err
	}
	content, err := l.current(path)
	if absent(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(content, v); err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	return true, nil
}

// current returns the content of a file. The error wraps fs.ErrNotExist if the file is from an
// earlier boot.
func (l Ledger) current(path string) ([]byte, error) {
	f, err := statefile.Open(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if of := statefile.BootOf(int(f.Fd())); of != "" && l.Boot != "" && of != l.Boot {
		return nil, errors.Join(fs.ErrNotExist, os.Remove(path))
	}
	return io.ReadAll(f)
}

// Write sets the value of a name to v, encoded with an indentation of one space and without a final
// newline.
func (l Ledger) Write(name string, v any) error {
	path, err := l.Path(name)
	if err != nil {
		return err
	}
	content, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return err
	}
	return statefile.Replace(path, content, 0o600,
		func(f *os.File) { statefile.MarkBoot(int(f.Fd()), l.Boot) })
}

// Remove removes the value of a name, if there is one, and the drafts that killed Writes of the
// name left.
func (l Ledger) Remove(name string) error {
	path, err := l.Path(name)
	if err != nil {
		return err
	}
	errs := []error{l.RemoveDrafts(func(of string) bool { return of == name })}
	if err := os.Remove(path); !absent(err) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// RemoveDrafts removes the drafts that killed Writes left, for names for which gone returns true.
// No process may be writing these names. The file name of a draft is a dot, the name and a number
// (see [statefile.Replace]), so RemoveDrafts calls gone for each name that the file name can
// represent.
func (l Ledger) RemoveDrafts(gone func(name string) bool) error {
	files, err := os.ReadDir(l.Dir)
	if absent(err) {
		return nil
	}
	errs := []error{err}
	for _, file := range files {
		if !isDraft(file.Name(), gone) {
			continue
		}
		if err := os.Remove(filepath.Join(l.Dir, file.Name())); !absent(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func isDraft(file string, of func(name string) bool) bool {
	rest, ok := strings.CutPrefix(file, ".")
	if !ok {
		return false
	}
	for end := len(rest) - 1; end > 0 && '0' <= rest[end] && rest[end] <= '9'; end-- {
		if of(rest[:end]) {
			return true
		}
	}
	return false
}

// absent reports whether err means that the file does not exist or cannot exist.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) ||
		errors.Is(err, unix.ENAMETOOLONG)
}

// Names returns the names that have a value, sorted. It removes values of an earlier boot.
func (l Ledger) Names() ([]string, error) {
	files, err := statefile.NamesIn(l.Dir)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var names []string
	var errs []error
	for _, file := range files {
		path, err := l.Path(file)
		if err != nil {
			continue
		}
		if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		switch _, err := l.current(path); {
		case err == nil:
			names = append(names, file)
		case !absent(err):
			errs = append(errs, err)
		}
	}
	return names, errors.Join(errs...)
}
