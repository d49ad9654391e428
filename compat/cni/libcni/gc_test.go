package libcni_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

// attach attaches containers to the network "red" and forgets the calls.
func (r *rig) attach(t *testing.T, n *libcni.NetworkConfigList, ids ...string) {
	t.Helper()
	for _, id := range ids {
		rt := runtimeConf()
		rt.ContainerID = id
		rt.Args = [][2]string{{"ID", id}}
		rt.CapabilityArgs = map[string]any{"n": 12345678901234567, "small": 5}
		if _, err := r.AddNetworkList(t.Context(), n, rt); err != nil {
			t.Fatal(err)
		}
	}
	r.fake.take()
}

// GC runs DEL for the cached attachments that are not valid, with their arguments, and GC of all
// plugins with the valid ones under both keys.
func TestGCNetworkList(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := parseList(t, `{"cniVersion":"1.1.0","name":"red","plugins":[
		{"type":"first","capabilities":{"n":true}},{"type":"second"}]}`)
	other := list(t, "1.1.0", "first")
	other.Name = "blue"
	r.attach(t, n, "c1", "c2")
	r.attach(t, other, "c2")
	args := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{
		{ContainerID: "c1", IfName: "eth0"}, {ContainerID: "c2", IfName: "eth1"}}}
	if err := r.GCNetworkList(t.Context(), n, args); err != nil {
		t.Fatal(err)
	}
	calls := r.fake.want(t, "DEL second, DEL first, GC first, GC second")
	if got := r.cached(t); got != "blue-c2-eth0 red-c1-eth0" {
		t.Errorf("files %s", got)
	}
	for name, want := range map[string]string{"CNI_CONTAINERID": "c2", "CNI_IFNAME": "eth0",
		"CNI_NETNS": "/run/netns/x", "CNI_ARGS": "ID=c2"} {
		if got := calls[1].env[name]; got != want {
			t.Errorf("%s=%s, want %s", name, got, want)
		}
	}
	if want := `"runtimeConfig":{"n":12345678901234567}`; !strings.Contains(calls[1].stdin, want) {
		t.Errorf("DEL: %s, want %s in it", calls[1].stdin, want)
	}
	const valid = `[{"containerID":"c1","ifname":"eth0"},{"containerID":"c2","ifname":"eth1"}]`
	wantJSON(t, calls[3].stdin, `{"cniVersion":"1.1.0","name":"red","type":"second",
		"cni.dev/valid-attachments":`+valid+`,"cni.dev/attachments":`+valid+`}`)
	for _, name := range []string{"CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS", "CNI_ARGS"} {
		if got := calls[3].env[name]; got != "" {
			t.Errorf("GC: %s=%s", name, got)
		}
	}
}

// Nil arguments mean that nothing is valid.
func TestGCArguments(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		args *libcni.GCArgs
		want string
	}{
		{"nil", nil, ``},
		{"a nil list", &libcni.GCArgs{},
			`,"cni.dev/valid-attachments":null,"cni.dev/attachments":null`},
		{"an empty list", &libcni.GCArgs{ValidAttachments: []types.GCAttachment{}},
			`,"cni.dev/valid-attachments":[],"cni.dev/attachments":[]`},
	} {
		r := newRig(t)
		n := list(t, "1.1.0", "first")
		r.attach(t, n, "c1")
		if err := r.GCNetworkList(t.Context(), n, row.args); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
		calls := r.fake.want(t, "DEL first, GC first")
		wantJSON(t, calls[1].stdin, `{"cniVersion":"1.1.0","name":"red","type":"first"`+row.want+`}`)
		if got := r.cached(t); got != "" {
			t.Errorf("%s: files %s", row.name, got)
		}
	}
}

