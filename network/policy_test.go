package network_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network"
)

// A policy that is not understood requires nothing by accident, so every mistake is an error.
func TestParsePolicy(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"requiredPlugins":{"*":["tuning","a"],"red":["mesh","a"]}}`: "a mesh tuning",
		`{"requiredPlugins":{"blue":["mesh"]}}`:                       "",
		`{"requiredPlugins":{}}`:                                      "",
		`{"requiredPlugins":{"red":["a"]}`:                            "6 policy: unexpected end of JSON input",
		`{"requiredPlugins":{"red":["a"]}} x`:                         "6 policy: invalid character 'x' after top-level value",
		`[]`:                                                          "6 policy: a JSON array is not acceptable here",
		`{}`:                                                          "7 policy: requiredPlugins is missing",
		`null`:                                                        "7 policy: requiredPlugins is missing",
		`{"requiredPlugin":{}}`:                                       `6 policy: key "requiredPlugin" is unknown: known are requiredPlugins and executables`,
		`{"requiredPlugins":{},"x":1}`:                                `6 policy: key "x" is unknown: known are requiredPlugins and executables`,
		`{"requiredPlugins":{"red":"mesh"}}`:                          "6 policy: requiredPlugins: a JSON string is not acceptable here",
		`{"requiredPlugins":{"re d":["mesh"]}}`:                       `7 policy: requiredPlugins: network name "re d" is not valid: it must start with a letter or digit and hold only letters, digits, '_', '.' and '-'`,
		`{"requiredPlugins":{"red":["a/b"]}}`:                         `7 policy: requiredPlugins of red: plugin type "a/b" is not a plain file name`,
		`{"executables":{"a":["sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"],"*":[]}}`: "",
		`{"executables":{}}`:                        "",
		`{"executables":null}`:                      "7 policy: requiredPlugins is missing",
		`{"executables":{},"requiredPlugins":null}`: "7 policy: requiredPlugins is missing",
		`{"executables":null,"requiredPlugins":{}}`: "7 policy: executables is null; an empty object allows none",
		`{"executables":{"a":"sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"}}`: "6 policy: executables: a JSON string is not acceptable here",
		`{"executables":{"a/b":[]}}`:          `7 policy: executables: plugin type "a/b" is not a plain file name`,
		`{"executables":{"a":["sha256:0a"]}}`: `7 policy: executables of a: "sha256:0a" is not "sha256:" and 64 hexadecimal digits in lower case`,
		`{"executables":{"a":["0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"]}}`:        `7 policy: executables of a: "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a" is not "sha256:" and 64 hexadecimal digits in lower case`,
		`{"executables":{"a":["sha256:0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A"]}}`: `7 policy: executables of a: "sha256:0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A" is not "sha256:" and 64 hexadecimal digits in lower case`,
	} {
		p, err := network.ParsePolicy([]byte(in))
		got := describe(err)
		if err == nil {
			got = strings.Join(p.Required("red"), " ")
		}
		if got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", in, got, want)
		}
	}
}

// A network that lacks a required plugin gets no containers and is not ready, but everything can be taken down.
func TestPolicy(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}, "mesh": {}})
	bare := list(t, "1.1.0", "red", "first")
	a := r.add(bare)
	r.Policy = &network.Policy{RequiredPlugins: map[string][]string{"*": {"first"}, "red": {"mesh", "second"}}, Source: "/etc/p"}

	const lacks = "network red lacks the plugin mesh and second, which /etc/p requires: its plugins are: first"
	_, err := r.Add(t.Context(), bare, request("c2"))
	if got, want := describe(err), "7 red/c2/eth0: "+lacks; got != want {
		t.Errorf("ADD: got  %s\nwant %s", got, want)
	}
	if got, want := describe(r.Status(t.Context(), bare)), "50 "+lacks; got != want {
		t.Errorf("STATUS: got  %s\nwant %s", got, want)
	}
	if got := describe(r.Status(t.Context(), list(t, "0.4.0", "red", "first"))); !strings.HasPrefix(got, "50 ") {
		t.Errorf("STATUS below 1.1.0: %s", got)
	}
	r.wantCalls("")
	for verb, err := range map[string]error{
		"CHECK": r.Check(t.Context(), a, bare),
		"GC":    r.GC(t.Context(), bare, network.Keep{Attachments: []cni.ValidAttachment{{ContainerID: "c1", IfName: "eth0"}}}),
		"DEL":   r.Del(t.Context(), a, network.Fallback{Network: bare}),
	} {
		if err != nil {
			t.Errorf("%s: %s", verb, describe(err))
		}
	}
	r.entries()

	for _, other := range []*network.Network{list(t, "1.1.0", "blue", "first"), list(t, "1.1.0", "green", "mesh", "first")} {
		if _, err := r.Add(t.Context(), other, request("c3")); err != nil {
			t.Errorf("%s: %s", other.Name, describe(err))
		}
	}
	delete(r.Policy.RequiredPlugins, "red")
	r.add(bare)
}

// A policy that is there and cannot be read refuses all; where there is none nothing is required.
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
		"broken":            {func(path string) error { return os.WriteFile(path, []byte("{\n x"), 0o600) }, "6 DIR/tenon.policy:2:2: policy: invalid character 'x' looking for beginning of object key string"},
		"a link to nothing": {func(path string) error { return os.Symlink("nowhere", path) }, "5 DIR/tenon.policy: open: no such file or directory"},
		"a folder":          {func(path string) error { return os.Mkdir(path, 0o700) }, "5 DIR/tenon.policy: not a file"},
	} {
		dir := tree(t, map[string]string{"10.conflist": red})
		if err := row.prepare(filepath.Join(dir, network.PolicyName)); err != nil {
			t.Fatal(err)
		}
		p, err := network.LoadPolicy(dir)
		if got := strings.ReplaceAll(describe(err), dir, "DIR"); got != row.want {
			t.Errorf("%s: got %s, want %s", name, got, row.want)
		}
		want := row.want
		if err != nil {
			code, text, _ := strings.Cut(want, " ")
			want = code + " the policy cannot be read, so no network is known to be allowed: " + text
		}
		n := list(t, "1.1.0", "red", "first")
		if got := strings.ReplaceAll(describe(p.Check(n)), dir, "DIR"); got != want {
			t.Errorf("%s: check: got %s, want %s", name, got, want)
		}
		c, err := network.Discover(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.ReplaceAll(describe(c.Policy.Check(n)), dir, "DIR"); got != want {
			t.Errorf("%s: catalogue: got %s, want %s", name, got, want)
		}
	}
}

func FuzzParsePolicy(f *testing.F) {
	f.Add([]byte(`{"requiredPlugins":{"*":["tuning"],"red":["mesh-cni"]}}`))
	f.Add([]byte(`{"requiredPlugins":{"red":null},"requiredPlugins":{"blue":[""]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := network.ParsePolicy(b)
		if err != nil {
			if c := cni.CodeOf(err); p != nil || c != cni.CodeDecodingFailure && c != cni.CodeInvalidConfig {
				t.Error(describe(err))
			}
			return
		}
		for name, types := range p.RequiredPlugins {
			got := p.Required(name)
			for _, typ := range types {
				n := &network.Network{List: &cni.List{Name: name}}
				if err := p.Check(n); err == nil || !cmp.Equal(got, p.Required(name)) {
					t.Errorf("%s does not need %s", name, typ)
				}
			}
		}
	})
}
