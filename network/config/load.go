package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/document"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// Extensions of configuration files. Case matters.
const (
	listExt   = ".conflist"
	singleExt = ".conf"
	jsonExt   = ".json" // treated as singleExt
)

// KindOf returns the kind of a file in a configuration directory by its extension.
func KindOf(path string) Kind {
	switch filepath.Ext(path) {
	case listExt:
		return ListFile
	case singleExt, jsonExt:
		return SingleFile
	}
	return OtherFile
}

// Load finds a network by name as [Catalog.Lookup] does, but fails if a file before the network
// cannot be loaded, because that file may be the network. libcni does the same.
func Load(dir, name string) (*Network, error) {
	c, err := Discover(dir)
	if err != nil {
		return nil, err
	}
	n, passed, err := c.Lookup(name)
	if len(passed) > 0 {
		return nil, passed[0].Err
	}
	return n, err
}

// LoadFile reads one configuration file: a list if its name ends in .conflist, a single plugin if
// it ends in .conf or .json, and otherwise the kind that [LoadBytes] detects.
//
// Unless a list sets loadOnlyInlinedPlugins, LoadFile appends the plugins in the *.conf files of
// the directory that lies next to the file and has the network's name, in the order of the file
// names and for all versions of the specification. The code is [cni.CodeInvalidConfig] for a list
// without any plugin, [cni.CodeIOFailure] for a file that cannot be read, and otherwise a code of
// [cni.ParseList]. An error is a [*FileError].
func LoadFile(path string) (*Network, error) {
	f := File{Path: path, Kind: KindOf(path)}
	reader{}.open(&f)
	return f.Network, f.Err
}

// LoadBytes reads a network configuration list or the configuration of a single plugin. A
// configuration with a type and without plugins is a single plugin. LoadBytes reads no drop-in
// files, so a list of version 1.1.0 may have no plugins and cannot run. It returns the same codes
// as [cni.ParseList].
func LoadBytes(b []byte) (*Network, error) {
	if kindOfContent(b) == SingleFile {
		return newNetwork(cni.ParseSingle(b))
	}
	return newNetwork(cni.ParseList(b))
}

func newNetwork(l *cni.List, err error) (*Network, error) {
	if err != nil {
		return nil, err
	}
	return &Network{List: l}, nil
}

// kindOfContent returns the kind of a configuration by its content, for files with another
// extension.
func kindOfContent(b []byte) Kind {
	var keys map[string]json.RawMessage
	if json.Unmarshal(b, &keys) == nil && keys["plugins"] == nil && keys["type"] != nil {
		return SingleFile
	}
	return ListFile
}

// reader reads each file once, by path.
type reader map[string]readFile

type readFile struct {
	content []byte
	err     error
}

// read returns errors without the path, because callers add it to all of their errors.
func (r reader) read(path string) ([]byte, error) {
	d, done := r[path]
	if !done {
		d.content, d.err = statefile.ReadFile(path)
		if e := (*fs.PathError)(nil); errors.As(d.err, &e) {
			d.err = cni.Errorf(cni.CodeIOFailure, "%s: %w", e.Op, e.Err)
		}
		r[path] = d
	}
	return d.content, d.err
}

// network reads a network from a file, if the file has the name of a configuration file.
func (r reader) network(f *File) {
	if f.Kind = KindOf(f.Path); f.Kind == OtherFile {
		f.Reason = fmt.Sprintf("the name does not end in %s, %s or %s", listExt, singleExt, jsonExt)
		return
	}
	r.open(f)
}

// open reads a network from a file and sets its name, content and error.
func (r reader) open(f *File) {
	n, err := r.load(f.Path)
	f.Content = r[f.Path].content
	if err != nil {
		f.Name = statedName(f.Content, f.Kind)
		f.Err = fileError(f.Path, f.Content, err)
		return
	}
	n.Source = f.Path
	f.Name, f.Network = n.Name, n
}

func (r reader) load(path string) (*Network, error) {
	b, err := r.read(path)
	if err != nil {
		return nil, err
	}
	switch KindOf(path) {
	case ListFile:
		n, err := newNetwork(cni.ParseList(b))
		if err == nil {
			err = r.appendDropIns(n, filepath.Join(filepath.Dir(path), n.Name))
		}
		if err == nil {
			err = n.Validate()
		}
		return n, err
	case SingleFile:
		return newNetwork(cni.ParseSingle(b))
	}
	return LoadBytes(b)
}

// statedName returns the name that a broken configuration states in the part that is valid JSON, or
// "".
func statedName(b []byte, k Kind) string {
	name := ""
	for _, m := range document.Parse(b).Members {
		if m.Value.Kind == document.String &&
			(m.Key == "name" || k == SingleFile && strings.EqualFold(m.Key, "name")) {
			name = m.Value.Text()
		}
	}
	return name
}
