package netconf_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/netconf"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// setUp creates a configuration directory, and a client with plugins that support the versions in
// supported; other plugins are missing.
func setUp(
	t *testing.T,
	files, supported map[string]string,
) (*config.Catalog, *network.Client, string) {
	t.Helper()
	dir := t.TempDir()
	write := func(path, content string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range files {
		write(filepath.Join(dir, "net.d", name), content)
	}
	for name, versions := range supported {
		versions = `"` + strings.Join(strings.Fields(versions), `", "`) + `"`
		write(
			filepath.Join(dir, "bin", name),
			"#!/bin/sh\necho '{\"cniVersion\": \"1.1.0\", \"supportedVersions\": ["+versions+"]}'\n",
		)
	}
	c, err := config.Discover(filepath.Join(dir, "net.d"))
	if err != nil {
		t.Fatal(err)
	}
	client := &network.Client{
		Caller:     invoke.Process{},
		PluginDirs: []string{filepath.Join(dir, "bin")},
		Isolated:   true,
		StateDir:   filepath.Join(dir, "state"),
	}
	return c, client, dir
}

var files = map[string]string{
	"00-cut.conflist":  "{\n ",
	"10-red.conflist":  `{"cniVersion": "0.4.0", "cniVersions": ["1.1.0"], "name": "red", "plugins": [{"type": "a", "ipam": {"type": "i"}}]}`,
	"20-red.conflist":  `{"cniVersion": "1.1.0", "name": "red", "plugins": [{"type": "b"}]}`,
	"30-blue.conflist": `{"cniVersion": "1.0.0", "name": "blue", "plugins": [{"type": "b"}]}`,
	"red/x.conf":       `{"type": "mesh"}`,
	"tenon.policy":     `{"requiredPlugins": {"blue": ["mesh"]}}`,
}

func compare(t *testing.T, want string, got netconf.Directory, dir string) {
	t.Helper()
	b, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var have, expected any
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(b), dir, "DIR")), &have); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &expected); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(expected, have); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// The report on one network includes broken files that name no network.
func TestExplainOneNetwork(t *testing.T) {
	t.Parallel()
	c, client, dir := setUp(
		t,
		files,
		map[string]string{"a": "0.4.0 1.0.0 1.1.0", "i": "0.4.0 1.0.0", "mesh": "0.4.0"},
	)
	compare(t, `{
		"dir": "DIR/net.d",
		"files": [
			{"path": "DIR/net.d/00-cut.conflist", "use": "broken", "default": true, "line": 2, "column": 1,
				"error": "network configuration: unexpected end of JSON input"},
			{"path": "DIR/net.d/10-red.conflist", "use": "chosen", "network": "red", "cniVersion": "1.1.0", "plugins": ["a", "mesh"]},
			{"path": "DIR/net.d/20-red.conflist", "use": "shadowed", "network": "red", "cniVersion": "1.1.0", "plugins": ["b", "mesh"],
				"shadowedBy": "DIR/net.d/10-red.conflist"},
			{"path": "DIR/net.d/red/x.conf", "use": "drop-in", "network": "red"},
			{"path": "DIR/net.d/tenon.policy", "use": "policy"}
		],
		"policy": {"path": "DIR/net.d/tenon.policy", "requiredPlugins": {"blue": ["mesh"]}},
		"networks": [{
			"network": "red", "path": "DIR/net.d/10-red.conflist",
			"plugins": [{"type": "a", "path": "DIR/net.d/10-red.conflist"}, {"type": "mesh", "path": "DIR/net.d/red/x.conf"}],
			"executables": [{"type": "a", "path": "DIR/bin/a"}, {"type": "i", "path": "DIR/bin/i"}, {"type": "mesh", "path": "DIR/bin/mesh"}],
			"offeredVersions": ["0.4.0", "1.1.0"], "selectedVersion": "0.4.0", "limitedBy": ["i", "mesh"]
		}]
	}`, netconf.Explain(t.Context(), client, c, "red"), dir)
}

// The report includes networks that cannot run: the policy forbids one, or the plugins support no
// common version.
func TestExplainNetworksThatCannotRun(t *testing.T) {
	t.Parallel()
	c, client, dir := setUp(
		t,
		files,
		map[string]string{"a": "1.1.0", "i": "0.4.0", "mesh": "0.4.0"},
	)
	report := netconf.Explain(t.Context(), client, c, "")
	if len(report.Files) != len(c.Files) || len(report.Networks) != 2 {
		t.Fatalf("%d files, %d networks", len(report.Files), len(report.Networks))
	}
	red, blue := report.Networks[0], report.Networks[1]
	if want := "network red: no CNI version out of [0.4.0 1.1.0] is supported by all plugins"; red.Selected != "" ||
		!strings.HasPrefix(red.VersionError, want) {
		t.Errorf("version %q: %q, want %q", red.Selected, red.VersionError, want)
	}
	report = netconf.Directory{Networks: []netconf.Network{blue}}
	compare(t, `{
		"dir": "", "files": null,
		"networks": [{
			"network": "blue", "path": "DIR/net.d/30-blue.conflist", "plugins": [{"type": "b", "path": "DIR/net.d/30-blue.conflist"}],
			"executables": [{"type": "b", "error": "plugin \"b\" not found in DIR/bin"}],
			"offeredVersions": ["1.0.0"], "selectedVersion": "1.0.0",
			"refused": "network blue lacks the plugin mesh, which DIR/net.d/tenon.policy requires: its plugins are: b"
		}]
	}`, report, dir)
}

// Explain runs only VERSION, once for each plugin, and only if a network offers several versions.
func TestExplainAsksForVersionsAlone(t *testing.T) {
	t.Parallel()
	c, client, _ := setUp(
		t,
		files,
		map[string]string{"a": "1.1.0 0.4.0", "i": "0.4.0", "mesh": "0.4.0", "b": "1.0.0"},
	)
	calls := &invoke.Recorder{Caller: client.Caller}
	client.Caller = calls
	netconf.Explain(t.Context(), client, c, "")
	netconf.Explain(t.Context(), client, c, "blue")
	var asked []string
	for _, x := range calls.Exchanges() {
		if x.Call.Env.Command != cni.VersionCommand {
			t.Errorf("%s was run", x.Call.Env.Command)
		}
		asked = append(asked, filepath.Base(x.Call.Path))
	}
	if diff := cmp.Diff([]string{"a", "i", "mesh"}, asked); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// The report on an empty directory has empty lists, not null.
func TestExplainNothing(t *testing.T) {
	t.Parallel()
	c, client, dir := setUp(t, nil, nil)
	compare(
		t,
		`{"dir": "DIR/net.d", "files": [], "networks": []}`,
		netconf.Explain(t.Context(), client, c, ""),
		dir,
	)
}
