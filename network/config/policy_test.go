package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network/config"
)

// Every mistake in a policy is an error, because a policy that is not understood would require
// nothing.
func TestParsePolicy(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"requiredPlugins":{"*":["tuning","a"],"red":["mesh","a"]}}`: "a mesh tuning",
		`{"requiredPlugins":{"blue":["mesh"]}}`:                       "",
		`{"requiredPlugins":{}}`:                                      "",
		`{"requiredPlugins":{"red":["a"]}`:                            "6 policy: unexpected end of JSON input",
		`{"requiredPlugins":{"red":["a"]}} x`:                         "6 policy: invalid character 'x' after top-level value",
		`[]`:                                                          "6 policy: expected an object, found an array",
		`{}`:                                                          "7 policy: requiredPlugins is missing",
		`null`:                                                        "7 policy: requiredPlugins is missing",
		`{"requiredPlugin":{}}`:                                       `6 policy: unknown key "requiredPlugin": known keys are requiredPlugins and executables`,
		`{"requiredPlugins":{},"x":1}`:                                `6 policy: unknown key "x": known keys are requiredPlugins and executables`,
		`{"requiredPlugins":{"red":"mesh"}}`:                          "6 policy: requiredPlugins: expected an array, found a string",
		`{"requiredPlugins":{"re d":["mesh"]}}`:                       `7 policy: requiredPlugins: network name "re d" is not valid: it must start with a letter or digit and hold only letters, digits, '_', '.' and '-'`,
		`{"requiredPlugins":{"red":["a/b"]}}`:                         `7 policy: requiredPlugins of red: plugin type "a/b" is not a plain file name`,
		`{"executables":{"a":["sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"],"*":[]}}`: "",
		`{"executables":{}}`:                        "",
		`{"executables":null}`:                      "7 policy: requiredPlugins is missing",
		`{"executables":{},"requiredPlugins":null}`: "7 policy: requiredPlugins is missing",
		`{"executables":null,"requiredPlugins":{}}`: "7 policy: executables is null; an empty object allows none",
		`{"executables":{"a":"sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"}}`: "6 policy: executables: expected an array, found a string",
		`{"executables":{"a/b":[]}}`:          `7 policy: executables: plugin type "a/b" is not a plain file name`,
		`{"executables":{"a":["sha256:0a"]}}`: `7 policy: executables of a: "sha256:0a" is not "sha256:" and 64 hexadecimal digits in lower case`,
		`{"executables":{"a":["0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"]}}`:        `7 policy: executables of a: "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a" is not "sha256:" and 64 hexadecimal digits in lower case`,
		`{"executables":{"a":["sha256:0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A"]}}`: `7 policy: executables of a: "sha256:0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A" is not "sha256:" and 64 hexadecimal digits in lower case`,
	} {
		p, err := config.ParsePolicy([]byte(in))
		got := describe(err)
		if err == nil {
			got = strings.Join(p.Required("red"), " ")
		}
		if got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", in, got, want)
		}
	}
}

// A policy that cannot be read refuses all networks; without a policy nothing is required.
func TestLoadPolicy(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		prepare func(path string) error
		want    string
	}{
		"none": {func(string) error { return nil }, "success"},
		"good": {func(path string) error {
			return os.WriteFile(path, []byte(`{"requiredPlugins":{"*":["first"]}}`), 0o600)
		}, "success"},
		"broken": {func(path string) error { return os.WriteFile(path, []byte("{\n x"), 0o600) },
			"6 DIR/tenon.policy:2:2: policy: invalid character 'x' looking for beginning of object key string"},
		"a dangling link": {func(path string) error { return os.Symlink("nowhere", path) },
			"5 DIR/tenon.policy: open: no such file or directory"},
		"a directory": {func(path string) error { return os.Mkdir(path, 0o700) },
			"5 DIR/tenon.policy: not a file"},
	} {
		dir := tree(t, map[string]string{"10.conflist": red})
		if err := row.prepare(filepath.Join(dir, config.PolicyName)); err != nil {
			t.Fatal(err)
		}
		p, err := config.LoadPolicy(dir)
		if got := strings.ReplaceAll(describe(err), dir, "DIR"); got != row.want {
			t.Errorf("%s: got %s, want %s", name, got, row.want)
		}
		want := row.want
		if err != nil {
			code, text, _ := strings.Cut(want, " ")
			want = code + " the policy cannot be read, so it allows no network: " + text
		}
		n := list(t, "1.1.0", "red", "first")
		if got := strings.ReplaceAll(describe(p.Check(n)), dir, "DIR"); got != want {
			t.Errorf("%s: check: got %s, want %s", name, got, want)
		}
		c := discover(t, dir)
		if got := strings.ReplaceAll(describe(c.Policy.Check(n)), dir, "DIR"); got != want {
			t.Errorf("%s: catalog: got %s, want %s", name, got, want)
		}
	}
}

func FuzzParsePolicy(f *testing.F) {
	f.Add([]byte(`{"requiredPlugins":{"*":["tuning"],"red":["mesh-cni"]}}`))
	f.Add([]byte(`{"requiredPlugins":{"red":null},"requiredPlugins":{"blue":[""]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := config.ParsePolicy(b)
		if err != nil {
			if c := cni.CodeOf(err); p != nil || c != cni.CodeDecodingFailure &&
				c != cni.CodeInvalidConfig {
				t.Error(describe(err))
			}
			return
		}
		for name, types := range p.RequiredPlugins {
			got := p.Required(name)
			for _, typ := range types {
				n := &config.Network{List: &cni.List{Name: name}}
				if err := p.Check(n); err == nil || !cmp.Equal(got, p.Required(name)) {
					t.Errorf("%s does not need %s", name, typ)
				}
			}
		}
	})
}
