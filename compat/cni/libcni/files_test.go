package libcni_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
)

// files writes files into a new directory. Names that end in a slash are directories.
func files(t *testing.T, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
				t.Fatal(err)
			}
			continue
		}
		write(t, dir, name, text)
	}
	return dir
}

func TestConfFiles(t *testing.T) {
	t.Parallel()
	dir := files(t, map[string]string{"b.conf": "", "a.conf": "", "c.json": "", "d.CONF": "",
		"sub.conf/": "", "sub/x.conf": ""})
	if err := os.Symlink("sub", filepath.Join(dir, "link.conf")); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name       string
		extensions []string
		want       string
	}{
		{"sorted, with links to directories", []string{".conf"}, "[a.conf b.conf link.conf]"},
		{"several", []string{".json", ".conf"}, "[a.conf b.conf c.json link.conf]"},
		{"twice", []string{".json", ".json"}, "[c.json c.json]"},
		{"none", []string{".txt"}, "[]"},
	} {
		paths, err := libcni.ConfFiles(dir, row.extensions)
		names := []string{}
		for _, path := range paths {
			if filepath.Dir(path) != dir {
				t.Errorf("path %s", path)
			}
			names = append(names, filepath.Base(path))
		}
		if err != nil || fmt.Sprint(names) != row.want {
			t.Errorf("%s: %v, %v; want %s", row.name, names, err, row.want)
		}
	}
	if paths, err := libcni.ConfFiles(t.TempDir(), []string{".conf"}); paths == nil || err != nil {
		t.Errorf("an empty directory: %v, %v", paths, err)
	}
	if paths, err := libcni.ConfFiles(dir+"/absent", []string{".conf"}); paths != nil || err != nil {
		t.Errorf("a missing directory: %v, %v", paths, err)
	}
	if _, err := libcni.ConfFiles(dir+"/a.conf", []string{".conf"}); err == nil {
		t.Error("a file is a directory")
	}
}

func TestLoadConf(t *testing.T) {
	t.Parallel()
	red := `{"name":"red","type":"first","capabilities":{"mac":true,"ips":false}}`
	for _, row := range []struct {
		name  string
		files map[string]string
		want  string // the bytes
		err   string
	}{
		{"found", map[string]string{"1.conf": `{"name":"blue","type":"x"}`, "2.conf": red}, red, ""},
		{"the extension .json", map[string]string{"1.json": red}, red, ""},
		{"the first one in the order of paths",
			map[string]string{"2.conf": `{"name":"red","type":"x"}`, "1.json": red}, red, ""},
		{"no files", nil, "", "no net configurations found in DIR"},
		{"a subdirectory", map[string]string{"sub/1.conf": red}, "",
			"no net configurations found in DIR"},
		{"another name", map[string]string{"1.conf": `{"name":"blue","type":"x"}`}, "",
			`no net configuration with name "red" in DIR`},
		{"a broken file first", map[string]string{"1.conf": "}", "2.conf": red}, "",
			"error parsing configuration: invalid character '}' looking for beginning of value"},
		{"a broken file afterwards", map[string]string{"2.conf": "}", "1.conf": red}, red, ""},
		{"no type", map[string]string{"1.conf": `{"name":"red"}`}, "",
			"error parsing configuration: missing 'type'"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dir := files(t, row.files)
			conf, err := libcni.LoadConf(dir, "red")
			wantError(t, err, strings.ReplaceAll(row.err, "DIR", dir))
			if conf != nil && string(conf.Bytes) != row.want || conf == nil && row.want != "" {
				t.Errorf("got %+v, want %s", conf, row.want)
			}
			if want := map[string]bool{"mac": true, "ips": false}; conf != nil &&
				!reflect.DeepEqual(conf.Network.Capabilities, want) {
				t.Errorf("capabilities %v, want %v", conf.Network.Capabilities, want)
			}
		})
	}
	_, err := libcni.LoadConf("/absent", "red")
	if err != (libcni.NoConfigsFoundError{Dir: "/absent"}) {
		t.Errorf("a missing directory: %#v", err)
	}
}

