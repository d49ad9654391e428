package config

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/tenon-cni/tenon/cni"
)

// appendDropIns appends the plugins in dir. The base name of dir must be a valid network name.
func (r reader) appendDropIns(n *Network, dir string) error {
	if n.OnlyInlined {
		return nil
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return cni.Errorf(cni.CodeInvalidConfig, "drop-in directory %s is not a directory", dir)
	}
	entries, err := readDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !isDropIn(path) {
			continue
		}
		p, err := r.plugin(path)
		if err != nil {
			return fmt.Errorf("drop-in %w", err)
		}
		n.Append(p)
		n.DropIns = append(n.DropIns, path)
	}
	return nil
}

// isDropIn reports whether a file in a drop-in directory is read: a regular file with the
// extension, or a dangling link, which is an error to read.
func isDropIn(path string) bool {
	info, err := os.Stat(path)
	return filepath.Ext(path) == singleExt && (err != nil || info.Mode().IsRegular())
}

// plugin reads a drop-in file.
func (r reader) plugin(path string) (*cni.PluginConfig, error) {
	b, err := r.read(path)
	if err != nil {
		return nil, fileError(path, nil, err)
	}
	p, err := cni.ParsePlugin(b)
	if err != nil {
		return nil, fileError(path, b, err)
	}
	return p, nil
}

// directory returns the use of each file in a drop-in directory. of is the list with the
// directory's name, or nil if there is none.
func (r reader) directory(dir string, of *File) []File {
	name := filepath.Base(dir)
	entries, err := readDir(dir)
	if err != nil && of != nil {
		return []File{{Path: dir, Use: Broken, Name: name, Err: fileError(dir, nil, err)}}
	}
	var files []File
	for _, e := range entries {
		f := File{Path: filepath.Join(dir, e.Name()), Name: name, Use: Ignored}
		switch {
		case !isDropIn(f.Path) && of == nil:
			continue
		case !isDropIn(f.Path):
			f.Reason = "drop-ins are files that end in " + singleExt
		default:
			f.Kind = DropInFile
			r.dropIn(&f, of)
		}
		files = append(files, f)
	}
	if files == nil && of == nil {
		return []File{{Path: dir, Use: Ignored,
			Reason: "a directory; no list has its name, so it holds no drop-ins"}}
	}
	return files
}

// dropIn sets the use of a drop-in file. of is the list that it belongs to, or nil if there is
// none.
func (r reader) dropIn(f, of *File) {
	switch {
	case of == nil:
		f.Reason = "no list has the name of its directory"
	case of.Network != nil && of.Network.OnlyInlined:
		f.Use, f.Reason = Suppressed, of.Path+" sets loadOnlyInlinedPlugins"
	default:
		f.Use = DropIn
		if _, f.Err = r.plugin(f.Path); f.Err != nil {
			f.Use = Broken
		}
		f.Content = r[f.Path].content
	}
}