func TestGCConditions(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, version string
		disabled      bool
		calls, want   string
	}{
		{"1.1.0", "1.1.0", false, "DEL first, GC first", ""},
		{"1.0.0", "1.0.0", false, "DEL first", ""},
		{"disabled", "1.1.0", true, "", ""},
		{"a bad version", "1.1.x", false, "",
			`failed to convert micro version part "x": strconv.Atoi: parsing "x": invalid syntax`},
	} {
		r := newRig(t)
		r.attach(t, list(t, "1.1.0", "first"), "c1")
		n := list(t, row.version, "first")
		n.DisableGC = row.disabled
		wantError(t, r.GCNetworkList(t.Context(), n, nil), row.want)
		r.fake.want(t, row.calls)
	}
}

// GC continues past failures: of DEL, of a request that cannot be built, and of plugins.
func TestGCFails(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := list(t, "1.1.0", "first", "second", "third", "fourth")
	r.attach(t, n, "c1", "c2")
	failure := types.NewError(11, "busy", "")
	r.fake.fail["DEL third"] = failure
	r.fake.fail["GC third"] = errors.New("no")
	n.Plugins[1].Bytes = []byte("}")
	r.fake.missing = "first"
	err := r.GCNetworkList(t.Context(), n, nil)
	const stale = "failed to delete stale attachment "
	const del = ` eth0: plugin type="third" failed (delete): busy`
	wantError(t, err, stale+"c1"+del+"\n"+stale+"c2"+del+"\n"+
		`failed to GC plugin first: failed to find plugin "first" in path [/one /two]`+"\n"+
		"failed to generate configuration to GC plugin second: unmarshal existing network bytes: "+
		"invalid character '}' looking for beginning of value\nfailed to GC plugin third: no")
	if !errors.Is(err, failure) {
		t.Errorf("%#v", err)
	}
	r.fake.want(t, "DEL fourth, DEL third, DEL fourth, DEL third, GC third, GC fourth")
}

// GC returns an error, and runs no plugin, if the cache cannot be listed.
func TestGCWithUnreadableCache(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	write(t, r.dir, "results", "a file")
	err := r.GCNetworkList(t.Context(), list(t, "1.1.0", "first"), nil)
	if err == nil || !strings.HasPrefix(err.Error(), "failed to list cached attachments: ") {
		t.Errorf("got %v", err)
	}
	if _, err := r.GetCachedAttachments(""); err == nil {
		t.Error("the attachments are listed")
	}
	r.fake.want(t, "")
}

func TestGetStatusNetworkList(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := parseList(t, `{"cniVersion":"1.1.0","name":"red","plugins":[
		{"type":"first","capabilities":{"mac":true}},{"type":"second"},{"type":"third"}]}`)
	if err := r.GetStatusNetworkList(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	calls := r.fake.want(t, "STATUS first, STATUS second, STATUS third")
	wantJSON(t, calls[0].stdin,
		`{"capabilities":{"mac":true},"cniVersion":"1.1.0","name":"red","type":"first"}`)
	for _, name := range []string{"CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS", "CNI_ARGS"} {
		if got := calls[0].env[name]; got != "" {
			t.Errorf("%s=%s", name, got)
		}
	}
	failure := types.NewError(types.ErrPluginNotAvailable, "not ready", "")
	r.fake.fail["STATUS second"] = failure
	if err := r.GetStatusNetworkList(t.Context(), n); err != error(failure) {
		t.Errorf("got %#v", err)
	}
	r.fake.want(t, "STATUS first, STATUS second")
	for version, want := range map[string]string{
		"1.0.0": "", "": "",
		"x": `failed to convert major version part "x": strconv.Atoi: parsing "x": invalid syntax`,
	} {
		wantError(t, r.GetStatusNetworkList(t.Context(), list(t, version, "first")), want)
	}
	r.fake.want(t, "")
	n.Plugins[0].Bytes = []byte("null")
	wantError(t, r.GetStatusNetworkList(t.Context(), n), "failed to generate configuration to get "+
		"plugin STATUS first: unmarshal existing network bytes: the configuration is null")
	n.Plugins[0] = nil
	wantError(t, r.GetStatusNetworkList(t.Context(), n),
		"failed to generate configuration to get plugin STATUS : plugin configuration is missing")
}
