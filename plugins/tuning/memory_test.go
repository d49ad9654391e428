package tuning_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/statefile"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

// dir returns the plugin's dataDir.
func dir(r *plugintest.Runtime) string { return r.Conf["dataDir"].(string) }

// files lists the files in dataDir.
func files(t *testing.T, r *plugintest.Runtime) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir(r), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, strings.TrimPrefix(path, dir(r)+"/"))
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return names
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestModes: other users cannot read the saved values, and the owner can enter the directory,
// unlike upstream's.
func TestModes(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"mtu":1400`)
	r.Add("c")
	names := files(t, r)
	if len(names) != 2 {
		t.Fatalf("files %q", names)
	}
	for _, name := range names {
		if info, err := os.Stat(filepath.Join(dir(r), name)); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	for _, name := range []string{"", ".tenon"} {
		if info, err := os.Stat(filepath.Join(dir(r), name)); err != nil || info.Mode().
			Perm() != 0o700 {
			t.Errorf("directory %s: %v, %v", name, info.Mode(), err)
		}
	}
}

// TestRepeatedADD: DEL restores the values from before the first ADD, even if the second ADD
// changes more. The upstream plugin restores the values of the first ADD.
func TestRepeatedADD(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"mtu":1400,"sysctl":{"net.core.somaxconn":"5"}`)
	r.Container("c")
	before := r.State()
	r.Add("c")
	file := remembered(t, r, "c")
	r.Add("c")
	if got := remembered(t, r, "c"); got != file {
		t.Errorf("the file was %s, is %s", file, got)
	}
	r.Conf["mtu"], r.Conf["txQLen"] = 1300, 55
	r.Conf["sysctl"] = map[string]string{
		"net.ipv4.conf.IFNAME.arp_notify": "1", "net.core.somaxconn": "6",
	}
	r.Add("c")
	if diff := cmp.Diff("{\n \"mtu\": 1500,\n \"txQLen\": 1000\n}",
		remembered(t, r, "c")); diff != "" {
		t.Error(diff)
	}
	r.Del("c")
	removeDirs(t, r)
	r.Unchanged(before)
}

// TestTwoInOneChain: two tuning plugins in one list, with DEL in reverse order.
func TestTwoInOneChain(t *testing.T) {
	t.Parallel()
	r := runtime(t, "")
	r.Container("c")
	before := r.State()
	for _, verb := range []cni.Command{cni.Add, cni.Del} {
		members := []map[string]any{
			{"mtu": 1400, "promisc": true}, {"mtu": 1300, "mac": "02:00:00:00:00:01"},
		}
		if verb == cni.Del {
			members[0], members[1] = members[1], members[0]
		}
		for _, m := range members {
			q := r.Request(verb, "c")
			for key, value := range m {
				q.Conf[key] = value
			}
			r.Must(q)
		}
	}
	removeDirs(t, r)
	r.Unchanged(before)
}

