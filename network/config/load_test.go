package config_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance"
	"github.com/tenon-cni/tenon/network/config"
)

// tree writes files, given as path and content, and returns their directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func types(n *config.Network) string {
	var s []string
	for _, p := range n.Plugins {
		s = append(s, p.Type)
	}
	return strings.Join(s, ",")
}

// DSC-02, DSC-03, DSC-04, DSC-05, DSC-06, DRP-02, DRP-03, DRP-04, DRP-06, DRP-08, CFG-10, CFG-11,
// CFG-20, CFG-21, CFG-23, TOOL-05, DIS-09: Load skips no broken file.
func TestLoadNetdirs(t *testing.T) {
	t.Parallel()
	dirs, err := conformance.Netdirs()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		t.Run(d.Folder, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.CopyFS(dir, d.Files); err != nil {
				t.Fatal(err)
			}
			n, err := config.Load(dir, d.Lookup)
			if d.Verdict == conformance.Valid {
				if err != nil {
					t.Fatal(err)
				}
				if got := types(n); got != strings.Join(d.Plugins, ",") || n.Name != d.Lookup {
					t.Errorf("network %s with %s, want %s", n.Name, got, d.Plugins)
				}
				if !strings.HasPrefix(n.Source, dir) {
					t.Errorf("source %q", n.Source)
				}
				return
			}
			if len(d.Codes) == 0 {
				if !errors.Is(err, config.ErrNotFound) {
					t.Errorf("got %s", describe(err))
				}
				return
			}
			if !slices.Contains(d.Codes, cni.CodeOf(err)) || err == nil {
				t.Errorf("got %s, want one of %v", describe(err), d.Codes)
			}
			if err != nil && !strings.Contains(err.Error(), dir) {
				t.Errorf("%v does not name the file", err)
			}
		})
	}
}

// DRP-04, DRP-07: files as drop-ins.
func TestLoadDropInVectors(t *testing.T) {
	t.Parallel()
	vectors, err := conformance.Vectors()
	if err != nil {
		t.Fatal(err)
	}
	tested := 0
	for _, v := range vectors {
		if v.Kind != conformance.KindDropin {
			continue
		}
		tested++
		dir := tree(t, map[string]string{"red/10.conf": string(v.Data),
			"10.conflist": `{"cniVersion":"1.1.0","name":"red","plugins":[{"type":"first"}]}`})
		n, err := config.Load(dir, "red")
		switch {
		case v.Verdict == conformance.Valid && err != nil:
			t.Errorf("%s: %v", v.File, err)
		case v.Verdict == conformance.Invalid &&
			(err == nil || !slices.Contains(v.Codes, cni.CodeOf(err))):
			t.Errorf("%s: got %s, want one of %v", v.File, describe(err), v.Codes)
		case err == nil:
			b, err := n.Request(cni.Add, 1, cni.RequestData{})
			if err != nil {
				t.Fatal(err)
			}
			var want map[string]any
			if err := json.Unmarshal(v.Data, &want); err != nil {
				t.Fatal(err)
			}
			want["name"], want["cniVersion"] = "red", "1.1.0"
			wanted, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(normal(t, wanted), normal(t, b)); diff != "" {
				t.Errorf("%s: %s", v.File, diff)
			}
		}
	}
	if tested == 0 {
		t.Error("there are no vectors")
	}
}

const red = `{"cniVersion":"1.1.0","name":"red","plugins":[{"type":"first"}]}`

