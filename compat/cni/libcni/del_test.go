package libcni_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

// DEL runs the plugins in reverse order with the cached result and removes the file. A second DEL
// succeeds without a result.
func TestDelNetworkList(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.write(t, "red-c1-eth0", cachedFile(result100))
	n := list(t, "1.0.0", "first", "second")
	for _, previous := range []string{`,"prevResult":` + result100, ""} {
		if err := r.DelNetworkList(t.Context(), n, runtimeConf()); err != nil {
			t.Fatal(err)
		}
		for _, c := range r.fake.want(t, "DEL second, DEL first") {
			wantJSON(t, c.stdin,
				`{"cniVersion":"1.0.0","name":"red","type":"`+c.typ+`"`+previous+`}`)
		}
		result, err := r.GetNetworkListCachedResult(n, runtimeConf())
		config, rt, configErr := r.GetNetworkListCachedConfig(n, runtimeConf())
		if result != nil || config != nil || rt != nil || err != nil || configErr != nil ||
			r.cached(t) != "" {
			t.Errorf("left %v, %v, %v, %v, %v", result, config, rt, err, configErr)
		}
	}
}

// DEL works whatever the cache contains: a result that cannot be used is not passed on.
func TestDelWithCache(t *testing.T) {
	t.Parallel()
	converted := strings.Replace(result100, "1.0.0", "0.4.0", 1)
	converted = strings.Replace(converted, `{"address"`, `{"version":"4","address"`, 1)
	for _, row := range []struct {
		name, version, file string
		previous            string
	}{
		{"0.3.1", "0.3.1", cachedFile(result100), ""},
		{"0.4.0", "0.4.0", cachedFile(result100), converted[:len(converted)-1] + `,"dns":{}}`},
		{"no version", "", cachedFile(result100), ""},
		{"garbage", "1.0.0", "garbage", ""},
		{"an empty file", "1.0.0", "\n", ""},
		{"an unknown version", "1.0.0", cachedFile(`{"cniVersion":"1234.5.6"}`), ""},
		{"no result", "1.0.0", cachedFile("null"), ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			text := `{"cniVersion":"` + row.version + `","name":"red","type":"first"`
			for name, del := range map[string]func(*rig) error{
				"list": func(r *rig) error {
					return r.DelNetworkList(t.Context(), list(t, row.version, "first"), runtimeConf())
				},
				"single": func(r *rig) error {
					return r.DelNetwork(t.Context(), plugin(t, text+"}"), runtimeConf())
				},
			} {
				r := newRig(t)
				r.write(t, "red-c1-eth0", row.file)
				if err := del(r); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				want := text
				if row.previous != "" {
					want += `,"prevResult":` + row.previous
				}
				wantJSON(t, r.fake.want(t, "DEL first")[0].stdin, want+"}")
				if got := r.cached(t); got != "" {
					t.Errorf("%s: files %s", name, got)
				}
			}
		})
	}
}

// An unusable file is removed before the plugins run; a usable one stays until all have succeeded.
func TestDelFails(t *testing.T) {
	t.Parallel()
	failure := types.NewError(11, "busy", "")
	for file, left := range map[string]string{cachedFile(result100): "red-c1-eth0", "garbage": ""} {
		r := newRig(t)
		r.write(t, "red-c1-eth0", file)
		r.fake.fail["DEL second"] = failure
		n := list(t, "1.0.0", "first", "second", "third")
		err := r.DelNetworkList(t.Context(), n, runtimeConf())
		wantError(t, err, `plugin type="second" failed (delete): busy`)
		if errors.Unwrap(err) != error(failure) {
			t.Errorf("unwrapped %#v", errors.Unwrap(err))
		}
		r.fake.want(t, "DEL third, DEL second")
		if got := r.cached(t); got != left {
			t.Errorf("files %q, want %q", got, left)
		}
		net := plugin(t, `{"cniVersion":"1.0.0","name":"red","type":"second"}`)
		if err := r.DelNetwork(t.Context(), net, runtimeConf()); err != error(failure) {
			t.Errorf("single: %#v", err)
		}
		r.fake.missing = "third"
		wantError(t, r.DelNetworkList(t.Context(), n, runtimeConf()), `plugin type="third" `+
			`failed (delete): failed to find plugin "third" in path [/one /two]`)
	}
	r := newRig(t)
	wantError(t, r.DelNetworkList(t.Context(), list(t, "1.x.0", "first"), runtimeConf()),
		`failed to convert minor version part "x": strconv.Atoi: parsing "x": invalid syntax`)
	r.fake.want(t, "")
}

// DEL of an attachment neither uses nor removes the file of another one with the same file name.
func TestDelWithAmbiguousName(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other := list(t, "1.0.0", "first")
	other.Name = "red-c1"
	rt := &libcni.RuntimeConf{ContainerID: "x", IfName: "eth0"}
	if _, err := r.AddNetworkList(t.Context(), other, rt); err != nil {
		t.Fatal(err)
	}
	r.fake.take()
	ours := &libcni.RuntimeConf{ContainerID: "c1-x", IfName: "eth0"}
	if err := r.DelNetworkList(t.Context(), list(t, "1.0.0", "first"), ours); err != nil {
		t.Fatal(err)
	}
	wantJSON(t, r.fake.want(t, "DEL first")[0].stdin,
		`{"cniVersion":"1.0.0","name":"red","type":"first"}`)
	if result, err := r.GetNetworkListCachedResult(other, rt); result == nil || err != nil {
		t.Errorf("the file of the other attachment: %v, %v", result, err)
	}
}

// DEL accepts keys that ADD refuses, so that it can always clean up.
func TestDelOfInvalidKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rt := &libcni.RuntimeConf{IfName: "a name that is longer than 15 bytes"}
	if err := r.DelNetworkList(t.Context(), list(t, "1.0.0", "first"), rt); err != nil {
		t.Error(err)
	}
	r.fake.want(t, "DEL first")
}
