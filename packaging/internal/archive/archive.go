// Package archive lists files of artefacts and writes them as tar archives that depend on nothing
// but the list: sorted entries, owner root, one time. It knows nothing of their content.
package archive

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"
)

// File is a file of an artefact. Exactly one of Source, Data and Link is set.
type File struct {
	Path   string      // in the artefact, with slashes, without a leading one
	Mode   fs.FileMode // permissions; 0 means 0644
	Source string      // the file to copy
	Data   []byte      // the content itself
	Link   string      // the target of a symbolic link
}

// Perm returns the permissions of the file.
func (f File) Perm() fs.FileMode {
	if f.Mode == 0 {
		return 0o644
	}
	return f.Mode.Perm()
}

// Read returns the content of a file that is not a link.
func (f File) Read() ([]byte, error) {
	if f.Source == "" {
		return f.Data, nil
	}
	return os.ReadFile(f.Source)
}

// Sort sorts files by path and refuses paths that occur twice.
func Sort(files []File) error {
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	for i := range files[min(1, len(files)):] {
		if files[i].Path == files[i+1].Path {
			return fmt.Errorf("%s: listed twice", files[i].Path)
		}
	}
	return nil
}

// WriteTarGz writes files below directory top as a compressed tar archive. Every entry has time at.
func WriteTarGz(w io.Writer, top string, at time.Time, files []File) error {
	compressed := gzip.NewWriter(w)
	return errors.Join(WriteTar(compressed, top, at, files), compressed.Close())
}

// WriteTar writes files and their directories below directory top as a tar archive. Every entry
// has time at.
func WriteTar(w io.Writer, top string, at time.Time, files []File) error {
	files = slices.Clone(files)
	if err := Sort(files); err != nil {
		return err
	}
	out := writer{Writer: tar.NewWriter(w), at: at, made: map[string]bool{}}
	for _, f := range files {
		f.Path = path.Join(top, f.Path)
		if err := out.add(f); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	return out.Close()
}

type writer struct {
	*tar.Writer
	at   time.Time
	made map[string]bool // directories
}

func (w *writer) add(f File) error {
	if err := w.parents(path.Dir(f.Path)); err != nil {
		return err
	}
	h := &tar.Header{Name: f.Path, Mode: int64(f.Perm()), Typeflag: tar.TypeReg}
	if f.Link != "" {
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.Link, 0o777
		return w.header(h)
	}
	content, err := f.Read()
	if err != nil {
		return err
	}
	h.Size = int64(len(content))
	if err := w.header(h); err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}

func (w *writer) parents(dir string) error {
	if dir == "." || dir == "/" || w.made[dir] {
		return nil
	}
	if err := w.parents(path.Dir(dir)); err != nil {
		return err
	}
	w.made[dir] = true
	return w.header(&tar.Header{Name: dir + "/", Mode: 0o755, Typeflag: tar.TypeDir})
}

func (w *writer) header(h *tar.Header) error {
	h.ModTime, h.Uname, h.Gname, h.Format = w.at, "root", "root", tar.FormatPAX
	return w.WriteHeader(h)
}