func TestLoadErrors(t *testing.T) {
	t.Parallel()
	blue := strings.Replace(red, "red", "blue", 1)
	for _, tt := range []struct {
		name  string // why the row exists
		files map[string]string
		look  string
		want  string // DIR is the directory
		is    error
	}{
		{"DSC-07: missing directory", nil, "red", "999 DIR: no network configuration",
			config.ErrNoConfig},
		{"DSC-07: directory without configurations", map[string]string{"readme.txt": ""}, "red",
			"999 DIR: no network configuration", config.ErrNoConfig},
		{"DSC-07: other networks", map[string]string{"10.conflist": blue,
			"20.conf": `{"name":"green","type":"x"}`}, "red",
			`999 network "red" in DIR: no network of that name (there are: blue, green)`,
			config.ErrNotFound},
		{"DSC-06: the error names the broken file",
			map[string]string{"10.conflist": "{", "20.conflist": red}, "red",
			"6 DIR/10.conflist:1:1: network configuration: unexpected end of JSON input", nil},
		{"DSC-06: the error names the broken drop-in of another network",
			map[string]string{"10.conflist": blue, "blue/x.conf": "[]", "20.conflist": red}, "red",
			"6 DIR/10.conflist: drop-in DIR/blue/x.conf: plugin configuration: document is a JSON array, not an object", nil},
		{"DRP-05: file in place of the drop-in directory",
			map[string]string{"10.conflist": red, "red": ""}, "red",
			"7 DIR/10.conflist: drop-in directory DIR/red is not a directory", nil},
		{"DRP-06: no plugins at all",
			map[string]string{"10.conflist": `{"cniVersion":"1.1.0","name":"red"}`,
				"red/x.json": "{}"}, "red",
			"7 DIR/10.conflist: network red has no plugins: neither under the key plugins nor in a drop-in directory", nil},
		{"DRP-09, CFG-05: a name that leaves the directory",
			map[string]string{"d/10.conflist": `{"cniVersion":"1.1.0","name":"../red"}`,
				"red/x.conf": `{"type":"x"}`}, "d",
			`7 DIR/d/10.conflist:1:30: network name "../red" is not valid: it must start with a letter or digit and hold only letters, digits, '_', '.' and '-'`, nil},
		{"SEC-01: look-up of a path", map[string]string{"10.conflist": red}, "../red",
			`7 network name "../red" is not valid: it must start with a letter or digit and hold only letters, digits, '_', '.' and '-'`, nil},
	} {
		dir := filepath.Join(t.TempDir(), "missing")
		if tt.files != nil {
			dir = tree(t, tt.files)
		}
		_, err := config.Load(dir, tt.look)
		if tt.look == "d" {
			_, err = config.LoadFile(filepath.Join(dir, "d/10.conflist"))
		}
		if got := strings.ReplaceAll(describe(err), dir, "DIR"); got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, got, tt.want)
		}
		if tt.is != nil && !errors.Is(err, tt.is) {
			t.Errorf("%s: not %v", tt.name, tt.is)
		}
	}
}

// DSC-02, DSC-09, DRP-05: links to files are followed, a dangling link is an error, entries that
// are not files are skipped, and an empty drop-in directory is treated as missing.
func TestLoadSpecialFiles(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"elsewhere/list": red, "00.conflist/x": ""})
	link := func(target, name string) {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("elsewhere", "05.conflist")
	link("elsewhere/list", ".hidden.conflist")
	if err := os.Mkdir(filepath.Join(dir, "red"), 0o700); err != nil {
		t.Fatal(err)
	}
	n, err := config.Load(dir, "red")
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(dir, ".hidden.conflist"); n.Source != want {
		t.Errorf("source %s, want %s", n.Source, want)
	}
	link("nowhere", ".a.conflist")
	_, err = config.Load(dir, "red")
	if !errors.Is(err, fs.ErrNotExist) || cni.CodeOf(err) != cni.CodeIOFailure {
		t.Errorf("dangling link: %s", describe(err))
	}
}

