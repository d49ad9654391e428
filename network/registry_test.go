package network_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// runtime returns a client of another runtime on the host of r, with its own state directory.
func (r *rig) runtime(name string) *network.Client {
	r.t.Helper()
	c := &network.Client{
		Runtime: name, StateDir: filepath.Join(r.t.TempDir(), name), Caller: r.Caller,
		PluginDirs: r.PluginDirs, Log: r.Log,
	}
	c.SetRoot(r.root)
	return c
}

// registered returns the registry of the host of r.
func (r *rig) registered() string { return filepath.Join(r.root, network.RegistryDir) }

// mustAttach attaches a container.
func mustAttach(t *testing.T, c *network.Client, n *config.Network, id string) {
	t.Helper()
	if _, err := c.Add(t.Context(), n, request(id)); err != nil {
		t.Fatal(err)
	}
}

// RT-GC-01: GC keeps the attachments of other runtimes: in another state directory, of libcni in
// its default directory, and in damaged records. It keeps them with AllRuntimes too, and does not
// run DEL for a stale record with the key of one of them.
func TestGCKeepsOtherStateDirs(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]network.Keep{
		"none is in use":                keep(),
		"recorded attachments":          {Recorded: true},
		"an empty list of all runtimes": {Attachments: valid(), AllRuntimes: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, map[string]script{"first": {}})
			r.CacheDir = network.NoCacheDir
			n := list(t, "1.1.0", "red", "first")
			one, two := r.runtime("one"), r.runtime("two")
			for id, c := range map[string]*network.Client{"in-one": one, "in-two": two,
				"damaged": two, "shared": two} {
				mustAttach(t, c, n, id)
			}
			mustAttach(t, one, list(t, "1.1.0", "blue", "first"), "elsewhere")
			if err := os.Truncate(recordPath(two, request("damaged").Attachment("red")),
				200); err != nil {
				t.Fatal(err)
			}
			for file, content := range map[string]string{
				"red-by-libcni-eth0": cached(t, request("by-libcni").Attachment("red"),
					firstConfig, ""),
				"red-libcni-damaged-net": "",
				"blue-elsewhere-eth0":    "",
			} {
				path := filepath.Join(r.root, network.DefaultCacheDir, "results", file)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r.addAll(n, "stale", "shared")
			for _, id := range []string{"stale", "shared"} {
				editRecord(t, r.Client, request(id).Attachment("red"), `"attached"`, `"adding"`)
			}
			calls, told := r.collected(n, k)
			if calls != "DEL first, GC first" {
				t.Errorf("calls %s", calls)
			}
			want := append(valid("by-libcni", "damaged", "in-one", "in-two", "shared"),
				cni.ValidAttachment{ContainerID: "libcni", IfName: "damaged-net"},
				cni.ValidAttachment{ContainerID: "libcni-damaged", IfName: "net"})
			for _, list := range [][]cni.ValidAttachment{told, want} {
				slices.SortFunc(list, func(a, b cni.ValidAttachment) int {
					return strings.Compare(a.ContainerID, b.ContainerID)
				})
			}
			if !slices.Equal(told, want) {
				t.Errorf("valid %v\nwant  %v", told, want)
			}
			r.wantRecorded("red/shared/eth0 adding")
		})
	}
}

// The zero value of CacheDir is the directory of libcni.
func TestZeroCacheDir(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	r.CacheDir = filepath.Join(r.root, network.DefaultCacheDir)
	a := request("c1").Attachment("red")
	r.cache("red-c1-eth0", cached(t, a, firstConfig, ""))
	r.CacheDir = ""
	r.wantRecorded("red/c1/eth0 attached")
	r.CacheDir = network.NoCacheDir
	r.wantRecorded()
	r.CacheDir = ""
	if err := r.Del(t.Context(), a, network.Fallback{}); err != nil {
		t.Error(err)
	}
	r.wantRecorded()
}

