package statefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Replace writes a file with a mode, regardless of the umask, atomically and durably: even after a
// power failure the file has either the old or the new content. While it is written, the new
// content is in a file named with a dot and the name of the file. Replace calls mark, unless it is
// nil, with the new file before it writes the content.
func Replace(path string, content []byte, mode fs.FileMode, mark func(*os.File)) error {
	draft, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path))
	if err != nil {
		return err
	}
	if mark != nil {
		mark(draft)
	}
	return replace(path, draft, content, mode)
}

const (
	// viaPrefix starts the names of drafts of ReplaceVia.
	viaPrefix = ".draft-"
	// maxDraftAge is longer than any write of a draft takes.
	maxDraftAge = time.Minute
)

// ReplaceVia is [Replace] with the draft in another directory of the same file system, for programs
// that read all files next to path. The error wraps EXDEV if the directory is on another file
// system. ReplaceVia also removes the drafts that killed processes left in the directory more than
// a minute ago.
func ReplaceVia(dir, path string, content []byte, mode fs.FileMode) error {
	removeDrafts(dir, time.Now().Add(-maxDraftAge))
	draft, err := os.CreateTemp(dir, viaPrefix+"*")
	if err != nil {
		return err
	}
	return replace(path, draft, content, mode)
}

// removeDrafts removes the drafts of ReplaceVia that were last written before a time. A draft that
// cannot be removed does no harm.
func removeDrafts(dir string, before time.Time) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), viaPrefix) || !e.Type().IsRegular() {
			continue
		}
		if info, err := e.Info(); err == nil && info.ModTime().Before(before) {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// RemoveDrafts removes the drafts of [Replace] that killed processes left for a path. Nothing else
// may write the path meanwhile.
func RemoveDrafts(path string) error {
	dir, prefix := filepath.Dir(path), "."+filepath.Base(path)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		random, ours := strings.CutPrefix(e.Name(), prefix)
		if ours && random != "" && strings.Trim(random, "0123456789") == "" && e.Type().IsRegular() {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// replace writes the content to the draft and renames the draft to path, or removes it.
func replace(path string, draft *os.File, content []byte, mode fs.FileMode) error {
	_, err := draft.Write(content)
	err = errors.Join(err, draft.Chmod(mode))
	if err == nil {
		err = draft.Sync()
	}
	if err = errors.Join(err, draft.Close()); err == nil {
		err = os.Rename(draft.Name(), path)
	}
	if err != nil {
		_ = os.Remove(draft.Name())
	}
	return err
}
