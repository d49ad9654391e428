package plugin_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin"
)

// TestSelect: BuildKit installs buildkit-cni-bridge, KubeVirt cnv-bridge; others use symbolic links
// or start a plugin through a script.
func TestSelect(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for link, target := range map[string]string{
		"alias": "bridge", "twice": "alias", "absolute": filepath.Join(dir, "bridge"),
		"ptp": "bridge", "my-ptp": "bridge", "loop": "loop", "dangling": "nowhere-bridge",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "bridge"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	var defs []plugin.Definition
	for _, name := range []string{"bridge", "device", "host-device", "host-local", "ptp"} {
		defs = append(defs, linked(name, nil))
	}
	const typ = `{"type":"bridge","ipam":{"type":"pool"}}`
	for _, row := range []struct{ name, file, request, want string }{
		{"its own name", "bridge", "", "bridge"},
		{"a link", "alias", "", "bridge"},
		{"a link to a link", "twice", "", "bridge"},
		{"an absolute link", "absolute", "", "bridge"},
		{"a dangling link", "dangling", "", "bridge"},
		{"a link that leads to itself", "loop", "", ""},
		{"its own name before the target's", "ptp", "", "ptp"},
		{"the target before the end of the name", "my-ptp", "", "bridge"},
		{"the end of the name", "cnv-bridge", "", "bridge"},
		{"the end of a long name", "buildkit-cni-host-local", "", "host-local"},
		{"the longest end", "cnv-host-device", "", "host-device"},
		{"a shorter end", "my-device", "", "device"},
		{"the name before the type", "cnv-ptp", typ, "ptp"},
		{"the type", "tenon", typ, "bridge"},
		{"the end of the type", "tenon", `{"type":"cnv-ptp"}`, "ptp"},
		{"the type of the plugin that delegates to the file", "pool", typ, ""},
		{"no separator", "mybridge", "", ""},
		{"a beginning", "bridge-old", "", ""},
		{"no request", "tenon", "", ""},
		{"a request that is no object", "tenon", `["bridge"]`, ""},
		{"an empty end", "tenon-", `{"type":""}`, ""},
	} {
		d, ok := plugin.Select(defs, filepath.Join(dir, row.file), []byte(row.request))
		if d.Name != row.want || ok != (row.want != "") {
			t.Errorf("%s: %q, %t; want %q", row.name, d.Name, ok, row.want)
		}
	}
}

// TestProcessName: a process that is called with CNI_COMMAND is a plugin or answers with an error
// object.
func TestProcessName(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, file string
		args       []string
		code       cni.Code // 0 for success
	}{
		{"a plugin", "files", nil, 0},
		{"arguments", "files", []string{"x"}, 0},
		{"the end of the name", "my-files", nil, 0},
		{"another name", "tenon", nil, cni.CodeInvalidEnvironment},
	} {
		for _, verb := range []cni.Command{cni.Add, cni.Del, cni.Status, cni.VersionCommand} {
			t.Run(row.name+"/"+string(verb), func(t *testing.T) {
				t.Parallel()
				p := newProcess(t, verb, "")
				p.Args = append([]string{"/somewhere/" + row.file}, row.args...)
				status := p.run(t)
				if row.code == 0 {
					if status != 0 {
						t.Errorf("exit status %d: %s", status, &p.stdout)
					}
					return
				}
				if status != 1 {
					t.Errorf("exit status %d, want 1", status)
				}
				p.wantError(t, row.code)
				if p.stderr.Len() > 0 {
					t.Errorf("standard error: %s", &p.stderr)
				}
			})
		}
	}
}
