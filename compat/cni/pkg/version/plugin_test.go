package version_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/version"
)

func TestPluginDecoder(t *testing.T) {
	t.Parallel()
	const prefix = "decoding version info: "
	for _, tt := range []struct{ name, in, want, err string }{
		{"list", `{"cniVersion":"1.0.0","supportedVersions":["0.3.0","1.0.0"]}`, "0.3.0 1.0.0", ""},
		{"keys match in any case", `{"CNIVersion":"x","SupportedVersions":["y"]}`, "y", ""},
		{"entries are not checked", `{"cniVersion":"x","supportedVersions":["","z"]}`, " z", ""},
		{"0.2.0 without list", `{"cniVersion":"0.2.0"}`, "0.1.0 0.2.0", ""},
		{"0.2.0 with empty list", `{"cniVersion":"0.2.0","supportedVersions":[]}`, "0.1.0 0.2.0", ""},
		{"0.2.0 with a list", `{"cniVersion":"0.2.0","supportedVersions":["0.3.0"]}`, "0.3.0", ""},
		{"no version", `{"supportedVersions":["0.3.0"]}`, "", prefix + "missing field cniVersion"},
		{"empty version", `{"cniVersion":"","supportedVersions":["0.3.0"]}`, "",
			prefix + "missing field cniVersion"},
		{"null", `null`, "", prefix + "missing field cniVersion"},
		{"no list", `{"cniVersion":"0.3.0"}`, "", prefix + "missing field supportedVersions"},
		{"not JSON", `{`, "", prefix + "unexpected end of JSON input"},
		{"number", `{"cniVersion":3}`, "", prefix +
			"json: cannot unmarshal number into Go struct field pluginInfo.cniVersion of type string"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var d version.PluginDecoder
			info, err := d.Decode([]byte(tt.in))
			if message(err) != tt.err {
				t.Errorf("%v, want %s", err, tt.err)
			}
			if err != nil {
				if info != nil {
					t.Errorf("an error and %v", info)
				}
				return
			}
			if got := strings.Join(info.SupportedVersions(), " "); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

var errWrite = errors.New("disk full")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errWrite }

func TestEncode(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := version.PluginSupports("0.3.0", "1.0.0").Encode(&b); err != nil {
		t.Fatal(err)
	}
	want := `{"cniVersion":"1.1.0","supportedVersions":["0.3.0","1.0.0"]}` + "\n"
	if b.String() != want {
		t.Errorf("%s, want %s", &b, want)
	}
	b.Reset()
	var d version.PluginDecoder
	const reply = `{"cniVersion":"0.4.0","supportedVersions":["0.4.0"]}` + "\n"
	info, err := d.Decode([]byte(reply))
	if err != nil {
		t.Fatal(err)
	}
	if err := info.Encode(&b); err != nil || b.String() != reply {
		t.Errorf("%v, %s, want %s", err, &b, reply)
	}
	if err := info.Encode(failing{}); !errors.Is(err, errWrite) {
		t.Errorf("error of the writer: %v", err)
	}
}

func TestReconciler(t *testing.T) {
	t.Parallel()
	var r version.Reconciler
	if err := r.Check("0.4.0", version.All); err != nil {
		t.Error(err)
	}
	if err := r.CheckRaw("x", []string{"y", "x"}); err != nil {
		t.Error(err)
	}
	for _, tt := range []struct {
		config    string
		supported []string
		details   string
	}{
		{"0.1.0", []string{"0.3.0", "0.3.1"}, `config is "0.1.0", plugin supports ["0.3.0" "0.3.1"]`},
		{"", []string{"0.1.0"}, `config is "", plugin supports ["0.1.0"]`},
		{"1.0", []string{"1.0.0"}, `config is "1.0", plugin supports ["1.0.0"]`},
		{"1.0.0", nil, `config is "1.0.0", plugin supports []`},
	} {
		err := r.CheckRaw(tt.config, tt.supported)
		if err == nil {
			t.Errorf("%q is compatible with %q", tt.config, tt.supported)
			continue
		}
		if err.Details() != tt.details || err.Error() != "incompatible CNI versions: "+tt.details ||
			err.Config != tt.config || len(err.Supported) != len(tt.supported) {
			t.Errorf("%+v, want %s", err, tt.details)
		}
	}
	err := error(r.Check("9.9.9", version.Legacy))
	var incompatible *version.ErrorIncompatible
	if !errors.As(err, &incompatible) || incompatible.Config != "9.9.9" {
		t.Errorf("%#v", err)
	}
}