// TestFailedADD: a failed ADD of an existing attachment keeps the values that the earlier ADD
// saved.
func TestFailedADD(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"mtu":1400,"sysctl":{"net.core.somaxconn":"5"}`)
	r.Add("c")
	before := r.State()
	r.Conf["txQLen"], r.Conf["mtu"] = 55, 60
	r.Conf["sysctl"] = map[string]string{"net.ipv4.conf.IFNAME.arp_notify": "1"}
	if _, err := r.Do(t.Context(), r.Request(cni.Add, "c")); err == nil {
		t.Error("ADD with MTU 60 succeeded")
	}
	r.Unchanged(before)
}

// endOf ends a container. Its namespace stays open until the end of the test, so that no other
// namespace gets its inode.
func endOf(t *testing.T, r *plugintest.Runtime, container string) {
	t.Helper()
	ns, err := netns.Open(r.Container(container).Path())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	r.Remove(container)
}

// TestReusedContainerID: values saved for a namespace that no longer exists do not affect the next
// namespace of that attachment even without a DEL: neither for the same ADD, nor for an ADD with
// sysctls only.
func TestReusedContainerID(t *testing.T) {
	t.Parallel()
	for _, second := range []map[string]any{
		{"mtu": 1400, "mac": "02:00:00:00:00:01",
			"sysctl": map[string]string{"net.core.somaxconn": "5"}},
		{"sysctl": map[string]string{"net.core.somaxconn": "5"}},
	} {
		r := runtime(t, `,"mtu":1400,"mac":"02:00:00:00:00:01","sysctl":{"net.core.somaxconn":"5"}`)
		r.Container("c").Command("sysctl", "-qw", "net.core.somaxconn=44")
		r.Container("c").Command("ip", "link", "set", "eth0", "mtu", "1450", "address",
			"02:00:00:00:00:99")
		r.Add("c")
		endOf(t, r, "c")
		want := show(t, r, "c")
		somaxconn := value(r, "c", "net.core.somaxconn")
		for _, key := range []string{"mtu", "mac", "sysctl"} {
			delete(r.Conf, key)
		}
		for key, value := range second {
			r.Conf[key] = value
		}
		r.Add("c")
		r.Del("c")
		if diff := cmp.Diff(want, show(t, r, "c")); diff != "" ||
			value(r, "c", "net.core.somaxconn") != somaxconn {
			t.Errorf("somaxconn %s, %s", value(r, "c", "net.core.somaxconn"), diff)
		}
		if left := files(t, r); left != nil {
			t.Errorf("files left: %q", left)
		}
	}
}

// TestUnrestorableValues: DEL succeeds if the interface no longer exists, the saved values are
// broken, or the kernel refuses them. It restores the rest and deletes the saved values. Upstream
// keeps them for ever.
func TestUnrestorableValues(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*plugintest.Runtime){
		"interface gone": func(r *plugintest.Runtime) {
			r.Container("c").Command("ip", "link", "delete", "eth0")
		},
		"broken file": func(r *plugintest.Runtime) {
			put(t, filepath.Join(dir(r), "c_eth0.json"), "{")
		},
		"all files broken": func(r *plugintest.Runtime) {
			for _, name := range files(t, r) {
				put(t, filepath.Join(dir(r), name), "x")
			}
		},
		"impossible MTU": func(r *plugintest.Runtime) {
			put(t, filepath.Join(dir(r), "c_eth0.json"),
				`{"mtu":70000,"txQLen":1000,"mac":"nonsense"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, `,"mtu":1400,"txQLen":55,"sysctl":{"net.core.somaxconn":"5"}`)
			before := value(r, "c", "net.core.somaxconn")
			r.Add("c")
			spoil(r)
			r.Del("c")
			if left := files(t, r); left != nil {
				t.Errorf("files left: %q", left)
			}
			if got := value(r, "c", "net.core.somaxconn"); name != "all files broken" &&
				got != before {
				t.Errorf("somaxconn %s", got)
			}
			if strings.Contains(name, "MTU") && show(t, r, "c").TxQLen != 1000 {
				t.Error("the rest is not restored")
			}
		})
	}
}

