package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sort"

	"github.com/tenon-cni/tenon/cni"
)

// Discover reads all files of a configuration directory once and reports the use of each. It treats
// a missing directory as empty. It returns an error with [cni.CodeIOFailure] if the directory
// cannot be read; errors of single files are in the catalog.
func Discover(dir string) (*Catalog, error) {
	entries, err := readDir(dir)
	if err != nil {
		return nil, err
	}
	c := &Catalog{Dir: dir}
	r := reader{}
	var dirs []string
	for _, e := range entries {
		f := File{Path: filepath.Join(dir, e.Name()), Use: Ignored}
		info, statErr := os.Stat(f.Path)
		switch {
		case e.Name() == PolicyName:
			f.Use = PolicyFile
			if c.Policy, f.Err = r.policy(f.Path); f.Err != nil {
				f.Use = Broken
			}
			f.Content = r[f.Path].content
		case statErr == nil && info.IsDir():
			dirs = append(dirs, f.Path)
			continue
		case statErr == nil && !info.Mode().IsRegular():
			f.Reason = "not a file"
		default:
			r.network(&f)
		}
		c.Files = append(c.Files, f)
	}
	c.choose()
	for _, d := range dirs {
		c.Files = append(c.Files, r.directory(d, c.list(filepath.Base(d)))...)
	}
	sort.SliceStable(c.Files, func(i, j int) bool { return c.Files[i].Path < c.Files[j].Path })
	return c, nil
}

// DiscoverFile reads one configuration file and its drop-ins as [LoadFile] does, without regard to
// other files. The catalog holds the error if the file cannot be read or loaded.
func DiscoverFile(path string) *Catalog {
	r := reader{}
	f := File{Path: path, Kind: KindOf(path)}
	if f.Kind == OtherFile {
		content, _ := r.read(path)
		f.Kind = kindOfContent(content)
	}
	r.open(&f)
	c := &Catalog{Dir: filepath.Dir(path), Files: []File{f}}
	c.choose()
	dropIns := filepath.Join(c.Dir, f.Name)
	if KindOf(path) == ListFile && cni.ValidateNetworkName(f.Name) == nil && isDirectory(dropIns) {
		c.Files = append(c.Files, r.directory(dropIns, &c.Files[0])...)
	}
	return c
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// choose sets the use of each file that holds a network.
func (c *Catalog) choose() {
	for i := range c.Files {
		if f := &c.Files[i]; f.Kind == ListFile || f.Kind == SingleFile {
			f.Default = true
			break
		}
	}
	first := map[string]string{}
	for _, f := range c.candidates() {
		if f.Use = Chosen; f.Err != nil {
			f.Use = Broken
		}
		if f.Name == "" {
			continue
		}
		if before, shadowed := first[f.Name]; shadowed {
			f.ShadowedBy = before
			if f.Err == nil {
				f.Use = Shadowed
			}
			continue
		}
		first[f.Name] = f.Path
	}
}

// readDir returns the entries of a directory in byte order, or none if it does not exist.
func readDir(dir string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, cni.Errorf(cni.CodeIOFailure, "configuration directory: %w", err)
	}
	return entries, nil
}
