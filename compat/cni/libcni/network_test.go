package libcni_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
)

// The list keeps its bytes; the plugins are encoded again with sorted keys and the digits of their
// numbers.
func TestNetworkConfFromBytes(t *testing.T) {
	t.Parallel()
	const text = `{ "name": "red", "cniVersion": "0.4.0", "disableCheck": true, "disableGC": "TRUE",
		"plugins": [{"type":"b","n":12345678901234567890,"f":1.10,"e":1e3,"a":"<&>",
		"in":{"z":[1.0],"y":null}}, {"type":"a"}] }`
	list := parseList(t, text)
	got := fmt.Sprint(list.Name, list.CNIVersion, list.DisableCheck, list.DisableGC,
		list.LoadOnlyInlinedPlugins, typesOf(list))
	if want := fmt.Sprint("red", "0.4.0", true, true, false, "[b a]"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if string(list.Bytes) != text {
		t.Errorf("bytes %s", list.Bytes)
	}
	const plugin = `{"a":"\u003c\u0026\u003e","e":1e3,"f":1.10,"in":{"y":null,"z":[1.0]},` +
		`"n":12345678901234567890,"type":"b"}`
	if string(list.Plugins[0].Bytes) != plugin {
		t.Errorf("plugin\ngot  %s\nwant %s", list.Plugins[0].Bytes, plugin)
	}
}

func TestNetworkConfFromBytesRefuses(t *testing.T) {
	t.Parallel()
	const prefix = "error parsing configuration list: "
	for text, want := range map[string]string{
		`}`:                      prefix + "invalid character '}' looking for beginning of value",
		``:                       prefix + "unexpected end of JSON input",
		`null`:                   prefix + "no name",
		`{}`:                     prefix + "no name",
		`{"Name":"red"}`:         prefix + "no name",
		`{"name":5}`:             prefix + "invalid name type float64",
		`{"name":null}`:          prefix + "invalid name type <nil>",
		`{"name":"../x"}`:        prefix + `invalid name "../x": it must not be a path`,
		`{"name":"."}`:           prefix + `invalid name ".": it must not be a path`,
		`{"name":"a/b"}`:         prefix + `invalid name "a/b": it must not be a path`,
		`{NAME,"cniVersion":5}`:  prefix + "invalid cniVersion type float64",
		`{NAME,"cniVersions":5}`: prefix + "invalid type for cniVersions: float64",
		`{NAME,"cniVersions":["1.0.0",[]]}`: prefix +
			"invalid type for cniVersions index 1: []interface {}",
		`{NAME,"cniVersions":["1.0.0","x"]}`: prefix + "invalid cniVersions entry x at index 1: " +
			`failed to convert major version part "x": strconv.Atoi: parsing "x": invalid syntax`,
		`{NAME,"cniVersion":"x","cniVersions":[]}`: prefix + "invalid cniVersion x: " +
			`failed to convert major version part "x": strconv.Atoi: parsing "x": invalid syntax`,
		`{NAME,"disableCheck":null}`:           prefix + "invalid type <nil> for disableCheck",
		`{NAME,"disableGC":1}`:                 prefix + "invalid type float64 for disableGC",
		`{NAME,"disableGC":"Maybe"}`:           prefix + `invalid value "maybe" for disableGC`,
		`{NAME,"loadOnlyInlinedPlugins":"no"}`: prefix + `invalid value "no" for loadOnlyInlinedPlugins`,
		`{NAME,"loadOnlyInlinedPlugins":true}`: prefix +
			"`loadOnlyInlinedPlugins` is true, and no 'plugins' key",
		`{NAME,"plugins":{}}`:                prefix + "invalid 'plugins' type map[string]interface {}",
		`{NAME,"plugins":[]}`:                prefix + "no plugins in list",
		`{NAME,"plugins":[{"type":"a"},{}]}`: "failed to parse plugin config 1: error parsing configuration: missing 'type'",
		`{NAME,"plugins":[null]}`:            "failed to parse plugin config 0: error parsing configuration: missing 'type'",
	} {
		text = strings.ReplaceAll(text, "NAME", `"name":"red"`)
		for _, parse := range []func([]byte) (*libcni.NetworkConfigList, error){
			libcni.NetworkConfFromBytes, libcni.ConfListFromBytes,
		} {
			if _, err := parse([]byte(text)); err == nil || err.Error() != want {
				t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
			}
		}
	}
}

func TestVersionSelection(t *testing.T) {
	t.Parallel()
	for keys, want := range map[string]string{
		``:                       "",
		`"cniVersion":""`:        "",
		`"cniVersion":"1.2.3"`:   "1.2.3",
		`"cniVersion":"rubbish"`: "rubbish",
		`"cniVersions":[]`:       "",
		`"cniVersions":["0.3.0","1.1.0","0.4.0"]`:           "1.1.0",
		`"cniVersions":["0.3.0","9.1.0","0.4.0"]`:           "0.4.0",
		`"cniVersions":["9.1.0"]`:                           "",
		`"cniVersion":"9.0.0","cniVersions":["9.1.0"]`:      "9.0.0",
		`"cniVersion":"1.0.0","cniVersions":["0.4.0"]`:      "1.0.0",
		`"cniVersion":"0.3.1","cniVersions":["0.4.0"]`:      "0.4.0",
		`"cniVersion":"","cniVersions":["0.4.0","0.10.0"]`:  "0.10.0",
		`"cniVersion":"1.1.0","cniVersions":["1.0","1.10"]`: "1.1.0",
	} {
		text := `{"name":"red","plugins":[{"type":"a"}]}`
		if keys != "" {
			text = strings.Replace(text, `{`, `{`+keys+`,`, 1)
		}
		if got := parseList(t, text).CNIVersion; got != want {
			t.Errorf("%s: %q, want %q", keys, got, want)
		}
	}
}

// A list without plugins and a list without a name are accepted.
func TestNetworkConfFromBytesAccepts(t *testing.T) {
	t.Parallel()
	if list := parseList(t, `{"name":"red","type":"first"}`); len(list.Plugins) != 0 {
		t.Errorf("a single plugin has the plugins %s", typesOf(list))
	}
	if list := parseList(t, `{"name":""}`); list.Name != "" {
		t.Errorf("name %q", list.Name)
	}
	if list := parseList(t, `{"name":"x","disableCheck":"False"}`); list.DisableCheck {
		t.Error("CHECK is disabled")
	}
}

// A list of a single plugin has its name and version, and parses to the same list again.
func TestConfListFromConf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"name":"red","type":"a","cniVersion":"0.4.0","n":1.10}`: `{"cniVersion":"0.4.0","name":"red","plugins":[{"cniVersion":"0.4.0","n":1.10,"name":"red","type":"a"}]}`,
		`{"type":"a"}`: `{"cniVersion":"","name":"","plugins":[{"type":"a"}]}`,
	} {
		list, err := libcni.ConfListFromConf(plugin(t, text))
		if err != nil {
			t.Fatal(err)
		}
		if string(list.Bytes) != want {
			t.Errorf("got  %s\nwant %s", list.Bytes, want)
		}
		if again := parseList(t, string(list.Bytes)); !reflect.DeepEqual(again, list) {
			t.Errorf("again: %+v, want %+v", again, list)
		}
	}
	for name, conf := range map[string]*libcni.PluginConfig{"nil": nil, "without a type": {}} {
		if _, err := libcni.ConfListFromConf(conf); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// SEC-05: configurations come from files that any package can install.
func FuzzNetworkConfFromBytes(f *testing.F) {
	f.Add([]byte(`{"name":"red","cniVersions":["1.0.0"],"plugins":[{"type":"a","n":1e400}]}`))
	f.Add([]byte(`{"name":"red","disableGC":"true","plugins":[{"type":"a","prevResult":{}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := libcni.NetworkConfFromBytes(b)
		if err != nil {
			return
		}
		for _, p := range list.Plugins {
			again, err := libcni.InjectConf(p, map[string]any{"name": list.Name})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := libcni.ConfListFromConf(again); err != nil {
				t.Fatal(err)
			}
		}
	})
}
