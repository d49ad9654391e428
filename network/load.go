package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
)

// Extensions of configuration files. They are matched exactly.
const (
	listExt   = ".conflist"
	singleExt = ".conf"
	jsonExt   = ".json" // as singleExt
)

// LoadBytes reads a network configuration list or the configuration of a single plugin; one with a type
// and without plugins is the latter. Drop-in files are not looked for, so a list of version 1.1.0 may
// come out without plugins: it cannot be run. Codes are those of [cni.ParseList].
func LoadBytes(b []byte) (*Network, error) {
	parse := cni.ParseList
	var keys map[string]json.RawMessage
	if json.Unmarshal(b, &keys) == nil && keys["plugins"] == nil && keys["type"] != nil {
		parse = cni.ParseSingle
	}
	l, err := parse(b)
	if err != nil {
		return nil, err
	}
	return &Network{List: l}, nil
}

// LoadFile reads one configuration file: a list if its name ends in .conflist, a single plugin if it ends
// in .conf or .json, and what [LoadBytes] takes it for otherwise.
//
// Unless a list says loadOnlyInlinedPlugins, the plugins in *.conf files of the folder that is beside the
// file and bears the network's name are appended in the order of the file names, for all versions of the
// specification. A list without any plugin has [cni.CodeInvalidConfig], a file that cannot be read
// [cni.CodeIOFailure]; other codes are those of [cni.ParseList]. Errors name the file.
func LoadFile(path string) (*Network, error) {
	n, err := loadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	n.Source = path
	return n, nil
}

func loadFile(path string) (*Network, error) {
	b, err := readFile(path)
	if err != nil {
		return nil, err
	}
	switch filepath.Ext(path) {
	case listExt:
		l, err := cni.ParseList(b)
		if err != nil {
			return nil, err
		}
		if err := appendDropIns(l, filepath.Join(filepath.Dir(path), l.Name)); err != nil {
			return nil, err
		}
		if len(l.Plugins) == 0 {
			return nil, noPlugins(l)
		}
		return &Network{List: l}, nil
	case singleExt, jsonExt:
		l, err := cni.ParseSingle(b)
		if err != nil {
			return nil, err
		}
		return &Network{List: l}, nil
	}
	return LoadBytes(b)
}

func noPlugins(l *cni.List) error {
	return cni.Errorf(cni.CodeInvalidConfig, "network %s has no plugins", l.Name).
		WithDetails("neither under the key plugins nor in a folder of the network's name")
}

// appendDropIns adds the plugins found in dir, whose name is a valid network name.
func appendDropIns(l *cni.List, dir string) error {
	if l.OnlyInlined {
		return nil
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return cni.Errorf(cni.CodeInvalidConfig, "drop-in folder %s is not a folder", dir)
	}
	files, err := configFiles(dir, singleExt)
	if err != nil {
		return err
	}
	for _, path := range files {
		p, err := readPlugin(path)
		if err != nil {
			return fmt.Errorf("drop-in %s: %w", path, err)
		}
		l.Append(p)
	}
	return nil
}

func readPlugin(path string) (*cni.PluginConfig, error) {
	b, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return cni.ParsePlugin(b)
}

// Load looks a network up by name: the first file in dir that has it, first among the lists (.conflist),
// then among the single plugins (.conf, .json), each in the byte order of file names. A file before it
// that cannot be loaded fails the look-up, since it might have been the one; files after it are not
// read. [LoadAll] passes over such files.
//
// The error is [ErrNoConfig] where dir holds no configuration or does not exist, [ErrNotFound] where none
// has the name, and otherwise that of [LoadFile].
func Load(dir, name string) (*Network, error) {
	if err := cni.ValidateNetworkName(name); err != nil {
		return nil, err
	}
	files, err := lookupOrder(dir)
	if err != nil {
		return nil, err
	}
	var present []string
	for _, path := range files {
		n, err := LoadFile(path)
		if err != nil {
			return nil, err
		}
		if n.Name == name {
			return n, nil
		}
		present = append(present, n.Name)
	}
	return nil, fmt.Errorf("network %q in %s: %w (there are: %s)", name, dir, ErrNotFound, strings.Join(present, ", "))
}

// LoadAll loads every configuration in dir in the order in which [Load] looks at them: of several of one
// name the first counts. The error joins those of the files that cannot be loaded, and is [ErrNoConfig]
// where there are none; the networks that can be are returned in any case.
func LoadAll(dir string) ([]*Network, error) {
	files, err := lookupOrder(dir)
	if err != nil {
		return nil, err
	}
	var networks []*Network
	var errs []error
	for _, path := range files {
		n, err := LoadFile(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		networks = append(networks, n)
	}
	return networks, errors.Join(errs...)
}

// Default loads the network that runtimes use where none is asked for: the first file of any kind in the
// byte order of file names. Errors are [ErrNoConfig] and those of [LoadFile].
func Default(dir string) (*Network, error) {
	files, err := configFiles(dir, listExt, singleExt, jsonExt)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: %w", dir, ErrNoConfig)
	}
	return LoadFile(files[0])
}

// lookupOrder returns the configuration files of dir, at least one, in the order of a look-up by name.
func lookupOrder(dir string) ([]string, error) {
	lists, err := configFiles(dir, listExt)
	if err != nil {
		return nil, err
	}
	singles, err := configFiles(dir, singleExt, jsonExt)
	if err != nil {
		return nil, err
	}
	if len(lists)+len(singles) == 0 {
		return nil, fmt.Errorf("%s: %w", dir, ErrNoConfig)
	}
	return append(lists, singles...), nil
}

// configFiles returns the files in dir with one of the extensions, in byte order; none if dir does not
// exist. Folders, sockets and the like are left out. A dangling link is not: reading it is an error.
func configFiles(dir string, extensions ...string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, cni.Errorf(cni.CodeIOFailure, "configuration folder: %w", err)
	}
	var files []string
	for _, e := range entries {
		if !slices.Contains(extensions, filepath.Ext(e.Name())) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
			continue
		}
		files = append(files, path)
	}
	return files, nil
}

// readFile leaves the path out of its errors: callers put it in front of all of theirs.
func readFile(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		return nil, cni.Errorf(cni.CodeIOFailure, "%s: %w", e.Op, e.Err)
	}
	return b, err
}
