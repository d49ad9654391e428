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

// dir is where the plugin remembers.
func dir(r *plugintest.Runtime) string { return r.Conf["dataDir"].(string) }

// files lists what the plugin remembers, below its folder.
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

// TestModes: nobody else reads what is remembered, and the folder can be entered, unlike that of the reference plugin.
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
		if info, err := os.Stat(filepath.Join(dir(r), name)); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("folder %s: %v, %v", name, info.Mode(), err)
		}
	}
}

// TestRepeatedADD: what was there before the first ADD is what DEL puts back, where the second asks for more, too. The
// reference plugin remembers what it has itself made.
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
	r.Conf["sysctl"] = map[string]string{"net.ipv4.conf.IFNAME.arp_notify": "1", "net.core.somaxconn": "6"}
	r.Add("c")
	if diff := cmp.Diff("{\n \"mtu\": 1500,\n \"txQLen\": 1000\n}", remembered(t, r, "c")); diff != "" {
		t.Error(diff)
	}
	r.Del("c")
	removeFolders(t, r)
	r.Unchanged(before)
}

// TestTwoInOneChain: two tunings behind one another, and DEL in reverse order.
func TestTwoInOneChain(t *testing.T) {
	t.Parallel()
	r := runtime(t, "")
	r.Container("c")
	before := r.State()
	for _, verb := range []cni.Command{cni.Add, cni.Del} {
		members := []map[string]any{{"mtu": 1400, "promisc": true}, {"mtu": 1300, "mac": "02:00:00:00:00:01"}}
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
	removeFolders(t, r)
	r.Unchanged(before)
}

// TestFailedADD of what is attached leaves what an ADD before has remembered.
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

// endOf ends a container. Its namespace stays until the end of the test, so that no other gets its inode.
func endOf(t *testing.T, r *plugintest.Runtime, container string) {
	t.Helper()
	ns, err := netns.Open(r.Container(container).Path())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	r.Remove(container)
}

// TestContainerComesBack: what is remembered of a namespace that is gone says nothing about the next one, although nobody
// has called DEL: not for the same ADD, and not for one that asks for sysctls alone.
func TestContainerComesBack(t *testing.T) {
	t.Parallel()
	for _, second := range []map[string]any{
		{"mtu": 1400, "mac": "02:00:00:00:00:01", "sysctl": map[string]string{"net.core.somaxconn": "5"}},
		{"sysctl": map[string]string{"net.core.somaxconn": "5"}},
	} {
		r := runtime(t, `,"mtu":1400,"mac":"02:00:00:00:00:01","sysctl":{"net.core.somaxconn":"5"}`)
		r.Container("c").Command("sysctl", "-qw", "net.core.somaxconn=44")
		r.Container("c").Command("ip", "link", "set", "eth0", "mtu", "1450", "address", "02:00:00:00:00:99")
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
		if diff := cmp.Diff(want, show(t, r, "c")); diff != "" || value(r, "c", "net.core.somaxconn") != somaxconn {
			t.Errorf("somaxconn %s, %s", value(r, "c", "net.core.somaxconn"), diff)
		}
		if left := files(t, r); left != nil {
			t.Errorf("files left: %q", left)
		}
	}
}

// TestDELWhatCannotBePutBack: DEL succeeds where the interface is gone, what was remembered is broken, or the kernel refuses
// it, puts back the rest, and forgets. The reference plugin remembers for ever.
func TestDELWhatCannotBePutBack(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*plugintest.Runtime){
		"interface gone": func(r *plugintest.Runtime) { r.Container("c").Command("ip", "link", "delete", "eth0") },
		"broken file":    func(r *plugintest.Runtime) { put(t, filepath.Join(dir(r), "c_eth0.json"), "{") },
		"all is broken": func(r *plugintest.Runtime) {
			for _, name := range files(t, r) {
				put(t, filepath.Join(dir(r), name), "x")
			}
		},
		"no MTU that an interface can have": func(r *plugintest.Runtime) {
			put(t, filepath.Join(dir(r), "c_eth0.json"), `{"mtu":70000,"txQLen":1000,"mac":"nonsense"}`)
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
			if got := value(r, "c", "net.core.somaxconn"); name != "all is broken" && got != before {
				t.Errorf("somaxconn %s", got)
			}
			if strings.Contains(name, "MTU") && show(t, r, "c").TxQLen != 1000 {
				t.Error("the rest is not put back")
			}
		})
	}
}

