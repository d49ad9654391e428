package network_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

func digestOf(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(b))
}

// A binary that the policy does not list is not executed: on no verb, not for its versions, and not
// as the IPAM plugin of another plugin. DEL keeps its record, and succeeds when the binary is
// allowed again.
func TestExecutables(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for _, name := range []string{"first", "pool"} {
		r.shell(name, "echo $CNI_COMMAND "+name+` >> $dir/ran; echo '{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}'`)
	}
	ranSince := func() string {
		b, _ := os.ReadFile(filepath.Join(r.plugins, "ran"))
		_ = os.Remove(filepath.Join(r.plugins, "ran"))
		return strings.Join(strings.Fields(string(b)), " ")
	}
	first, pool := digestOf(t, filepath.Join(r.plugins, "first")),
		digestOf(t, filepath.Join(r.plugins, "pool"))
	n := list(t, "1.1.0", "red", `{"type":"first","ipam":{"type":"pool"}}`)
	a := request("c1").Attachment("red")
	r.Policy = &config.Policy{Source: "/etc/p"}

	refusal := func(typ, digest string) string {
		path := filepath.Join(r.plugins, typ)
		return fmt.Sprintf(`plugin %q: executable not allowed by /etc/p: %s is %s; to allow it, add that digest to executables.%s`, typ, path, digest, typ)
	}
	for name, row := range map[string]struct {
		executables map[string][]string
		want        string // "" if all binaries are allowed
	}{
		"no list": {nil, ""},
		"both listed": {map[string][]string{"first": {pool, first},
			"pool": {pool}}, ""},
		"both listed for any type":    {map[string][]string{"*": {first}, "pool": {pool}}, ""},
		"nothing listed":              {map[string][]string{}, refusal("first", first)},
		"nothing listed for any type": {map[string][]string{"*": {}}, refusal("first", first)},
		"the type is not listed": {map[string][]string{"pool": {pool}},
			refusal("first", first)},
		"another digest is listed": {map[string][]string{"first": {pool}, "pool": {pool}},
			refusal("first", first)},
		"the IPAM plugin is not listed": {map[string][]string{"first": {first}},
			refusal("pool", pool)},
	} {
		r.Policy.Executables = nil
		if _, err := r.Add(t.Context(), n, request("c1")); err != nil {
			t.Fatal(err)
		}
		ranSince()
		r.Policy.Executables = row.executables
		asked := "first"
		if strings.Contains(row.want, `"pool"`) {
			asked = "pool"
		}
		_, versions := r.Versions(t.Context(), asked)
		_, add := r.Add(t.Context(), n, request("c2"))
		all := map[string]error{
			"VERSION": versions, "ADD": add, "CHECK": r.Check(t.Context(), a, n),
			"STATUS": r.Status(t.Context(), n),
			"GC": r.GC(t.Context(), n,
				network.Keep{Attachments: []cni.ValidAttachment{{ContainerID: "c1", IfName: "eth0"},
					{ContainerID: "c2", IfName: "eth0"}}}),
			"DEL": r.Del(t.Context(), a, network.Fallback{}),
		}
		if row.want == "" {
			for verb, err := range all {
				if err != nil {
					t.Errorf("%s: %s: %s", name, verb, describe(err))
				}
			}
			if got := ranSince(); got != "VERSION first ADD first CHECK first STATUS first GC first DEL first" {
				t.Errorf("%s: ran: %s", name, got)
			}
			if err := r.Del(t.Context(), request("c2").Attachment("red"),
				network.Fallback{}); err != nil {
				t.Fatal(err)
			}
			continue
		}
		for verb, err := range all {
			if !errors.Is(err, config.ErrNotAllowed) || cni.CodeOf(err) != cni.CodeInvalidConfig {
				t.Errorf("%s: %s: %s", name, verb, describe(err))
			}
		}
		if want := "7 red/c2/eth0: " + row.want; describe(add) != want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, describe(add), want)
		}
		if got := ranSince(); got != "" {
			t.Errorf("%s: ran: %s", name, got)
		}
		r.wantRecorded("red/c1/eth0 deleting")
		r.Policy.Executables = nil
		if err := r.Del(t.Context(), a, network.Fallback{}); err != nil {
			t.Errorf("%s: %s", name, describe(err))
		}
	}
}

// A policy about files allows a linked plugin, which has no file. A file with the name of a linked
// plugin is not one.
func TestExecutablesAreNotLinkedPlugins(t *testing.T) {
	t.Parallel()
	p := &config.Policy{Executables: map[string][]string{}}
	if err := p.CheckExecutable("bridge", invoke.LinkedPath("bridge")); err != nil {
		t.Error(err)
	}
	r := newRig(t, map[string]script{"bridge": {}})
	if err := p.CheckExecutable("bridge", filepath.Join(r.plugins, "bridge")); !errors.Is(err,
		config.ErrNotAllowed) {
		t.Errorf("a file: %s", describe(err))
	}
}
