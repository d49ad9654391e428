package libcni_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
)

// A failed ADD runs DEL of the plugins that ran, last first, without previous result, and returns
// the error of the plugin with its prefix.
func TestRollback(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	failure := types.NewError(11, "busy", "try later")
	r.fake.fail["ADD second"] = failure
	n, rt := list(t, "1.0.0", "first", "second", "third"), runtimeConf()
	rt.Args = [][2]string{{"A", "1"}}
	result, err := r.AddNetworkList(t.Context(), n, rt)
	wantError(t, err, `plugin type="second" failed (add): busy; try later`)
	if result != nil || errors.Unwrap(err) != error(failure) {
		t.Errorf("got %v, %#v", result, errors.Unwrap(err))
	}
	calls := r.fake.want(t, "ADD first, ADD second, DEL second, DEL first")
	wantJSON(t, calls[3].stdin, `{"cniVersion":"1.0.0","name":"red","type":"first"}`)
	for name, want := range map[string]string{"CNI_CONTAINERID": "c1", "CNI_IFNAME": "eth0",
		"CNI_NETNS": "/run/netns/x", "CNI_ARGS": "A=1"} {
		if got := calls[3].env[name]; got != want {
			t.Errorf("%s=%s, want %s", name, got, want)
		}
	}
	if got := r.cached(t); got != "" {
		t.Errorf("cache files %s", got)
	}
}

// A plugin that did not run gets no DEL.
func TestRollbackOfMissingPlugin(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fake.missing = "second"
	_, err := r.AddNetworkList(t.Context(), list(t, "1.0.0", "first", "second"), runtimeConf())
	wantError(t, err, `plugin type="second" failed (add): `+
		`failed to find plugin "second" in path [/one /two]`)
	r.fake.want(t, "ADD first, DEL first")
}

// All plugins get DEL even if some fail; the error has the texts and wraps all errors, the first
// one foremost.
func TestFailedRollback(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	add, other := types.NewError(11, "busy", ""), errors.New("stuck")
	r.fake.fail["ADD third"] = add
	r.fake.fail["DEL third"] = types.NewError(5, "broken", "")
	r.fake.fail["DEL first"] = other
	_, err := r.AddNetworkList(t.Context(), list(t, "1.0.0", "first", "second", "third"),
		runtimeConf())
	wantError(t, err, `plugin type="third" failed (add): busy; rollback failed: `+
		`plugin type="third" failed (delete): broken; plugin type="first" failed (delete): stuck`)
	r.fake.want(t, "ADD first, ADD second, ADD third, DEL third, DEL second, DEL first")
	object := (*types.Error)(nil)
	if errors.Unwrap(err) != error(add) || !errors.Is(err, add) ||
		!errors.Is(err, other) || !errors.As(err, &object) || object != add {
		t.Errorf("error %#v, object %#v", err, object)
	}
}

// A single plugin that fails on ADD and DEL alike returns its error unchanged.
func TestFailedRollbackOfSinglePlugin(t *testing.T) {
	t.Parallel()
	net := plugin(t, `{"cniVersion":"1.0.0","name":"red","type":"first"}`)
	for text, want := range map[string]string{
		"no": "no", "other": "no; rollback failed: other",
	} {
		r := newRig(t)
		add, del := errors.New("no"), errors.New(text)
		r.fake.fail["ADD"], r.fake.fail["DEL"] = add, del
		_, err := r.AddNetwork(t.Context(), net, runtimeConf())
		wantError(t, err, want)
		if !errors.Is(err, add) || errors.Is(err, del) != (text == "other") {
			t.Errorf("%s: %#v", text, err)
		}
		r.fake.want(t, "ADD first, DEL first")
	}
}

func TestRollbackOff(t *testing.T) {
	for value, want := range map[string]string{
		"off": "ADD first", "": "ADD first, DEL first", "on": "ADD first, DEL first",
	} {
		t.Setenv("TENON_ROLLBACK", value)
		r := newRig(t)
		r.fake.fail["ADD"] = errors.New("no")
		_, err := r.AddNetworkList(t.Context(), list(t, "1.0.0", "first"), runtimeConf())
		wantError(t, err, `plugin type="first" failed (add): no`)
		r.fake.want(t, want)
	}
}

