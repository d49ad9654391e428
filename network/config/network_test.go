package config_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network/config"
)

// The configuration that plugins receive on standard input.
func TestConfigurationReachesPlugins(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, file, content, want string }{
		{"CFG-12, CFG-17: unknown keys of a list are ignored and not passed on", "x.conflist",
			`{"cniVersion":"1.0.0","name":"red","later":{"x":1},"plugins":[{"type":"p"}]}`,
			`{"cniVersion":"1.0.0","name":"red","type":"p"}`},
		{"CFG-17, CFG-34: unknown keys of a plugin are passed on unchanged", "x.conflist",
			`{"cniVersion":"1.0.0","name":"red","plugins":[{"type":"p","z":[1.10,null,{"b":2,"a":1e400}]}]}`,
			`{"cniVersion":"1.0.0","name":"red","type":"p","z":[1.10,null,{"b":2,"a":1e400}]}`},
		{"CFG-14: the last of equal keys counts, at every level", "x.conflist",
			`{"cniVersion":"0.3.1","cniVersion":"1.0.0","name":"blue","name":"red","plugins":[{"type":"q"}],"plugins":[{"type":"q","type":"p","x":{"a":1},"x":{"b":1}}]}`,
			`{"cniVersion":"1.0.0","name":"red","type":"p","x":{"b":1}}`},
		{"CFG-33: keys that the runtime owns are accepted and not passed on", "x.conflist",
			`{"cniVersion":"1.0.0","name":"red","plugins":[{"type":"p","cni.dev/x":1,"prevResult":{},"args":{"cni":{}},"capabilities":{}}]}`,
			`{"args":{"cni":{}},"cniVersion":"1.0.0","name":"red","type":"p"}`},
		{"CFG-41: the list's name and version replace a plugin's", "x.conflist",
			`{"cniVersion":"1.0.0","name":"red","plugins":[{"type":"p","name":"own","NAME":"loud","cniVersion":"0.1.0"}]}`,
			`{"cniVersion":"1.0.0","name":"red","type":"p"}`},
		{"CFG-20, CFG-37: a single plugin, with the well-known keys of its time", "x.conf",
			`{"cniVersion":"0.2.0","name":"red","type":"p","ipam":{"type":"i","routes":[{"dst":"0.0.0.0/0"}]}}`,
			`{"cniVersion":"0.2.0","ipam":{"type":"i","routes":[{"dst":"0.0.0.0/0"}]},"name":"red","type":"p"}`},
		{"CFG-22: a single plugin in a version that has none", "x.json",
			`{"cniVersion":"1.1.0","name":"red","type":"p"}`,
			`{"cniVersion":"1.1.0","name":"red","type":"p"}`},
		{"VER-04, R-14: no version means the oldest", "x.conflist",
			`{"name":"red","plugins":[{"type":"p"}]}`,
			`{"cniVersion":"0.1.0","name":"red","type":"p"}`},
		{"VER-04, R-14: an empty version means the oldest", "x.conf",
			`{"name":"red","type":"p","cniVersion":""}`,
			`{"cniVersion":"0.1.0","name":"red","type":"p"}`},
		{"VER-05, CFG-07: the newest version on offer", "x.conflist",
			`{"cniVersion":"0.4.0","cniVersions":["1.1.0","1.0.0"],"name":"red","plugins":[{"type":"p"}]}`,
			`{"cniVersion":"1.1.0","name":"red","type":"p"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n, err := config.LoadFile(filepath.Join(tree(t, map[string]string{tt.file: tt.content}),
				tt.file))
			if err != nil {
				t.Fatal(err)
			}
			got, err := n.Request(cni.Add, 0, cni.RequestData{})
			if diff := cmp.Diff(tt.want, string(got)); diff != "" || err != nil {
				t.Error(diff, err)
			}
		})
	}
}
