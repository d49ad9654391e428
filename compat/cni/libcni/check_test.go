package libcni_test

import (
	"errors"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

const result100 = `{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24"}]}`

// cachedFile is a cache file of the attachment of runtimeConf to the network "red".
func cachedFile(result string) string {
	return `{"kind":"cniCacheV1","containerId":"c1","config":"e30=","ifName":"eth0",` +
		`"networkName":"red","netns":"/other","cniArgs":[["X","Y"]],"capabilityArgs":{"mac":"m"},` +
		`"result":` + result + `}`
}

// Every plugin receives the cached result, and the arguments of the caller.
func TestCheckNetworkList(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.write(t, "red-c1-eth0", cachedFile(result100))
	rt := runtimeConf()
	rt.Args = [][2]string{{"A", "1"}}
	if err := r.CheckNetworkList(t.Context(), list(t, "1.0.0", "first", "second"), rt); err != nil {
		t.Fatal(err)
	}
	for _, c := range r.fake.want(t, "CHECK first, CHECK second") {
		wantJSON(t, c.stdin, `{"cniVersion":"1.0.0","name":"red","type":"`+c.typ+
			`","prevResult":`+result100+`}`)
		for name, want := range map[string]string{"CNI_CONTAINERID": "c1", "CNI_IFNAME": "eth0",
			"CNI_NETNS": "/run/netns/x", "CNI_ARGS": "A=1"} {
			if c.env[name] != want {
				t.Errorf("%s=%s, want %s", name, c.env[name], want)
			}
		}
	}
}

// The version is tested first, then whether CHECK is disabled, then the cache.
func TestCheckConditions(t *testing.T) {
	t.Parallel()
	const failed = `failed to get network "red" cached result: `
	for _, row := range []struct {
		name, version, file string
		disabled            bool
		calls, want         string
	}{
		{"0.4.0", "0.4.0", cachedFile(result100), false, "CHECK first", ""},
		{"0.3.1", "0.3.1", "", false, "",
			`configuration version "0.3.1" does not support the CHECK command`},
		{"0.3.1, disabled", "0.3.1", "", true, "",
			`configuration version "0.3.1" does not support the CHECK command`},
		{"no version", "", "", false, "",
			`configuration version "" does not support the CHECK command`},
		{"a bad version", "x.0.0", "", false, "", `failed to convert major version part "x": ` +
			`strconv.Atoi: parsing "x": invalid syntax`},
		{"disabled, with a broken file", "1.0.0", "}", true, "", ""},
		{"no file", "1.0.0", "", false, "CHECK first", ""},
		{"a broken file", "1.0.0", "adfadsfasdfasfdsafaf", false, "",
			failed + "decoding version from network config: invalid character 'a' looking for beginning of value"},
		{"a bare result", "1.0.0", `{"cniVersion":"0.4.0","ips":[]}`, false, "CHECK first", ""},
		{"an unknown version of the result", "1.0.0", cachedFile(`{"cniVersion":"1234.5.6"}`), false,
			"", failed + `unsupported CNI result version "1234.5.6"`},
		{"an unknown version of the network", "7.0.0", cachedFile(result100), false, "", failed +
			`failed to convert cached result to config version "7.0.0": ` +
			"no converter for CNI result version 1.0.0 to 7.0.0"},
		{"no result", "1.0.0", cachedFile("null"), false, "CHECK first", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if row.file != "" {
				r.write(t, "red-c1-eth0", row.file)
			}
			n := list(t, row.version, "first")
			n.DisableCheck = row.disabled
			err := r.CheckNetworkList(t.Context(), n, runtimeConf())
			wantError(t, err, row.want)
			if got := errors.Is(err, libcni.ErrorCheckNotSupp); got !=
				(row.version == "0.3.1" || row.version == "") {
				t.Errorf("matches ErrorCheckNotSupp: %t", got)
			}
			r.fake.want(t, row.calls)
			if row.disabled {
				return
			}
			err = r.CheckNetwork(t.Context(), plugin(t,
				`{"cniVersion":"`+row.version+`","name":"red","type":"first"}`), runtimeConf())
			wantError(t, err, row.want)
			r.fake.want(t, row.calls)
		})
	}
}

// CHECK stops at the first failure and returns it as it is.
func TestCheckFails(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	failure := types.NewError(11, "busy", "")
	r.fake.fail["CHECK second"] = failure
	n := list(t, "1.0.0", "first", "second", "third")
	err := r.CheckNetworkList(t.Context(), n, runtimeConf())
	if err != error(failure) {
		t.Errorf("got %#v", err)
	}
	r.fake.want(t, "CHECK first, CHECK second")
	r.fake.missing = "first"
	wantError(t, r.CheckNetworkList(t.Context(), n, runtimeConf()),
		`failed to find plugin "first" in path [/one /two]`)
	n.Plugins[0] = nil
	wantError(t, r.CheckNetworkList(t.Context(), n, runtimeConf()), "plugin configuration is missing")
	r.fake.want(t, "")
}

// SEC-01: CHECK and DEL refuse names that are paths before they use a file or a plugin.
func TestPathLikeNames(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		network, id, ifName string
		want                string
		code                uint
	}{
		{"../x", "c1", "eth0", `invalid network name "../x"; it must not be a path`, 7},
		{"..", "c1", "eth0", `invalid network name ".."; it must not be a path`, 7},
		{"red", "../../x", "eth0", `invalid container ID "../../x"; it must not be a path`, 4},
		{"red", "c1", "x/eth0", `invalid interface name "x/eth0"; it must not be a path`, 4},
	} {
		r := newRig(t)
		n := list(t, "1.0.0", "first")
		n.Name = row.network
		rt := &libcni.RuntimeConf{ContainerID: row.id, IfName: row.ifName}
		_, cachedErr := r.GetNetworkListCachedResult(n, rt)
		_, _, configErr := r.GetNetworkListCachedConfig(n, rt)
		for verb, err := range map[string]error{
			"DEL": r.DelNetworkList(t.Context(), n, rt), "CHECK": r.CheckNetworkList(t.Context(), n, rt),
			"cached result": cachedErr, "cached config": configErr,
		} {
			object := (*types.Error)(nil)
			if !errors.As(err, &object) || err.Error() != row.want || object.Code != row.code {
				t.Errorf("%s: %v, want %d %s", verb, err, row.code, row.want)
			}
		}
		r.fake.want(t, "")
	}
}