// LIF-08, RT-GC-10: GC waits for an ADD of a runtime with another state directory, and keeps what
// it attaches.
func TestGCExcludesOtherStateDirs(t *testing.T) {
	t.Parallel()
	h := newHang(t, cni.Add)
	h.Isolated, h.CacheDir = false, network.NoCacheDir
	h.SetRoot(t.TempDir())
	n := list(t, "1.1.0", "red", "slow")
	added := h.add(n)
	other := *h.Client
	other.StateDir = t.TempDir()
	collected := make(chan error, 1)
	go func() { collected <- other.GC(t.Context(), n, keep()) }()
	waitForExclusive(t, h.NetworkLock("red"))
	close(h.leave)
	if err := errors.Join(<-added, <-collected); err != nil {
		t.Error(err)
	}
	log := h.calls.Exchanges()
	if len(log) != 2 || log[1].Call.Env.Command != cni.GC {
		t.Fatalf("calls %v", log)
	}
	if v, err := cni.DecodeValidAttachments(log[1].Call.Stdin); err != nil ||
		!slices.Equal(v, valid("c1")) {
		t.Errorf("valid %v, %v", v, err)
	}
}

// A runtime that registers its state directory during a GC attaches after the GC, which cannot know
// it.
func TestRegistrationWaitsForGC(t *testing.T) {
	t.Parallel()
	h := newHang(t, cni.GC)
	h.Isolated, h.CacheDir = false, network.NoCacheDir
	root := t.TempDir()
	h.SetRoot(root)
	n := list(t, "1.1.0", "red", "slow")
	collected := h.enter(func() error { return h.GC(t.Context(), n, keep()) })
	other := *h.Client
	other.StateDir = t.TempDir()
	added := make(chan error, 1)
	go func() {
		_, err := other.Add(t.Context(), n, request("c1"))
		added <- err
	}()
	waitForExclusive(t, filepath.Join(root, network.RegistryDir)+".lock")
	if log := h.calls.Exchanges(); len(log) > 0 {
		t.Errorf("calls %v", log)
	}
	close(h.leave)
	if err := errors.Join(<-collected, <-added); err != nil {
		t.Error(err)
	}
}

// GC that cannot lock another state directory in time deletes nothing and returns an error.
func TestGCOtherStateDirBusy(t *testing.T) {
	t.Parallel()
	h := newHang(t, cni.Add)
	h.Isolated, h.CacheDir = false, network.NoCacheDir
	h.SetRoot(t.TempDir())
	n := list(t, "1.1.0", "red", "slow")
	added := h.add(n)
	other := *h.Client
	other.StateDir = t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := other.GC(ctx, n, keep()); !strings.Contains(describe(err), "network red is busy: ") {
		t.Errorf("got %s", describe(err))
	}
	close(h.leave)
	if err := <-added; err != nil {
		t.Error(err)
	}
	if log := h.calls.Exchanges(); len(log) != 1 {
		t.Errorf("calls %v", log)
	}
}