// DRP-05: a dangling link among the drop-ins is an error; without it the network would run without
// a plugin that the operator has added.
func TestDanglingDropIn(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"10.conflist": red, "red/a.conf": `{"type":"added"}`})
	link := filepath.Join(dir, "red", "b.conf")
	if err := os.Symlink("nowhere", link); err != nil {
		t.Fatal(err)
	}
	_, err := config.Load(dir, "red")
	if !errors.Is(err, fs.ErrNotExist) || cni.CodeOf(err) != cni.CodeIOFailure ||
		!strings.Contains(err.Error(), link) {
		t.Errorf("got %s", describe(err))
	}
	c := discover(t, dir)
	for _, f := range c.Files {
		if f.Path == link && f.Use != config.Broken {
			t.Errorf("%s is %v", f.Path, f.Use)
		}
	}
	if _, _, err := c.Lookup("red"); err == nil {
		t.Error("look-up: success")
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if n, err := config.Load(dir, "red"); err != nil || len(n.DropIns) != 1 {
		t.Errorf("without the link: %v, %s", n, describe(err))
	}
}

// a malformed file hides no other network.
func TestNetworks(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{
		"00-bad.conflist": "{", "10.conf": `{"name":"green","type":"x"}`, "20.conflist": red,
		"30.conflist": red, "40.conf": "[]",
	})
	networks, err := discover(t, dir).Networks()
	var got []string
	for _, n := range networks {
		got = append(got, n.Name+" "+filepath.Base(n.Source))
	}
	if diff := cmp.Diff([]string{"red 20.conflist", "red 30.conflist", "green 10.conf"},
		got); diff != "" {
		t.Error(diff)
	}
	want := "6 DIR/00-bad.conflist:1:1: network configuration: unexpected end of JSON input\n" +
		"DIR/40.conf: plugin configuration: document is a JSON array, not an object"
	if got := strings.ReplaceAll(describe(err), dir, "DIR"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	_, err = discover(t, filepath.Join(dir, "missing")).Networks()
	if !errors.Is(err, config.ErrNoConfig) {
		t.Errorf("missing directory: %s", describe(err))
	}
}

// DSC-08: the default is the first file in the order of names, regardless of extensions.
func TestDefault(t *testing.T) {
	t.Parallel()
	single := `{"cniVersion":"1.0.0","name":"red","type":"single"}`
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"the first file", map[string]string{"00-a.conf": single, "99-z.conflist": red}, "single"},
		{".json files count too", map[string]string{"00-a.json": single, "01.conf": "{",
			"99-z.conflist": red}, "single"},
		{"a broken file is an error", map[string]string{"00-a.conf": "{", "99-z.conflist": red},
			"6 DIR/00-a.conf:1:1: plugin configuration: unexpected end of JSON input"},
		{"none", map[string]string{"x.yaml": ""}, "999 DIR: no network configuration"},
	} {
		dir := tree(t, tt.files)
		n, err := discover(t, dir).Default()
		got := strings.ReplaceAll(describe(err), dir, "DIR")
		if err == nil {
			got = types(n)
		}
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
	// DSC-04, DSC-06: by name the list takes precedence, even over a broken single plugin.
	for _, conf := range []string{single, "{"} {
		n, err := config.Load(tree(t, map[string]string{"00-a.conf": conf, "99-z.conflist": red}),
			"red")
		if err != nil || types(n) != "first" {
			t.Errorf("%s: by name: %v, %v", conf, n, err)
		}
	}
}

// CFG-16, DRP-06: LoadBytes reads no directory.
func TestLoadBytes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, conf, want string }{
		{"list", red, "first"},
		{"single plugin", `{"name":"red","type":"x"}`, "x"},
		{"list without plugins", `{"cniVersion":"1.1.0","name":"red"}`, ""},
		{"not JSON", `{`, "6 network configuration: unexpected end of JSON input"},
	} {
		n, err := config.LoadBytes([]byte(tt.conf))
		got := describe(err)
		if err == nil {
			got = types(n)
		}
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

// The content decides about a file with another extension.
func TestLoadFileOtherExtension(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"list.txt": red, "single": `{"name":"red","type":"x"}`})
	for file, want := range map[string]string{"list.txt": "first", "single": "x"} {
		n, err := config.LoadFile(filepath.Join(dir, file))
		if err != nil || types(n) != want {
			t.Errorf("%s: %v, %v", file, n, err)
		}
	}
}
