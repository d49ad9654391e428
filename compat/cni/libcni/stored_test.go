package libcni_test

import (
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
)

// RT-DEL-07: DEL uses the configuration of ADD even if the file has changed since.
func TestDelAfterChange(t *testing.T) {
	t.Parallel()
	const added = `{"cniVersion":"1.0.0","name":"red","plugins":[{"type":"first","n":1},{"type":"second"}]}`
	for _, row := range []struct {
		name, changed, missing, calls string
		version                       string // of the requests
	}{
		{"unchanged", added, "", "DEL second, DEL first", "1.0.0"},
		{"another plugin", `{"cniVersion":"1.0.0","name":"red","plugins":[{"type":"other"}]}`, "",
			"DEL second, DEL first", "1.0.0"},
		{"another version", strings.Replace(added, "1.0.0", "1.1.0", 1), "",
			"DEL second, DEL first", "1.0.0"},
		{"a plugin was uninstalled",
			`{"cniVersion":"1.0.0","name":"red","plugins":[{"type":"first"}]}`, "second",
			"DEL first", "1.0.0"},
		{"no plugins remain", `{"cniVersion":"1.0.0","name":"red"}`, "",
			"DEL second, DEL first", "1.0.0"},
	} {
		r := newRig(t)
		r.attach(t, parseList(t, added), "c1")
		r.fake.missing = row.missing
		if err := r.DelNetworkList(t.Context(), parseList(t, row.changed), runtimeConf()); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
		t.Log(row.name)
		for _, c := range r.fake.want(t, row.calls) {
			if !strings.Contains(c.stdin, `"cniVersion":"`+row.version+`"`) {
				t.Errorf("%s: %s, want version %s", row.name, c.stdin, row.version)
			}
			if c.typ == "first" && row.missing == "" && !strings.Contains(c.stdin, `"n":1`) {
				t.Errorf("%s: %s", row.name, c.stdin)
			}
		}
		if got := r.cached(t); got != "" {
			t.Errorf("%s: files %s", row.name, got)
		}
	}
}

// The fields of the caller's list are authoritative if its document is the cached one, because
// callers change them; plugins from other files are not in the cached document.
func TestDelKeepsCallersPlugins(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "red/1.conf", `{"type":"extra"}`)
	load := func(plugins string) *libcni.NetworkConfigList {
		path := write(t, dir, "red.conflist", `{"cniVersion":"1.0.0","name":"red"`+plugins+`}`)
		n, err := libcni.NetworkConfFromFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	r := newRig(t)
	n := load(`,"plugins":[{"type":"first"}]`)
	r.attach(t, n, "c1", "c2")
	n.Plugins = n.Plugins[:1]
	if err := r.DelNetworkList(t.Context(), n, runtimeConf()); err != nil {
		t.Error(err)
	}
	r.fake.want(t, "DEL first")
	rt := runtimeConf()
	rt.ContainerID = "c2"
	changed := load(`,"plugins":[{"type":"other"},{"type":"another"}]`)
	if err := r.DelNetworkList(t.Context(), changed, rt); err != nil {
		t.Error(err)
	}
	r.fake.want(t, "DEL extra, DEL first")
}

// A cached configuration that cannot be used does not prevent DEL.
func TestDelWithUnusableConfig(t *testing.T) {
	t.Parallel()
	for _, config := range []string{"null", `""`, `"e30="`, `"bm9uZQ=="`} {
		r := newRig(t)
		r.write(t, "red-c1-eth0", strings.Replace(cachedFile(result100), `"e30="`, config, 1))
		if err := r.DelNetworkList(t.Context(), list(t, "1.0.0", "first"), runtimeConf()); err != nil {
			t.Errorf("%s: %v", config, err)
		}
		r.fake.want(t, "DEL first")
	}
}

// DEL of a single plugin uses the cached configuration too, and ADD by list and DEL by plugin work
// together.
func TestDelOfSinglePluginAfterChange(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	added := plugin(t, `{"cniVersion":"1.0.0","name":"red","type":"first"}`)
	changed := plugin(t, `{"cniVersion":"1.0.0","name":"red","type":"other"}`)
	if _, err := r.AddNetwork(t.Context(), added, runtimeConf()); err != nil {
		t.Fatal(err)
	}
	if err := r.DelNetwork(t.Context(), changed, runtimeConf()); err != nil {
		t.Error(err)
	}
	r.fake.want(t, "ADD first, DEL first")
	r.attach(t, list(t, "1.0.0", "first"), "c1")
	if err := r.DelNetwork(t.Context(), changed, runtimeConf()); err != nil {
		t.Error(err)
	}
	r.fake.want(t, "DEL other")
	if got := r.cached(t); got != "" {
		t.Errorf("files %s", got)
	}
}