// GC ignores registered state directories that no longer exist, and the next registration removes
// them. If a directory cannot be listed, GC does not call the plugins.
func TestRegistry(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T) (*rig, *config.Network) {
		r := newRig(t, map[string]script{"first": {}})
		n := list(t, "1.1.0", "red", "first")
		mustAttach(t, r.runtime("other"), n, "other")
		r.addAll(n, "own")
		return r, n
	}
	other := func(t *testing.T, r *rig) string {
		t.Helper()
		entries, err := filepath.Glob(r.registered() + "/*")
		if err != nil || len(entries) != 2 {
			t.Fatal(entries, err)
		}
		for _, e := range entries {
			if path, err := os.Readlink(e); err == nil && filepath.Base(path) == "other" {
				return e
			}
		}
		t.Fatal("the other runtime is not registered")
		return ""
	}
	t.Run("a directory that no longer exists", func(t *testing.T) {
		t.Parallel()
		r, n := start(t)
		entry := other(t, r)
		path, err := os.Readlink(entry)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if calls, told := r.collected(n, keep("own")); calls != "GC first" ||
			!slices.Equal(told, valid("own")) {
			t.Errorf("%s, valid %v", calls, told)
		}
		mustAttach(t, r.runtime("third"), n, "third")
		if _, err := os.Lstat(entry); !os.IsNotExist(err) {
			t.Errorf("the entry was not removed: %v", err)
		}
	})
	t.Run("one directory under two names", func(t *testing.T) {
		t.Parallel()
		r, n := start(t)
		for name, path := range map[string]string{"x": r.StateDir, "y": r.StateDir + "/../state"} {
			if err := os.Symlink(path, filepath.Join(r.registered(), name)); err != nil {
				t.Fatal(err)
			}
		}
		if calls, told := r.collected(n, keep("own")); calls != "GC first" ||
			!slices.Equal(told, valid("own", "other")) {
			t.Errorf("%s, valid %v", calls, told)
		}
	})
	for name, damage := range map[string]func(entry string) error{
		"a file instead of a link": func(entry string) error {
			return os.WriteFile(entry, nil, 0o600)
		},
		"a link to a file": func(entry string) error { return os.Symlink("/proc/self/status", entry) },
		"a link to itself": func(entry string) error { return os.Symlink(entry, entry) },
		"a directory that cannot be listed": func(entry string) error {
			dir := entry + ".dir"
			return errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(dir+"/records", nil, 0o600),
				os.Symlink(dir, entry))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, n := start(t)
			r.addAll(n, "stale")
			if err := damage(filepath.Join(r.registered(), "damaged")); err != nil {
				t.Fatal(err)
			}
			if err := r.GC(t.Context(), n, keep("own")); cni.CodeOf(err) != cni.CodeIOFailure {
				t.Errorf("got %s", describe(err))
			}
			r.wantCalls("DEL first")
			r.wantRecorded("red/own/eth0 attached")
		})
	}
	t.Run("the registry cannot be created", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, map[string]script{"first": {}})
		if err := os.WriteFile(filepath.Join(r.root, "run"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		n := list(t, "1.1.0", "red", "first")
		r.addAll(n, "own")
		if !strings.Contains(r.log.String(), "cannot register the state directory") {
			t.Errorf("log:\n%s", r.log)
		}
		if err := r.GC(t.Context(), n, keep("own")); cni.CodeOf(err) != cni.CodeIOFailure {
			t.Errorf("got %s", describe(err))
		}
		r.wantCalls("")
	})
	t.Run("an isolated client", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, map[string]script{"first": {}})
		r.Isolated = true
		r.addAll(list(t, "1.1.0", "red", "first"), "own")
		if made, err := os.ReadDir(r.root); err != nil || len(made) > 0 {
			t.Errorf("%v, %v", made, err)
		}
	})
}

// collectorArg makes the test binary the runtime of a plugin that runs GC of network red: see
// TestNestedGC.
const collectorArg = "collector"

func runAsCollector(args []string) bool {
	if len(args) != 5 || args[1] != collectorArg {
		return false
	}
	c := &network.Client{Runtime: "inner", StateDir: args[2], PluginDirs: []string{args[3]},
		Caller: invoke.Process{Stderr: os.Stderr}}
	c.SetRoot(args[4])
	n, err := config.LoadBytes([]byte(`{"cniVersion":"1.1.0","name":"red","plugins":[{"type":"first"}]}`))
	if err == nil {
		err = c.GC(context.Background(), n, keep())
	}
	if err != nil {
		panic(err)
	}
	return true
}

// A plugin that runs networks is called by GC of its runtime, which holds the locks of all state
// directories. GC of the plugin's own client does not wait for them.
func TestNestedGC(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	inner := r.runtime("inner")
	mustAttach(t, inner, list(t, "1.1.0", "red", "first"), "inner")
	r.shell("meta", `case $CNI_COMMAND in
ADD) echo '{"cniVersion":"1.1.0"}' ;;
GC) exec `+exe+` `+collectorArg+` `+inner.StateDir+` "$dir" `+r.root+` ;;
esac`)
	r.addAll(list(t, "1.1.0", "red", "meta"), "own")
	if err := r.GC(t.Context(), list(t, "1.1.0", "red", "meta"), keep("own")); err != nil {
		t.Error(err)
	}
	r.wantCalls("DEL first, GC first")
}