// TestDELWithoutNamespace: DEL without a namespace deletes the saved values.
func TestDELWithoutNamespace(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"mtu":1400,"sysctl":{"net.core.somaxconn":"5"}`)
	r.Add("c")
	if files(t, r) == nil {
		t.Error("ADD has saved nothing")
	}
	del := r.Request(cni.Del, "c")
	r.Remove("c")
	r.Must(del)
	if left := files(t, r); left != nil {
		t.Errorf("files left: %q", left)
	}
}

// TestGC: GC deletes the saved values of containers that no longer exist, and restores them if the
// namespace still exists. Other networks and the upstream plugin share the directory; their values
// stay.
func TestGC(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"mtu":1400,"sysctl":{"net.core.somaxconn":"5"}`)
	before := show(t, r, "alive")
	somaxconn := value(r, "alive", "net.core.somaxconn")
	for _, container := range []string{"kept", "alive", "gone"} {
		r.Add(container)
	}
	foreign := filepath.Join(dir(r), "foreign_eth0.json")
	put(t, foreign, `{"mtu":1500}`)
	other := r.Request(cni.Add, "other")
	other.Conf["name"] = "other"
	r.Must(other)
	r.Remove("gone")
	put(t, filepath.Join(dir(r), ".tenon", "nonsense"), "x") // not ours

	r.Must(r.Collect("kept"))
	for container, want := range map[string]bool{
		"kept": true, "alive": false, "gone": false, "foreign": true, "other": true,
	} {
		if got := remembered(t, r, container); (got != "") != want {
			t.Errorf("%s: %q", container, got)
		}
	}
	if left := files(t, r); len(left) != 6 {
		t.Errorf("left: %q", left)
	}
	if diff := cmp.Diff(before, show(t, r, "alive")); diff != "" ||
		value(r, "alive", "net.core.somaxconn") != somaxconn {
		t.Errorf("somaxconn %s, %s", value(r, "alive", "net.core.somaxconn"), diff)
	}
	r.Check("kept")
	other.Command = cni.Del
	r.Must(other)
	if got := show(t, r, "other"); got.MTU != 1500 {
		t.Errorf("MTU of another network's container %d", got.MTU)
	}
}

// TestGCOfDrafts: GC removes incomplete files of killed ADDs, but not files that an ADD of another
// network, or of a valid attachment, may be writing.
func TestGCOfDrafts(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"mtu":1400`)
	r.Add("kept")
	before := files(t, r)
	draft := func(network, container string) string {
		owner := cni.Attachment{Network: network, Container: container, IfName: "eth0"}.Owner()
		return ".tenon/." + string(owner) + "0123456789"
	}
	kept := r.Request(cni.Add, "kept").ContainerID
	for _, name := range []string{
		draft("net", "killed"), draft("net", kept), draft("other", "killed"),
	} {
		put(t, filepath.Join(dir(r), name), "{")
	}
	r.Must(r.Collect("kept"))
	want := append(before, draft("net", kept), draft("other", "killed"))
	left := files(t, r)
	slices.Sort(want)
	slices.Sort(left)
	if diff := cmp.Diff(want, left); diff != "" {
		t.Error(diff)
	}
}

// TestGCOfAnotherNamespace: GC does not change another container that got the same namespace path.
func TestGCOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"mtu":1400,"sysctl":{"net.core.somaxconn":"5"}`)
	r.Add("c")
	endOf(t, r, "c")
	r.Container("c").Command("ip", "link", "set", "eth0", "mtu", "1300")
	r.Must(r.Collect())
	if show(t, r, "c").MTU != 1300 || files(t, r) != nil {
		t.Errorf("MTU %d, files %q", show(t, r, "c").MTU, files(t, r))
	}
}

