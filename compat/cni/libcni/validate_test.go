package libcni_test

import (
	"errors"
	"reflect"
	"testing"
)

func TestValidateNetworkList(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fake.output["VERSION old"] = `{"cniVersion":"0.2.0","supportedVersions":["0.1.0"]}`
	r.fake.fail["VERSION ancient"] = errors.New("unknown CNI_COMMAND: VERSION")
	r.fake.fail["VERSION broken"] = errors.New("no")
	r.fake.missing = "none"
	for _, row := range []struct {
		name, list string
		want       []string
		err        string
	}{
		{"capabilities", `"cniVersion":"1.0.0","plugins":[
			{"type":"first","capabilities":{"b":true,"x":false}},
			{"type":"second","capabilities":{"a":true,"b":true}}]`, []string{"a", "b"}, ""},
		{"no capabilities", `"cniVersion":"1.1.0","plugins":[{"type":"first"}]`, []string{}, ""},
		{"no version", `"plugins":[{"type":"old"},{"type":"ancient"}]`, []string{}, ""},
		{"a missing plugin", `"cniVersion":"1.0.0","plugins":[{"type":"first"},{"type":"none"}]`,
			nil, `[failed to find plugin "none" in path [/one /two]]`},
		{"versions", `"cniVersion":"0.3.1","plugins":[{"type":"first"},{"type":"old"}]`, nil,
			`[plugin first does not support config version "0.3.1" ` +
				`plugin old does not support config version "0.3.1"]`},
		{"compared exactly", `"cniVersion":"1.0","plugins":[{"type":"first"}]`, nil,
			`[plugin first does not support config version "1.0"]`},
		{"a failing plugin", `"cniVersion":"1.0.0","plugins":[{"type":"broken"}]`, nil, `[no]`},
	} {
		n := parseList(t, `{"name":"red",`+row.list+`}`)
		got, err := r.ValidateNetworkList(t.Context(), n)
		t.Log(row.name)
		wantError(t, err, row.err)
		if !reflect.DeepEqual(got, row.want) {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
	n := parseList(t, `{"name":"red","plugins":[{"type":"first"}]}`)
	n.Plugins[0] = nil
	r.fake.missing = ""
	if _, err := r.ValidateNetworkList(t.Context(), n); err == nil {
		t.Error("a nil plugin is valid")
	}
}

func TestValidateNetwork(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fake.missing = "none"
	for text, want := range map[string]string{
		`{"type":"first","cniVersion":"1.0.0","capabilities":{"b":true,"a":true,"x":false}}`: "",
		`{"type":"none","cniVersion":"1.0.0"}`:                                               `failed to find plugin "none" in path [/one /two]`,
		`{"type":"first","cniVersion":"0.1.0"}`:                                              `plugin first does not support config version "0.1.0"`,
		`{"type":"first"}`:                                                                   `plugin first does not support config version "0.1.0"`,
	} {
		got, err := r.ValidateNetwork(t.Context(), plugin(t, text))
		wantError(t, err, want)
		if want == "" && !reflect.DeepEqual(got, []string{"a", "b"}) {
			t.Errorf("%s: %q", text, got)
		}
	}
}

func TestGetVersionInfo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fake.output["VERSION first"] = `{"cniVersion":"1.1.0","supportedVersions":["0.-42.0","0.1.0"]}`
	info, err := r.GetVersionInfo(t.Context(), "first")
	if err != nil || !reflect.DeepEqual(info.SupportedVersions(), []string{"0.-42.0", "0.1.0"}) {
		t.Errorf("%v, %v", info, err)
	}
	r.fake.missing = "none"
	_, err = r.GetVersionInfo(t.Context(), "none")
	wantError(t, err, `failed to find plugin "none" in path [/one /two]`)
}