// TestListHost: the records of all runtimes, each with its state directory.
func TestListHost(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	n := list(t, "1.1.0", "red", "first")
	mustAttach(t, r.Client, n, "own")
	other := r.runtime("other")
	mustAttach(t, other, n, "own")
	found, err := r.ListHost()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, rec := range found {
		got = append(got, rec.Attachment.String()+" "+rec.Runtime+" "+rec.StateDir)
	}
	want := []string{"red/own/eth0  " + r.StateDir, "red/own/eth0 other " + other.StateDir}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}

	if err := os.Truncate(recordPath(other, request("own").Attachment("red")), 9); err != nil {
		t.Fatal(err)
	}
	if found, err = r.ListHost(); len(found) != 1 || !errors.Is(err, network.ErrUnreadable) {
		t.Errorf("with a damaged record: %v, %v", found, err)
	}
	other.Isolated = true
	if found, err = other.ListHost(); len(found) != 0 || err == nil {
		t.Errorf("isolated: %v, %v", found, err)
	}
}

// TestRepairHost: Repair repairs the attachments of all runtimes of the host.
func TestRepairHost(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	n := list(t, "1.1.0", "red", "first")
	mustAttach(t, r.Client, n, "own")
	other := r.runtime("other")
	mustAttach(t, other, n, "theirs")
	mustAttach(t, other, list(t, "1.1.0", "blue", "first"), "theirs")
	wantRepaired(t, r.Client, "first blue/theirs", "first red/own", "first red/theirs")
	other.Isolated = true
	wantRepaired(t, other, "first blue/theirs", "first red/theirs")

	// It locks the networks of the other runtimes.
	other.Timeout = time.Millisecond
	_, err := r.Repair(t.Context(), nil, func(ctx context.Context, _ []invoke.Call) error {
		if calls, _, err := repaired(t, other); cni.CodeOf(err) != cni.CodeTryAgainLater {
			t.Errorf("during the repair of the host: %q, %v", calls, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestRecordDirs: the directories of all runtimes, of libcni and of the registry itself.
func TestRecordDirs(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	other := r.runtime("other")
	mustAttach(t, other, list(t, "1.1.0", "red", "first"), "web")
	r.Isolated = false
	r.CacheDir = filepath.Join(r.root, "cache")
	got, err := r.RecordDirs()
	want := []string{r.registered(), filepath.Join(other.StateDir, "records"),
		filepath.Join(r.StateDir, "records"), filepath.Join(r.CacheDir, "results")}
	slices.Sort(got)
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	r.Isolated, r.CacheDir = true, network.NoCacheDir
	want = []string{filepath.Join(r.StateDir, "records")}
	if got, err := r.RecordDirs(); err != nil || !slices.Equal(got, want) {
		t.Errorf("isolated: got %v, %v, want %v", got, err, want)
	}
}

// TestRepairAttachments: only the chosen attachments are repaired, of all runtimes, also if records
// of others are damaged.
func TestRepairAttachments(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	r.CacheDir = network.NoCacheDir
	n := list(t, "1.1.0", "red", "first")
	other := r.runtime("other")
	mustAttach(t, r.Client, n, "web")
	mustAttach(t, r.Client, n, "damaged")
	mustAttach(t, r.Client, n, "db")
	mustAttach(t, other, n, "elsewhere")
	if err := os.Truncate(recordPath(r.Client, request("damaged").Attachment("red")), 200); err != nil {
		t.Fatal(err)
	}
	var got []string
	skipped, err := r.RepairAttachments(t.Context(), []cni.Attachment{
		request("web").Attachment("red"), request("elsewhere").Attachment("red"),
		request("unknown").Attachment("red"),
	}, func(_ context.Context, calls []invoke.Call) error {
		for _, c := range calls {
			got = append(got, c.Env.ContainerID)
		}
		return nil
	})
	slices.Sort(got)
	if err != nil || len(skipped) > 0 || !slices.Equal(got, []string{"elsewhere", "web"}) {
		t.Errorf("repaired %v, skipped %v, error %v", got, skipped, err)
	}
}
