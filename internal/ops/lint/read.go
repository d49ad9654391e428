package lint

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/tenon-cni/tenon/cni"
)

// Form is what a file holds according to its name.
type Form uint8

// The forms.
const (
	Other  Form = iota // nothing that a runtime reads
	List               // a network configuration list: .conflist
	Single             // the configuration of a single plugin: .conf, .json
	DropIn             // the configuration of one plugin of a network: .conf in a folder that bears the network's name
)

// File is a file of a configuration folder.
type File struct {
	Path    string
	Form    Form
	Network string // of files in a drop-in folder
	Data    []byte
	Err     error // why it could not be read
}

var forms = map[string]Form{".conflist": List, ".conf": Single, ".json": Single}

// ReadDir reads a configuration folder with its drop-in folders. That it does not exist is an error.
func ReadDir(dir string) ([]File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []File
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		switch {
		case err == nil && info.IsDir():
			files = append(files, readDropIns(path)...)
		case err != nil || info.Mode().IsRegular():
			files = append(files, read(path, forms[filepath.Ext(path)]))
		}
	}
	return files, nil
}

// readDropIns reads a folder that bears the name of a network; any other is none of CNI's.
func readDropIns(dir string) []File {
	name := filepath.Base(dir)
	if cni.ValidateNetworkName(name) != nil {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return []File{{Path: dir, Form: DropIn, Network: name, Err: err}}
	}
	var files []File
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
			continue
		}
		form := Other
		if filepath.Ext(path) == ".conf" {
			form = DropIn
		}
		f := read(path, form)
		f.Network = name
		files = append(files, f)
	}
	return files
}

// ReadFile reads one network, with its drop-ins if it is a list. Without an extension that says so, it is a list if it
// has the key plugins.
func ReadFile(path string) ([]File, error) {
	f := read(path, forms[filepath.Ext(path)])
	if f.Err != nil {
		return nil, f.Err
	}
	doc := document(f.Data)
	if f.Form == Other {
		if f.Form = Single; doc.get("plugins") != nil {
			f.Form = List
		}
	}
	files := []File{f}
	dir := filepath.Join(filepath.Dir(path), doc.get("name").text())
	if info, err := os.Stat(dir); f.Form == List && err == nil && info.IsDir() {
		files = append(files, readDropIns(dir)...)
	}
	return files, nil
}

// document parses what may not be JSON; then it is nil.
func document(data []byte) *node {
	if syntaxError(data) != nil {
		return nil
	}
	return parse(data)
}

func read(path string, form Form) File {
	data, err := os.ReadFile(path)
	if e := (*os.PathError)(nil); errors.As(err, &e) {
		err = e.Err
	}
	return File{Path: path, Form: form, Data: data, Err: err}
}

// Types returns the plugins that files name, sorted: those whose executables are worth knowing.
func Types(files []File) []string {
	var types []string
	for _, f := range files {
		if f.Form == Other {
			continue
		}
		doc := document(f.Data)
		plugins := []*node{doc}
		if f.Form == List {
			plugins = doc.get("plugins").all()
		}
		for _, p := range plugins {
			types = append(types, p.get("type").text(), p.path("ipam", "type").text())
		}
	}
	types = slices.DeleteFunc(types, func(typ string) bool { return cni.ValidatePluginType(typ) != nil })
	slices.Sort(types)
	return slices.Compact(types)
}

// Networks returns the names of the networks in files, sorted.
func Networks(files []File) []string {
	var names []string
	for _, f := range files {
		if name := document(f.Data).get("name").text(); name != "" && (f.Form == List || f.Form == Single) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
