package libcni_test

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

// ADD passes the result of each plugin to the next one, returns the last, and writes the cache file
// that libcni writes.
func TestAddNetworkList(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fake.output["ADD second"] = `{"ips":[{"address":"10.1.2.3/24"}],"dns":{"domain":"x"}}`
	n := list(t, "1.0.0", "first", "second", "third")
	rt := runtimeConf()
	rt.Args = [][2]string{{"A", "1"}}
	rt.CapabilityArgs = map[string]any{"mac": "02:00:00:00:00:01"}
	result, err := r.AddNetworkList(t.Context(), n, rt)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24"}],"dns":{"domain":"x"}}`
	wantJSON(t, resultText(t, result), want)
	calls := r.fake.want(t, "ADD first, ADD second, ADD third")
	for i, previous := range []string{
		"", `,"prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24"}]}`,
		`,"prevResult":` + want,
	} {
		wantJSON(t, calls[i].stdin,
			`{"cniVersion":"1.0.0","name":"red","type":"`+calls[i].typ+`"`+previous+`}`)
	}
	b, err := os.ReadFile(r.file("red-c1-eth0"))
	if err != nil {
		t.Fatal(err)
	}
	const start = `{"kind":"cniCacheV1","containerId":"c1","config":"`
	const end = `","ifName":"eth0","networkName":"red","netns":"/run/netns/x",` +
		`"cniArgs":[["A","1"]],"capabilityArgs":{"mac":"02:00:00:00:00:01"},"result":{`
	if !strings.HasPrefix(string(b), start) || !strings.Contains(string(b), end) {
		t.Errorf("file %s", b)
	}
	cached, err := r.GetNetworkListCachedResult(n, rt)
	if err != nil {
		t.Fatal(err)
	}
	wantJSON(t, resultText(t, cached), want)
	config, restored, err := r.GetNetworkListCachedConfig(n,
		&libcni.RuntimeConf{ContainerID: "c1", IfName: "eth0", NetNS: "other"})
	if err != nil || string(config) != string(n.Bytes) {
		t.Errorf("config %s, %v", config, err)
	}
	wantRT := *rt
	wantRT.NetNS = "other"
	if !reflect.DeepEqual(restored, &wantRT) {
		t.Errorf("restored %+v, want %+v", restored, &wantRT)
	}
	for _, id := range []string{"", "c1"} {
		attachments, err := r.GetCachedAttachments(id)
		want := []*libcni.NetworkAttachment{{ContainerID: "c1", Network: "red", IfName: "eth0",
			Config: n.Bytes, NetNS: "/run/netns/x", CniArgs: rt.Args,
			CapabilityArgs: rt.CapabilityArgs}}
		if err != nil || !reflect.DeepEqual(attachments, want) {
			t.Errorf("ID %q: %+v, %v", id, attachments, err)
		}
	}
}

// ADD of a single plugin returns the error of the plugin itself.
func TestAddNetwork(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	net := plugin(t, `{"cniVersion":"0.4.0","name":"red","type":"first","x":1}`)
	rt := runtimeConf()
	result, err := r.AddNetwork(t.Context(), net, rt)
	if err != nil {
		t.Fatal(err)
	}
	calls := r.fake.want(t, "ADD first")
	wantJSON(t, calls[0].stdin, `{"cniVersion":"0.4.0","name":"red","type":"first","x":1}`)
	cached, err := r.GetNetworkCachedResult(net, rt)
	if err != nil || resultText(t, cached) != resultText(t, result) {
		t.Errorf("cached %s, %v; want %s", resultText(t, cached), err, resultText(t, result))
	}
	config, restored, err := r.GetNetworkCachedConfig(net, rt)
	if err != nil || string(config) != string(net.Bytes) || !reflect.DeepEqual(restored, rt) {
		t.Errorf("cached %s, %+v, %v", config, restored, err)
	}

	r = newRig(t)
	failure := types.NewError(123, "plugin says no", "")
	r.fake.fail["ADD"] = failure
	result, err = r.AddNetwork(t.Context(), net, rt)
	if result != nil || err != error(failure) {
		t.Errorf("got %v, %#v", result, err)
	}
	if got := r.cached(t); got != "" {
		t.Errorf("cache files %s", got)
	}
}

// The constructor chooses the cache directory, else the arguments do, else the variable.
func TestCacheDir(t *testing.T) {
	net := plugin(t, `{"cniVersion":"1.0.0","name":"red","type":"first"}`)
	rt := runtimeConf()
	rt.CacheDir = t.TempDir()
	r := newRig(t)
	other := libcni.NewCNIConfig([]string{"/one"}, r.fake)
	saved := libcni.CacheDir
	t.Cleanup(func() { libcni.CacheDir = saved })
	if saved != "/var/lib/cni" {
		t.Errorf("default %s", saved)
	}
	libcni.CacheDir = t.TempDir()
	for _, row := range []struct {
		name string
		c    *libcni.CNIConfig
		rt   *libcni.RuntimeConf
		dir  string
	}{
		{"constructor", r.CNIConfig, rt, r.dir}, {"arguments", other, rt, rt.CacheDir},
		{"variable", other, runtimeConf(), libcni.CacheDir},
	} {
		if _, err := row.c.AddNetwork(t.Context(), net, row.rt); err != nil {
			t.Fatal(err)
		}
		path := row.dir + "/results/red-c1-eth0"
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
		if result, err := row.c.GetNetworkCachedResult(net, row.rt); result == nil || err != nil {
			t.Errorf("%s: %v, %v", row.name, result, err)
		}
		if err := row.c.DelNetwork(t.Context(), net, row.rt); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s: DEL left the file", row.name)
		}
	}
}

