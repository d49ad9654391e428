package plugin

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Select returns the plugin of defs that a call of a file means, and false if there is none. It
// tries in this order:
//
//  1. the file name in path, then the names that its symbolic links lead to;
//  2. the longest name that one of these ends in, after a hyphen: cnv-bridge is bridge;
//  3. "type" in the request, in the same way, unless "ipam" names the file: the configuration is
//     then one of the plugin that delegates to the file.
//
// The last of several plugins with the same name is used.
func Select(defs []Definition, path string, request []byte) (Definition, bool) {
	names := fileNames(path)
	d, ok := byNames(defs, names)
	if !ok {
		conf := typesOf(request)
		if slices.Contains(names, conf.IPAM.Type) {
			return Definition{}, false
		}
		d, ok = byNames(defs, []string{conf.Type})
	}
	d.file = names[0]
	return d, ok
}

// maxLinks limits the number of symbolic links that are followed, as the kernel does.
const maxLinks = 40

// fileNames returns the file name in a path and the names that its symbolic links lead to.
func fileNames(path string) []string {
	names := []string{filepath.Base(path)}
	for range maxLinks {
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
		names = append(names, filepath.Base(path))
	}
	return names
}

// byNames returns the plugin with one of the names or, failing that, the plugin with the longest
// name that one of the names ends in.
func byNames(defs []Definition, names []string) (Definition, bool) {
	for _, name := range names {
		if d, ok := byName(defs, name); ok {
			return d, true
		}
	}
	for _, name := range names {
		for _, rest, more := strings.Cut(name, "-"); more; _, rest, more = strings.Cut(rest, "-") {
			if d, ok := byName(defs, rest); ok {
				return d, true
			}
		}
	}
	return Definition{}, false
}

func byName(defs []Definition, name string) (Definition, bool) {
	for _, d := range slices.Backward(defs) {
		if d.Name == name {
			return d, true
		}
	}
	return Definition{}, false
}

// types are the plugin types in a configuration.
type types struct {
	Type string `json:"type"`
	IPAM struct {
		Type string `json:"type"`
	} `json:"ipam"`
}

// typesOf returns the types in a request; they are empty if it cannot be decoded.
func typesOf(request []byte) (t types) {
	_ = Decode(request, &t)
	return t
}
