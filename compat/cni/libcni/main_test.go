package libcni_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// exchange is a call of a plugin that a fake has received.
type exchange struct {
	typ   string
	env   map[string]string // the variables CNI_*
	stdin string
}

func (e exchange) String() string { return e.env["CNI_COMMAND"] + " " + e.typ }

// fake is an invoke.Exec that records calls. A plugin succeeds with the output under "COMMAND type"
// or "COMMAND", fails with the error there, or prints its previous result.
type fake struct {
	version.PluginDecoder
	output  map[string]string
	fail    map[string]error
	missing string                                   // a plugin type that is not found
	before  func(ctx context.Context, call exchange) // may be nil

	mu    sync.Mutex
	calls []exchange
}

func (f *fake) FindInPath(plugin string, paths []string) (string, error) {
	if plugin == f.missing {
		return "", fmt.Errorf("failed to find plugin %q in path %v", plugin, paths)
	}
	return "/bin/" + plugin, nil
}

func (f *fake) ExecPlugin(
	ctx context.Context, path string, stdin []byte, environ []string,
) ([]byte, error) {
	e := exchange{typ: filepath.Base(path), env: map[string]string{}, stdin: string(stdin)}
	for _, entry := range environ {
		if key, value, _ := strings.Cut(entry, "="); strings.HasPrefix(key, "CNI_") {
			e.env[key] = value
		}
	}
	if f.before != nil {
		f.before(ctx, e)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, e)
	for _, key := range []string{e.String(), e.env["CNI_COMMAND"]} {
		if err := f.fail[key]; err != nil {
			return nil, err
		}
		if out, ok := f.output[key]; ok {
			return []byte(out), nil
		}
	}
	if e.env["CNI_COMMAND"] == "VERSION" {
		return []byte(`{"cniVersion":"1.1.0","supportedVersions":["0.4.0","1.0.0","1.1.0"]}`), nil
	}
	var request struct {
		PrevResult json.RawMessage `json:"prevResult"`
	}
	if err := json.Unmarshal(stdin, &request); err != nil {
		return nil, err
	}
	if request.PrevResult == nil {
		return []byte(`{"ips":[{"address":"10.1.2.3/24"}]}`), nil
	}
	return request.PrevResult, nil
}

// take returns the calls since the last take.
func (f *fake) take() []exchange {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

// want compares the calls since the last take with a text such as "ADD first, ADD second".
func (f *fake) want(t *testing.T, want string) []exchange {
	t.Helper()
	calls := f.take()
	var got []string
	for _, c := range calls {
		got = append(got, c.String())
	}
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("calls %q, want %q", text, want)
	}
	return calls
}

// rig is a CNIConfig with a fake and a cache directory.
type rig struct {
	*libcni.CNIConfig
	fake *fake
	dir  string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{fake: &fake{output: map[string]string{}, fail: map[string]error{}}, dir: t.TempDir()}
	r.CNIConfig = libcni.NewCNIConfigWithCacheDir([]string{"/one", "/two"}, r.dir, r.fake)
	return r
}

// file is the path of a cache file.
func (r *rig) file(name string) string { return filepath.Join(r.dir, "results", name) }

// write writes a cache file and returns its path.
func (r *rig) write(t *testing.T, name, content string) string {
	t.Helper()
	return write(t, filepath.Join(r.dir, "results"), name, content)
}

// cached returns the sorted names of all files in the cache directory.
func (r *rig) cached(t *testing.T) string {
	t.Helper()
	var names []string
	for _, pattern := range []string{"*", "results/*", ".*", "results/.*"} {
		paths, err := filepath.Glob(filepath.Join(r.dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if name := filepath.Base(path); name != "results" && !strings.HasSuffix(path, ".") {
				names = append(names, name)
			}
		}
	}
	return strings.Join(names, " ")
}

// write writes a file and returns its path.
func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func parseList(t *testing.T, text string) *libcni.NetworkConfigList {
	t.Helper()
	list, err := libcni.NetworkConfFromBytes([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// list returns the network "red" with plugins of these types.
func list(t *testing.T, version string, pluginTypes ...string) *libcni.NetworkConfigList {
	t.Helper()
	var plugins []string
	for _, typ := range pluginTypes {
		plugins = append(plugins, fmt.Sprintf(`{"type":%q}`, typ))
	}
	return parseList(t, fmt.Sprintf(`{"cniVersion":%q,"name":"red","plugins":[%s]}`, version,
		strings.Join(plugins, ",")))
}

func plugin(t *testing.T, text string) *libcni.PluginConfig {
	t.Helper()
	conf, err := libcni.ConfFromBytes([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return conf
}

func runtimeConf() *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: "c1", NetNS: "/run/netns/x", IfName: "eth0"}
}

// wantError compares the text of an error; the empty text means success.
func wantError(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if got != want {
		t.Errorf("error\ngot  %s\nwant %s", got, want)
	}
}

// wantJSON compares JSON documents.
func wantJSON(t *testing.T, got, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Fatalf("%s: %v", got, err)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("document\ngot  %s\nwant %s", got, want)
	}
}

// resultText returns a result as JSON, or "" for nil.
func resultText(t *testing.T, result types.Result) string {
	t.Helper()
	if result == nil {
		return ""
	}
	b, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// pathList separates the directories of CNI_PATH.
const pathList = string(os.PathListSeparator)