// TestEarlierBoot: values of an earlier boot are not restored, and GC deletes them.
func TestEarlierBoot(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"mtu":1400`)
	r.Add("c")
	for _, name := range files(t, r) {
		setBoot(t, filepath.Join(dir(r), name))
	}
	r.Del("c")
	if got := show(t, r, "c").MTU; got != 1400 {
		t.Errorf("MTU %d", got)
	}
	r.Add("c")
	for _, name := range files(t, r) {
		setBoot(t, filepath.Join(dir(r), name))
	}
	r.Must(r.Collect("c"))
	if left := files(t, r); left != nil {
		t.Errorf("left: %q", left)
	}
}

// TestReference: Tenon restores the changes of the upstream plugin and vice versa, and both print
// the same results in every version that both support. Debian's version has neither txQLen nor
// IFNAME.
func TestReference(t *testing.T) {
	t.Parallel()
	const everything = `,"mac":"02:00:00:aa:bb:cc","mtu":1400,"promisc":true,"allmulti":true,"sysctl":{"net.core.somaxconn":"5"}`
	for _, row := range []struct{ name, members string }{
		{"everything", everything},
		{"from arguments",
			`,"sysctl":{"net.core.somaxconn":"7"},"args":{"cni":{"mac":"02:00:00:aa:bb:cc","mtu":1400,"promisc":true,"allmulti":true,"sysctl":{"net.core.somaxconn":"5"}}}`},
		{"precedence of MAC",
			`,"mac":"02:00:00:00:00:01","runtimeConfig":{"mac":"02:00:00:00:00:02"},"args":{"cni":{"mac":"02:00:00:00:00:03"}}`},
		{"capability", `,"mac":"02:00:00:00:00:01","runtimeConfig":{"mac":"02:00:00:00:00:02"}`},
		{"sysctls", `,"sysctl":{"net.ipv4.conf.eth0.arp_notify":"1","net/core/somaxconn":"55"}`},
		{"off", `,"allmulti":false,"promisc":false,"mtu":0`},
	} {
		for _, version := range []cni.Version{cni.V031, cni.V040, cni.V100} {
			t.Run(row.name+" "+version.String(), func(t *testing.T) {
				t.Parallel()
				referenceRow(t, row.members, version)
			})
		}
	}
}

func referenceRow(t *testing.T, members string, version cni.Version) {
	t.Helper()
	var results, effects, remembers []string
	for _, adds := range []string{"tenon", "reference"} {
		r := runtime(t, members)
		r.Conf["cniVersion"] = version.String()
		call := func(who string, verb cni.Command) json.RawMessage {
			q := r.Request(verb, "c")
			if prev, ok := q.Conf["prevResult"].(json.RawMessage); ok {
				q.Conf["prevResult"] = withoutMTU(t, prev)
			}
			if who == "reference" {
				return r.Foreign(reference, q)
			}
			return r.Must(q)
		}
		for _, takesOver := range []string{"tenon", "reference"} {
			want := show(t, r, "c")
			result := call(adds, cni.Add)
			results = append(results, strings.ReplaceAll(compact(t, result), r.Container("c").
				Path(), "NETNS"))
			effect, err := json.Marshal(show(t, r, "c"))
			if err != nil {
				t.Fatal(err)
			}
			effects = append(effects, string(effect)+value(r, "c", "net.core.somaxconn")+value(r,
				"c", "net.ipv4.conf.eth0.arp_notify"))
			remembers = append(remembers, remembered(t, r, "c"))
			if version.Has(cni.Check) && !strings.Contains(members, "promisc\":false") {
				q := r.Request(cni.Check, "c")
				q.Conf["prevResult"] = json.RawMessage(result)
				r.Must(q)
				r.Foreign(reference, q)
			}
			call(takesOver, cni.Del)
			if diff := cmp.Diff(want, show(t, r, "c")); diff != "" || remembered(t, r, "c") != "" {
				t.Errorf("added by %s, deleted by %s: file %q, %s", adds, takesOver,
					remembered(t, r, "c"), diff)
			}
			call("tenon", cni.Del) // deletes the values that upstream does not save
			if left := files(t, r); left != nil {
				t.Errorf("left: %q", left)
			}
			r.Remove("c")
		}
	}
	for _, list := range [][]string{results, effects, remembers} {
		for _, other := range list[1:] {
			if diff := cmp.Diff(list[0], other); diff != "" {
				t.Error(diff)
			}
		}
	}
}

// reference is the directory of the upstream plugins.
const reference = "/usr/lib/cni"

// withoutMTU removes the MTU from a result, because Debian's upstream plugin cannot repeat it.
func withoutMTU(t *testing.T, raw json.RawMessage) json.RawMessage {
	t.Helper()
	r, err := cni.DecodeResult(raw, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Interfaces {
		r.Interfaces[i].MTU = 0
	}
	version, err := cni.ResultVersion(raw, 0)
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.Encode(version)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// setBoot marks a file as one of an earlier boot.
func setBoot(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	statefile.MarkBoot(int(f.Fd()), "an earlier one")
}