func TestAddRefuses(t *testing.T) {
	t.Parallel()
	const prefix = `plugin type="first" failed (add): `
	for _, row := range []struct {
		name string
		edit func(n *libcni.NetworkConfigList, rt *libcni.RuntimeConf)
		want string
		code uint
	}{
		{"no container ID", func(_ *libcni.NetworkConfigList, rt *libcni.RuntimeConf) {
			rt.ContainerID = ""
		}, "missing containerID", types.ErrUnknownContainer},
		{"a bad container ID", func(_ *libcni.NetworkConfigList, rt *libcni.RuntimeConf) {
			rt.ContainerID = "a%b"
		}, "invalid characters in containerID; a%b", types.ErrInvalidEnvironmentVariables},
		{"no network name", func(n *libcni.NetworkConfigList, _ *libcni.RuntimeConf) {
			n.Name = ""
		}, "missing network name:", types.ErrInvalidNetworkConfig},
		{"a bad network name", func(n *libcni.NetworkConfigList, _ *libcni.RuntimeConf) {
			n.Name = "../x"
		}, "invalid characters found in network name; ../x", types.ErrInvalidNetworkConfig},
		{"no interface name", func(_ *libcni.NetworkConfigList, rt *libcni.RuntimeConf) {
			rt.IfName = ""
		}, "interface name is empty", types.ErrInvalidEnvironmentVariables},
		{"an interface name with a slash", func(_ *libcni.NetworkConfigList, rt *libcni.RuntimeConf) {
			rt.IfName = "a/b"
		}, "interface name contains / or : or whitespace characters",
			types.ErrInvalidEnvironmentVariables},
		{"no binary", func(n *libcni.NetworkConfigList, rt *libcni.RuntimeConf) {
			n.Plugins[0].Network.Type, rt.ContainerID = "none", ""
		}, `failed to find plugin "none" in path [/one /two]`, 0},
		{"broken bytes", func(n *libcni.NetworkConfigList, _ *libcni.RuntimeConf) {
			n.Plugins[0].Bytes = nil
		}, "unmarshal existing network bytes: unexpected end of JSON input", 0},
		{"a nil plugin", func(n *libcni.NetworkConfigList, _ *libcni.RuntimeConf) {
			n.Plugins[0] = nil
		}, "plugin configuration is missing", 0},
	} {
		r := newRig(t)
		r.fake.missing = "none"
		n, rt := list(t, "1.0.0", "first"), runtimeConf()
		row.edit(n, rt)
		result, err := r.AddNetworkList(t.Context(), n, rt)
		if result != nil || err == nil || !strings.HasSuffix(err.Error(), row.want) ||
			!strings.HasPrefix(err.Error(), "plugin type=") {
			t.Errorf("%s: %v, %v; want %s", row.name, result, err, prefix+row.want)
			continue
		}
		object := (*types.Error)(nil)
		if errors.As(err, &object); row.code != 0 && (object == nil || object.Code != row.code) {
			t.Errorf("%s: %#v, want code %d", row.name, object, row.code)
		}
		r.fake.want(t, "")
		if got := r.cached(t); got != "" {
			t.Errorf("%s: cache files %s", row.name, got)
		}
	}
}

// The prefix of an error has the name in the plugin's own configuration.
func TestErrorPrefix(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	failure := errors.New("no")
	r.fake.fail["ADD"], r.fake.fail["DEL"] = failure, failure
	n, err := libcni.ConfListFromConf(plugin(t, `{"cniVersion":"1.0.0","name":"red","type":"first"}`))
	if err != nil {
		t.Fatal(err)
	}
	err = r.DelNetworkList(t.Context(), n, runtimeConf())
	wantError(t, err, `plugin type="first" name="red" failed (delete): no`)
	if errors.Unwrap(err) != failure {
		t.Errorf("unwrapped %#v", errors.Unwrap(err))
	}
}

// An empty list succeeds, runs nothing and has a cache file.
func TestEmptyList(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := parseList(t, `{"cniVersion":"1.0.0","name":"red"}`)
	result, err := r.AddNetworkList(t.Context(), n, runtimeConf())
	if result != nil || err != nil || r.cached(t) != "red-c1-eth0" {
		t.Errorf("%v, %v, files %q", result, err, r.cached(t))
	}
	if err := r.CheckNetworkList(t.Context(), n, runtimeConf()); err != nil {
		t.Error(err)
	}
	if err := r.DelNetworkList(t.Context(), n, runtimeConf()); err != nil || r.cached(t) != "" {
		t.Errorf("%v, files %q", err, r.cached(t))
	}
	r.fake.want(t, "")
}

// ADD returns a result of an older format as it is, and CHECK converts it.
func TestOlderResult(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fake.output["ADD"] = `{"cniVersion":"0.2.0","ip4":{"ip":"10.1.2.3/24"}}`
	n, rt := list(t, "1.0.0", "first"), runtimeConf()
	result, err := r.AddNetworkList(t.Context(), n, rt)
	if err != nil || result.Version() != "0.2.0" {
		t.Fatal(result, err)
	}
	if err := r.CheckNetworkList(t.Context(), n, rt); err != nil {
		t.Fatal(err)
	}
	calls := r.fake.want(t, "ADD first, CHECK first")
	wantJSON(t, calls[1].stdin, `{"cniVersion":"1.0.0","name":"red","type":"first",
		"prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24"}]}}`)
}