// TestDELWithoutNamespace is R-39: of a container that is gone nothing is remembered.
func TestDELWithoutNamespace(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"mtu":1400,"sysctl":{"net.core.somaxconn":"5"}`)
	r.Add("c")
	if files(t, r) == nil {
		t.Error("ADD has remembered nothing")
	}
	del := r.Request(cni.Del, "c")
	r.Remove("c")
	r.Must(del)
	if left := files(t, r); left != nil {
		t.Errorf("files left: %q", left)
	}
}

// TestGC: of containers that are gone, with their namespaces or without, nothing is remembered, and where the namespace is
// still there it is put back; the folder is that of other networks and of the reference plugin too, whose stays.
// tuning.md 8
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
	for container, want := range map[string]bool{"kept": true, "alive": false, "gone": false, "foreign": true, "other": true} {
		if got := remembered(t, r, container); (got != "") != want {
			t.Errorf("%s: %q", container, got)
		}
	}
	if left := files(t, r); len(left) != 6 {
		t.Errorf("left: %q", left)
	}
	if diff := cmp.Diff(before, show(t, r, "alive")); diff != "" || value(r, "alive", "net.core.somaxconn") != somaxconn {
		t.Errorf("somaxconn %s, %s", value(r, "alive", "net.core.somaxconn"), diff)
	}
	r.Check("kept")
	other.Command = cni.Del
	r.Must(other)
	if got := show(t, r, "other"); got.MTU != 1500 {
		t.Errorf("MTU of another network's container %d", got.MTU)
	}
}

// TestGCOfDrafts: GC removes what killed ADDs have left half written, but not what an ADD of another network, or of an
// attachment that stays, may be writing.
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
	for _, name := range []string{draft("net", "killed"), draft("net", kept), draft("other", "killed")} {
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

// TestGCOfAnotherNamespace: another container that has got the path is left alone.
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

// TestEarlierBoot: what an earlier boot has left is not put back, and GC forgets it.
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

// TestReference: what the reference plugin has changed Tenon puts back, and the other way round; in every version that both
// have they print the same and do the same. That of Debian knows neither txQLen nor IFNAME.
func TestReference(t *testing.T) {
	t.Parallel()
	const everything = `,"mac":"02:00:00:aa:bb:cc","mtu":1400,"promisc":true,"allmulti":true,"sysctl":{"net.core.somaxconn":"5"}`
	for _, row := range []struct{ name, members string }{
		{"everything", everything},
		{"from arguments", `,"sysctl":{"net.core.somaxconn":"7"},"args":{"cni":{"mac":"02:00:00:aa:bb:cc","mtu":1400,"promisc":true,"allmulti":true,"sysctl":{"net.core.somaxconn":"5"}}}`},
		{"precedence of MAC", `,"mac":"02:00:00:00:00:01","runtimeConfig":{"mac":"02:00:00:00:00:02"},"args":{"cni":{"mac":"02:00:00:00:00:03"}}`},
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
			results = append(results, strings.ReplaceAll(compact(t, result), r.Container("c").Path(), "NETNS"))
			effect, err := json.Marshal(show(t, r, "c"))
			if err != nil {
				t.Fatal(err)
			}
			effects = append(effects, string(effect)+value(r, "c", "net.core.somaxconn")+value(r, "c", "net.ipv4.conf.eth0.arp_notify"))
			remembers = append(remembers, remembered(t, r, "c"))
			if version.Has(cni.Check) && !strings.Contains(members, "promisc\":false") {
				q := r.Request(cni.Check, "c")
				q.Conf["prevResult"] = json.RawMessage(result)
				r.Must(q)
				r.Foreign(reference, q)
			}
			call(takesOver, cni.Del)
			if diff := cmp.Diff(want, show(t, r, "c")); diff != "" || remembered(t, r, "c") != "" {
				t.Errorf("added by %s, deleted by %s: file %q, %s", adds, takesOver, remembered(t, r, "c"), diff)
			}
			call("tenon", cni.Del) // forgets what the reference does not know
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

// reference is the folder of the reference plugins.
const reference = "/usr/lib/cni"

// withoutMTU is a result as the reference plugin of Debian can repeat it.
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

// setBoot makes a file one of an earlier boot.
func setBoot(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	statefile.MarkBoot(int(f.Fd()), "an earlier one")
}
