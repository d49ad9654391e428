package version_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

func FuzzPluginDecoder(f *testing.F) {
	for _, s := range []string{
		`{"cniVersion":"1.0.0","supportedVersions":["0.3.0","1.0.0"]}`,
		`{"cniVersion":"0.2.0"}`,
		`{"cniVersion":"x","supportedVersions":["\n\"<",""]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var d version.PluginDecoder
		info, err := d.Decode(data)
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := info.Encode(&b); err != nil {
			t.Fatal(err)
		}
		again, err := d.Decode(b.Bytes())
		if err != nil {
			t.Fatalf("%s: %v", &b, err)
		}
		if got, want := again.SupportedVersions(), info.SupportedVersions(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", &b, got, want)
		}
	})
}

func FuzzParsePrevResult(f *testing.F) {
	for _, s := range []string{
		`{"cniVersion":"1.0.0","prevResult":{"ips":[{"address":"10.0.0.5/24"},null]}}`,
		`{"cniVersion":"0.4.0","prevResult":{"cniVersion":"0.3.1","ips":[{"version":"4"}]}}`,
		`{"prevResult":{"ip4":{"ip":"10.0.0.5/24"}}}`,
		`{"cniVersion":"1.1.0","prevResult":{"CNIVERSION":null}}`,
		`{"prevResult":null}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var conf types.PluginConf
		if json.Unmarshal(data, &conf) != nil {
			return
		}
		had, versioned := conf.RawPrevResult != nil, false
		for _, value := range conf.RawPrevResult {
			_, text := value.(string)
			versioned = versioned || text
		}
		err := version.ParsePrevResult(&conf)
		if conf.RawPrevResult != nil {
			t.Errorf("raw value stays: %v", conf.RawPrevResult)
		}
		if (conf.PrevResult != nil) != (had && err == nil) {
			t.Errorf("%v, %v", conf.PrevResult, err)
		}
		if conf.PrevResult == nil || versioned || conf.CNIVersion == "" {
			return
		}
		if got := conf.PrevResult.Version(); got != conf.CNIVersion {
			t.Errorf("version %q, want %q", got, conf.CNIVersion)
		}
	})
}
