package network_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
)

func digestOf(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(b))
}

// Field row 38: what the policy does not list is not executed, on no verb, not even to be asked for its versions, nor by a
// plugin that calls it for addresses. DEL keeps its record, and succeeds when the executable is allowed again.
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
	first, pool := digestOf(t, filepath.Join(r.plugins, "first")), digestOf(t, filepath.Join(r.plugins, "pool"))
	n := list(t, "1.1.0", "red", `{"type":"first","ipam":{"type":"pool"}}`)
	a := request("c1").Attachment("red")
	r.Policy = &network.Policy{Source: "/etc/p"}

	refusal := func(typ, digest string) string {
		path := filepath.Join(r.plugins, typ)
		return fmt.Sprintf(`plugin %q: executable not allowed by /etc/p: %s is %s; if it is to be run, add that to executables.%s`, typ, path, digest, typ)
	}
	for name, row := range map[string]struct {
		executables map[string][]string
		want        string // "" if everything may run
	}{
		"no list":                       {nil, ""},
		"both listed":                   {map[string][]string{"first": {pool, first}, "pool": {pool}}, ""},
		"both listed for any type":      {map[string][]string{"*": {first}, "pool": {pool}}, ""},
		"nothing listed":                {map[string][]string{}, refusal("first", first)},
		"nothing listed for any type":   {map[string][]string{"*": {}}, refusal("first", first)},
		"the type is not listed":        {map[string][]string{"pool": {pool}}, refusal("first", first)},
		"another digest is listed":      {map[string][]string{"first": {pool}, "pool": {pool}}, refusal("first", first)},
		"the IPAM plugin is not listed": {map[string][]string{"first": {first}}, refusal("pool", pool)},
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
			"VERSION": versions, "ADD": add, "CHECK": r.Check(t.Context(), a, n), "STATUS": r.Status(t.Context(), n),
			"GC":  r.GC(t.Context(), n, network.Keep{Attachments: []cni.ValidAttachment{{ContainerID: "c1", IfName: "eth0"}, {ContainerID: "c2", IfName: "eth0"}}}),
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
			if err := r.Del(t.Context(), request("c2").Attachment("red"), network.Fallback{}); err != nil {
				t.Fatal(err)
			}
			continue
		}
		for verb, err := range all {
			if !errors.Is(err, network.ErrNotAllowed) || cni.CodeOf(err) != cni.CodeInvalidConfig {
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

// A digest holds for one content of one file: what is replaced or changed in place is looked at again.
func TestExecutableChanges(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"bridge": "good", "evil": "evil"})
	path := filepath.Join(dir, "bridge")
	p := &network.Policy{Executables: map[string][]string{"bridge": {digestOf(t, path)}, "ptp": {digestOf(t, path)}}}
	check := func(allowed bool, why string) {
		t.Helper()
		for range 2 {
			if err := p.CheckExecutable("bridge", path); errors.Is(err, network.ErrNotAllowed) == allowed || (err == nil) != allowed {
				t.Errorf("%s: %s", why, describe(err))
			}
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(true, "as listed")
	for range 20 { // within one tick of the clock of the file system, too
		must(os.WriteFile(path, []byte("evil"), 0o700))
		check(false, "other content of the same length")
		must(os.WriteFile(path, []byte("good"), 0o700))
		check(true, "put right")
	}
	old := time.Now().Add(-time.Hour)
	must(os.Chtimes(path, old, old))
	time.Sleep(2 * network.Tick)
	check(true, "put right")
	must(os.WriteFile(path, []byte("evil"), 0o700))
	must(os.Chtimes(path, old, old))
	check(false, "other content with the time of before")
	must(os.Rename(filepath.Join(dir, "evil"), path))
	check(false, "another file")
	must(os.Remove(path))
	check(false, "no file")
	must(os.Mkdir(path, 0o700))
	check(false, "a folder")
}

// Hard links of one executable are read once, however many ask at once; a plugin that is no file cannot be allowed.
func TestExecutableDigestsAreShared(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"bridge": "good"})
	path := filepath.Join(dir, "bridge")
	if err := os.Link(path, filepath.Join(dir, "ptp")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * network.Tick) // a file that was changed just now is read again each time
	p := &network.Policy{Executables: map[string][]string{"*": {digestOf(t, path)}}}
	var asked sync.WaitGroup
	for range 8 {
		for _, name := range []string{"bridge", "ptp"} {
			asked.Go(func() {
				if err := p.CheckExecutable(name, filepath.Join(dir, name)); err != nil {
					t.Error(err)
				}
			})
		}
	}
	asked.Wait()
	if got := p.Digests(); got != 1 {
		t.Errorf("%d digests are known", got)
	}

	c := &network.Client{Isolated: true, Caller: invoke.Fake{"bridge": {}}, StateDir: t.TempDir(), Policy: p}
	_, err := c.Add(t.Context(), list(t, "1.1.0", "red", "bridge"), request("c1"))
	if !errors.Is(err, network.ErrNotAllowed) {
		t.Error(describe(err))
	}
}

// What a program has linked has no file, so no list of files is about it; a namesake in the folder is one.
func TestExecutablesAreNotLinkedPlugins(t *testing.T) {
	t.Parallel()
	p := &network.Policy{Executables: map[string][]string{}}
	if err := p.CheckExecutable("bridge", invoke.LinkedPath("bridge")); err != nil {
		t.Error(err)
	}
	r := newRig(t, map[string]script{"bridge": {}})
	if err := p.CheckExecutable("bridge", filepath.Join(r.plugins, "bridge")); !errors.Is(err, network.ErrNotAllowed) {
		t.Errorf("a file: %s", describe(err))
	}
}
