package libcni_test

import (
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

func TestInjectConf(t *testing.T) {
	t.Parallel()
	original := plugin(t, `{"type":"a","n":12345678901234567890,"keep":"<"}`)
	before := string(original.Bytes)
	values := map[string]any{"type": "b", "dns": types.DNS{Domain: "x"}, "list": []string(nil)}
	conf, err := libcni.InjectConf(original, values)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"dns":{"domain":"x"},"keep":"\u003c","list":null,"n":12345678901234567890,` +
		`"type":"b"}`
	if string(conf.Bytes) != want {
		t.Errorf("got  %s\nwant %s", conf.Bytes, want)
	}
	if conf.Network.Type != "b" || conf.Network.DNS.Domain != "x" {
		t.Errorf("parsed %+v", conf.Network)
	}
	if string(original.Bytes) != before || original.Network.Type != "a" {
		t.Error("the original has changed")
	}
	again, err := libcni.InjectConf(conf, values)
	if err != nil || string(again.Bytes) != want {
		t.Errorf("again: %s, %v", again.Bytes, err)
	}
}

func TestInjectConfRefuses(t *testing.T) {
	t.Parallel()
	const unmarshal = "unmarshal existing network bytes: "
	for _, row := range []struct {
		name   string
		bytes  string
		values map[string]any
		want   string
	}{
		{"bad bytes", `}`, nil,
			unmarshal + "invalid character '}' looking for beginning of value"},
		{"null", `null`, map[string]any{"a": 1}, unmarshal + "the configuration is null"},
		{"an array", `[]`, nil, unmarshal +
			"json: cannot unmarshal array into Go value of type map[string]interface {}"},
		{"an empty key", `{"type":"a"}`, map[string]any{"": 1}, "keys cannot be empty"},
		{"a nil value", `{"type":"a"}`, map[string]any{"k": nil},
			"key 'k' value must not be nil"},
		{"a value without JSON", `{"type":"a"}`, map[string]any{"k": func() {}},
			"json: unsupported type: func()"},
		{"no type", `{}`, nil, "error parsing configuration: missing 'type'"},
	} {
		_, err := libcni.InjectConf(&libcni.PluginConfig{Bytes: []byte(row.bytes)}, row.values)
		if err == nil || err.Error() != row.want {
			t.Errorf("%s\ngot  %v\nwant %s", row.name, err, row.want)
		}
	}
	if _, err := libcni.InjectConf(nil, nil); err == nil {
		t.Error("nil: no error")
	}
}

// A plugin receives the name and the version of the list, the capability arguments that it enables,
// and all its own keys.
func TestRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := parseList(t, `{"cniVersion":"1.0.0","name":"red","plugins":[
		{"type":"first","name":"own","cniVersion":"0.3.0","capabilities":{"mac":true,"ips":false},
			"n":12345678901234567890,"runtimeConfig":{"old":1},"prevResult":{"cniVersion":"1.0.0"}},
		{"type":"second","capabilities":{"other":true},"runtimeConfig":{"old":1}},
		{"type":"third"}]}`)
	rt := runtimeConf()
	rt.CapabilityArgs = map[string]any{"mac": "02:00:00:00:00:01", "ips": []string{"10.0.0.1/8"}}
	rt.Args = [][2]string{{"A", "1"}, {"B", "2"}}
	if _, err := r.AddNetworkList(t.Context(), n, rt); err != nil {
		t.Fatal(err)
	}
	calls := r.fake.want(t, "ADD first, ADD second, ADD third")
	const previous = `"prevResult":{"cniVersion":"1.0.0"}`
	for i, want := range []string{
		`{"capabilities":{"ips":false,"mac":true},"cniVersion":"1.0.0","n":12345678901234567890,` +
			`"name":"red",` + previous + `,"runtimeConfig":{"mac":"02:00:00:00:00:01"},"type":"first"}`,
		`{"capabilities":{"other":true},"cniVersion":"1.0.0","name":"red",` + previous +
			`,"runtimeConfig":{"old":1},"type":"second"}`,
		`{"cniVersion":"1.0.0","name":"red",` + previous + `,"type":"third"}`,
	} {
		if calls[i].stdin != want {
			t.Errorf("plugin %d\ngot  %s\nwant %s", i, calls[i].stdin, want)
		}
		for name, want := range map[string]string{
			"CNI_CONTAINERID": "c1", "CNI_NETNS": "/run/netns/x", "CNI_IFNAME": "eth0",
			"CNI_ARGS": "A=1;B=2", "CNI_PATH": strings.Join([]string{"/one", "/two"}, pathList),
		} {
			if got := calls[i].env[name]; got != want {
				t.Errorf("%s=%s, want %s", name, got, want)
			}
		}
	}
}
