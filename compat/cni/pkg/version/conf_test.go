package version_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
)

func TestConfigDecoder(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want, err string }{
		{`{"cniVersion":"4.3.2"}`, "4.3.2", ""},
		{`{"CNIVERSION":"1.0.0"}`, "1.0.0", ""},
		{`{"name":"n"}`, "0.1.0", ""},
		{`{"cniVersion":""}`, "0.1.0", ""},
		{`{{{`, "", "decoding version from network config: " +
			"invalid character '{' looking for beginning of object key string"},
	} {
		var d version.ConfigDecoder
		if got, err := d.Decode([]byte(tt.in)); got != tt.want || message(err) != tt.err {
			t.Errorf("%s: %q, %v, want %q, %s", tt.in, got, err, tt.want, tt.err)
		}
	}
}

func TestNewResult(t *testing.T) {
	t.Parallel()
	r, err := version.NewResult("1.1.0", []byte(`{"cniVersion":"1.0.0"}`))
	if err != nil || r.Version() != "1.0.0" {
		t.Errorf("%v, %v", r, err)
	}
	if r, err := version.NewResult("x", nil); message(err) != `unsupported CNI result version "x"` {
		t.Errorf("%v, %v", r, err)
	}
}

func TestParsePrevResult(t *testing.T) {
	t.Parallel()
	type object = map[string]interface{}
	const mismatch = "could not parse prevResult: result type supports [1.0.0 1.1.0] " +
		"but unmarshalled CNIVersion is "
	ips := []interface{}{object{"address": "10.0.0.5/24"}}
	for _, tt := range []struct {
		name, version string
		raw           object
		want, err     string
	}{
		{"absent", "1.0.0", nil, "", ""},
		{"own version", "1.0.0", object{"cniVersion": "1.0.0", "ips": ips},
			`*types100.Result {"cniVersion":"1.0.0","ips":[{"address":"10.0.0.5/24"}]}`, ""},
		{"another version of the same type", "1.0.0", object{"cniVersion": "1.1.0"},
			`*types100.Result {"cniVersion":"1.1.0"}`, ""},
		{"no version", "0.3.1", object{}, `*types040.Result {"cniVersion":"0.3.1","dns":{}}`, ""},
		{"null version", "1.0.0", object{"cniVersion": nil},
			`*types100.Result {"cniVersion":"1.0.0"}`, ""},
		{"key in another case", "1.0.0", object{"CNIVersion": "1.1.0"},
			`*types100.Result {"cniVersion":"1.1.0"}`, ""},
		{"neither has a version", "", object{},
			`*types020.Result {"cniVersion":"0.1.0","dns":{}}`, ""},
		{"empty version of 0.2.0", "0.2.0", object{"cniVersion": ""},
			`*types020.Result {"cniVersion":"0.1.0","dns":{}}`, ""},
		{"empty version", "1.0.0", object{"cniVersion": ""}, "", mismatch + `""`},
		{"older result", "1.0.0", object{"cniVersion": "0.4.0"}, "", mismatch + `"0.4.0"`},
		{"unknown version", "5678.456", object{"cniVersion": "1.0.0"}, "",
			`could not parse prevResult: unsupported CNI result version "5678.456"`},
		{"not a result", "1.0.0", object{"ips": 3}, "", "could not parse prevResult: json: " +
			"cannot unmarshal number into Go struct field Result.ips of type []*types100.IPConfig"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := fmt.Sprint(tt.raw)
			conf := &types.PluginConf{CNIVersion: tt.version, RawPrevResult: tt.raw}
			if err := version.ParsePrevResult(conf); message(err) != tt.err {
				t.Errorf("%v, want %s", err, tt.err)
			}
			if conf.RawPrevResult != nil {
				t.Errorf("raw value stays: %v", conf.RawPrevResult)
			}
			if after := fmt.Sprint(tt.raw); after != before {
				t.Errorf("the caller's map has changed from %s to %s", before, after)
			}
			got := ""
			if conf.PrevResult != nil {
				b, err := json.Marshal(conf.PrevResult)
				got = fmt.Sprintf("%T %s", conf.PrevResult, b)
				if err != nil {
					t.Error(err)
				}
			}
			if got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

func TestParsePrevResultKeepsTheParsedOne(t *testing.T) {
	t.Parallel()
	parsed := &types100.Result{CNIVersion: "1.0.0"}
	conf := &types.PluginConf{CNIVersion: "1.0.0", PrevResult: parsed}
	if err := version.ParsePrevResult(conf); err != nil || conf.PrevResult != parsed {
		t.Errorf("%v, %v", conf.PrevResult, err)
	}
	conf.RawPrevResult = map[string]interface{}{"cniVersion": "x"}
	if err := version.ParsePrevResult(conf); err == nil || conf.PrevResult != parsed {
		t.Errorf("%v, %v", conf.PrevResult, err)
	}
	conf.RawPrevResult = map[string]interface{}{"f": func() {}}
	err := version.ParsePrevResult(conf)
	if message(err) != "could not serialize prevResult: json: unsupported type: func()" {
		t.Errorf("%v", err)
	}
}