// Lists take precedence over single plugins, and a broken list fails the look-up of other names.
func TestLoadNetworkConf(t *testing.T) {
	t.Parallel()
	const red = `{"name":"red","plugins":[{"type":"first"}]}`
	const single = `{"name":"red","type":"single"}`
	for _, row := range []struct {
		name  string
		files map[string]string
		want  string // types of the plugins
		err   string
	}{
		{"a list", map[string]string{"9.conflist": red, "1.conf": single}, "[first]", ""},
		{"a single plugin", map[string]string{"1.conf": single}, "[single]", ""},
		{"with another list",
			map[string]string{"1.conf": single, "1.conflist": strings.Replace(red, "red", "x", 1)},
			"[single]", ""},
		{"nothing", nil, "", "no net configurations found in DIR"},
		{"only other lists", map[string]string{"1.conflist": strings.Replace(red, "red", "x", 1)},
			"", `no net configuration with name "red" in DIR`},
		{"only other plugins", map[string]string{"1.conf": `{"name":"x","type":"x"}`}, "",
			`no net configuration with name "red" in DIR`},
		{"a list in a subdirectory", map[string]string{"sub/1.conflist": red}, "",
			"no net configurations found in DIR"},
		{"a broken neighbour", map[string]string{"1.conflist": `{"name":"x"}`, "2.conflist": red},
			"", "no plugin configs found"},
		{"a neighbour with a path as name",
			map[string]string{"1.conflist": `{"name":"../x","plugins":[{"type":"x"}]}`,
				"2.conflist": red}, "",
			`error parsing configuration list: invalid name "../x": it must not be a path`},
		{"a broken single plugin", map[string]string{"1.conf": "}"}, "",
			"error parsing configuration: invalid character '}' looking for beginning of value"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dir := files(t, row.files)
			for _, load := range []func(dir, name string) (*libcni.NetworkConfigList, error){
				libcni.LoadNetworkConf, libcni.LoadConfList,
			} {
				list, err := load(dir, "red")
				wantError(t, err, strings.ReplaceAll(row.err, "DIR", dir))
				if row.err == "" && typesOf(list) != row.want {
					t.Errorf("plugins %s, want %s", typesOf(list), row.want)
				}
			}
		})
	}
	dir := files(t, map[string]string{"1.conflist": strings.Replace(red, "red", "x", 1)})
	_, err := libcni.LoadNetworkConf(dir, "red")
	if err != (libcni.NotFoundError{Dir: dir, Name: "red"}) {
		t.Errorf("got %#v", err)
	}
}

// typesOf returns the types of the plugins of a list.
func typesOf(list *libcni.NetworkConfigList) string {
	types := []string{}
	for _, p := range list.Plugins {
		types = append(types, p.Network.Type)
	}
	return fmt.Sprint(types)
}

// The plugins of a list come before plugins in files of their own.
func TestNetworkConfFromFile(t *testing.T) {
	t.Parallel()
	const inlined = `{"name":"red","plugins":[{"type":"first"}]}`
	const only = `{"name":"red","loadOnlyInlinedPlugins":true,"plugins":[{"type":"first"}]}`
	const none = `{"name":"red"}`
	other := map[string]string{"red/2.conf": `{"type":"two"}`, "red/1.conf": `{"type":"one"}`,
		"red/3.json": "ignored", "red/sub.conf/": ""}
	for _, row := range []struct {
		name, list string
		files      map[string]string
		want, err  string
	}{
		{"inlined, without a directory", inlined, nil, "[first]", ""},
		{"inlined, with an empty directory", inlined, map[string]string{"red/": ""}, "[first]", ""},
		{"both", inlined, other, "[first one two]", ""},
		{"only inlined", only, other, "[first]", ""},
		{"only other files", none, other, "[one two]", ""},
		{"the flag is false", `{"name":"red","loadOnlyInlinedPlugins":false}`, other, "[one two]",
			""},
		{"none at all", none, nil, "", "no plugin configs found"},
		{"a broken file", inlined, map[string]string{"red/1.conf": "{}"}, "",
			"error parsing configuration: missing 'type'"},
		{"a file instead of the directory", inlined, map[string]string{"red": ""}, "",
			"failed to read plugin config files in DIR/red: open DIR/red: not a directory"},
		{"no name", `{"name":""}`, map[string]string{"1.conf": `{"type":"one"}`}, "",
			"no plugin configs found"},
		{"a path as name", `{"name":".."}`, nil, "",
			`error parsing configuration list: invalid name "..": it must not be a path`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dir := files(t, row.files)
			path := write(t, dir, "net.conflist", row.list)
			for _, load := range []func(string) (*libcni.NetworkConfigList, error){
				libcni.NetworkConfFromFile, libcni.ConfListFromFile,
			} {
				list, err := load(path)
				if err != nil {
					got := strings.ReplaceAll(err.Error(), "fdopendir", "open")
					err = errors.New(strings.ReplaceAll(got, dir, "DIR"))
				}
				wantError(t, err, row.err)
				if row.err == "" {
					if typesOf(list) != row.want {
						t.Errorf("plugins %s, want %s", typesOf(list), row.want)
					}
					if string(list.Bytes) != row.list {
						t.Errorf("bytes %s", list.Bytes)
					}
				}
			}
		})
	}
}

// A file that cannot be opened is named, and its error wrapped.
func TestUnreadableFile(t *testing.T) {
	t.Parallel()
	_, single := libcni.ConfFromFile("/absent/x.conf")
	wantError(t, single, "error reading /absent/x.conf: open /absent/x.conf: no such file or directory")
	_, list := libcni.NetworkConfFromFile("/absent/x.conflist")
	wantError(t, list,
		"error reading /absent/x.conflist: open /absent/x.conflist: no such file or directory")
	if !errors.Is(single, fs.ErrNotExist) || !errors.Is(list, fs.ErrNotExist) {
		t.Error("the cause is not wrapped")
	}
	for _, name := range []string{"../x", ".", ".."} {
		_, err := libcni.NetworkPluginConfsFromFiles(t.TempDir(), name)
		wantError(t, err, fmt.Sprintf("invalid network name %q: it must not be a path", name))
	}
}
