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

// Extensions of configuration files. They are matched exactly.
const (
	listExt   = ".conflist"
	singleExt = ".conf"
	jsonExt   = ".json" // as singleExt
)

// KindOf returns the kind of a file in a configuration directory by the extension of its name.
func KindOf(path string) Kind {
	switch filepath.Ext(path) {
	case listExt:
		return ListFile
	case singleExt, jsonExt:
		return SingleFile
	}
	return OtherFile
}

// Load looks a network up by name as [Catalog.Lookup] does, but passes nothing over: a file before it that cannot be
// loaded fails the look-up, since it might have been the one. That is what the reference library does.
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

// LoadFile reads one configuration file: a list if its name ends in .conflist, a single plugin if it ends
// in .conf or .json, and what [LoadBytes] takes it for otherwise.
//
// Unless a list says loadOnlyInlinedPlugins, the plugins in *.conf files of the directory that is beside the
// file and bears the network's name are appended in the order of the file names, for all versions of the
// specification. A list without any plugin has [cni.CodeInvalidConfig], a file that cannot be read
// [cni.CodeIOFailure]; other codes are those of [cni.ParseList]. An error is a [*FileError].
func LoadFile(path string) (*Network, error) {
	f := File{Path: path, Kind: KindOf(path)}
	reader{}.open(&f)
	return f.Network, f.Err
}

// LoadBytes reads a network configuration list or the configuration of a single plugin; one with a type
// and without plugins is the latter. Drop-in files are not looked for, so a list of version 1.1.0 may
// come out without plugins: it cannot be run. Codes are those of [cni.ParseList].
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

// kindOfContent is the kind of what has no name that says so.
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

// read leaves the path out of its errors: callers put it in front of all of theirs.
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

// network sets what a file says of a network, if its name is that of a configuration file.
func (r reader) network(f *File) {
	if f.Kind = KindOf(f.Path); f.Kind == OtherFile {
		f.Reason = fmt.Sprintf("the name does not end in %s, %s or %s", listExt, singleExt, jsonExt)
		return
	}
	r.open(f)
}

// open sets what a file of a kind says of a network.
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

// statedName returns the name that a configuration which cannot be loaded states, as far as it can be read; "" if it
// states none before it ends to be JSON.
func statedName(b []byte, k Kind) string {
	name := ""
	for _, m := range document.Parse(b).Members {
		if m.Value.Kind == document.String && (m.Key == "name" || k == SingleFile && strings.EqualFold(m.Key, "name")) {
			name = m.Value.Text()
		}
	}
	return name
}