// DEL would remove the interface of another attachment, so a cache file of the container with this
// interface name prevents rollback.
func TestRollbackOfAttached(t *testing.T) {
	t.Parallel()
	const rolledBack, kept = "ADD first, DEL first", "ADD first"
	entry := func(network, id, ifName string) string {
		return `{"kind":"cniCacheV1","networkName":"` + network + `","containerId":"` + id +
			`","ifName":"` + ifName + `"}`
	}
	for _, row := range []struct{ name, file, content, want string }{
		{"the same attachment", "red-c1-eth0", entry("red", "c1", "eth0"), kept},
		{"another network, the same interface", "blue-c1-eth0", entry("blue", "c1", "eth0"), kept},
		{"another interface", "red-c1-eth1", entry("red", "c1", "eth1"), rolledBack},
		{"another container", "red-c2-eth0", entry("red", "c2", "eth0"), rolledBack},
		{"another container in a file with this name", "red-c1-eth0",
			entry("r", "ed-c1", "eth0"), rolledBack},
		{"a file in the old format", "red-c1-eth0", `{"cniVersion":"0.4.0"}`, kept},
		{"a damaged file of another network", "blue-c1-eth0", ``, kept},
		{"a damaged file of another container", "blue-c2-eth0", ``, rolledBack},
	} {
		r := newRig(t)
		r.fake.fail["ADD"] = errors.New("no")
		path := r.write(t, row.file, row.content)
		_, err := r.AddNetworkList(t.Context(), list(t, "1.0.0", "first"), runtimeConf())
		wantError(t, err, `plugin type="first" failed (add): no`)
		t.Log(row.name)
		r.fake.want(t, row.want)
		if b, err := os.ReadFile(path); err != nil || string(b) != row.content {
			t.Errorf("%s: the file has changed: %s, %v", row.name, b, err)
		}
	}
}

// DEL runs even if the context has ended, with a deadline of its own.
func TestRollbackDeadline(t *testing.T) {
	t.Parallel()
	type key struct{}
	for _, row := range []struct {
		name     string
		canceled bool
		limit    time.Duration
	}{
		{"the context lives", false, time.Minute},
		{"the context has ended", true, 5 * time.Second},
	} {
		r := newRig(t)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		defer cancel()
		start := time.Now()
		r.fake.before = func(ctx context.Context, call exchange) {
			if call.env["CNI_COMMAND"] == "ADD" {
				if row.canceled {
					cancel()
				}
				return
			}
			deadline, _ := ctx.Deadline()
			if ctx.Err() != nil || deadline.Before(start.Add(row.limit)) ||
				deadline.After(time.Now().Add(row.limit)) || ctx.Value(key{}) != "value" {
				t.Errorf("%s: DEL: %v, ends %v after the start, value %v", row.name, ctx.Err(),
					deadline.Sub(start), ctx.Value(key{}))
			}
		}
		r.fake.fail["ADD"] = errors.New("refused")
		if _, err := r.AddNetworkList(ctx, list(t, "1.0.0", "first"), runtimeConf()); err == nil {
			t.Errorf("%s: no error", row.name)
		}
		r.fake.want(t, "ADD first, DEL first")
	}
}

// ADD is rolled back if its cache file cannot be written.
func TestUnwritableCache(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	write(t, r.dir, "results", "a file instead of the directory")
	result, err := r.AddNetworkList(t.Context(), list(t, "1.0.0", "first", "second"), runtimeConf())
	wantError(t, err, `failed to set network "red" cached result: mkdir `+r.dir+
		`/results: not a directory`)
	if result != nil {
		t.Errorf("result %v", result)
	}
	r.fake.want(t, "ADD first, ADD second, DEL second, DEL first")

	r = newRig(t)
	if err := os.MkdirAll(r.file("red-c1-eth0/x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := r.AddNetworkList(t.Context(), list(t, "1.0.0", "first"), runtimeConf()); err == nil {
		t.Error("a directory was replaced")
	}
	if got := r.cached(t); got != "red-c1-eth0" {
		t.Errorf("files %q", got)
	}
	r.fake.take()

	// The list of attachments is unknown, so DEL could remove one in use.
	r = newRig(t)
	if err := os.Symlink("results", r.file("../results")); err != nil {
		t.Fatal(err)
	}
	r.fake.fail["ADD"] = errors.New("no")
	_, err = r.AddNetworkList(t.Context(), list(t, "1.0.0", "first"), runtimeConf())
	wantError(t, err, `plugin type="first" failed (add): no; rollback failed: `+
		`failed to list cached attachments: open `+filepath.Join(r.dir, "results")+
		`: too many levels of symbolic links`)
	r.fake.want(t, "ADD first")
}

// A crash during the write leaves the earlier file and a draft that programs do not read. The next
// ADD removes the draft.
func TestInterruptedWrite(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := list(t, "1.0.0", "first")
	draft := write(t, r.dir, ".draft-123", `{"kind":"cniCacheV1","containerId":"c1","networkN`)
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(draft, past, past); err != nil {
		t.Fatal(err)
	}
	if attachments, err := r.GetCachedAttachments(""); err != nil || len(attachments) != 0 {
		t.Errorf("attachments %v, %v", attachments, err)
	}
	if _, err := r.AddNetworkList(t.Context(), n, runtimeConf()); err != nil {
		t.Fatal(err)
	}
	if got := r.cached(t); got != "red-c1-eth0" {
		t.Errorf("files %q", got)
	}
}
