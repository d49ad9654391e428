package types020_test

import (
	"bytes"
	"encoding/json"
	"net"
	"reflect"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types020 "github.com/containernetworking/cni/pkg/types/020"
)

func cidr(t *testing.T, s string) net.IPNet {
	t.Helper()
	n, err := types.ParseCIDR(s)
	if err != nil {
		t.Fatal(err)
	}
	return *n
}

func full(t *testing.T, version string) *types020.Result {
	t.Helper()
	table := 7
	return &types020.Result{
		CNIVersion: version,
		IP4: &types020.IPConfig{
			IP:      cidr(t, "10.0.0.5/24"),
			Gateway: net.ParseIP("10.0.0.1"),
			Routes: []types.Route{
				{Dst: cidr(t, "0.0.0.0/0"), GW: net.ParseIP("10.0.0.2"), Table: &table},
			},
		},
		IP6: &types020.IPConfig{IP: cidr(t, "fd00::5/64")},
		DNS: types.DNS{Nameservers: []string{"10.0.0.53"}, Domain: "d"},
	}
}

const body = `
    "ip4": {
        "ip": "10.0.0.5/24",
        "gateway": "10.0.0.1",
        "routes": [
            {
                "dst": "0.0.0.0/0",
                "gw": "10.0.0.2",
                "table": 7
            }
        ]
    },
    "ip6": {
        "ip": "fd00::5/64"
    },
    "dns": {
        "nameservers": [
            "10.0.0.53"
        ],
        "domain": "d"
    }
}`

func TestPrintAndDecode(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"0.1.0", "0.2.0"} {
		r, want := full(t, version), "{\n    \"cniVersion\": \""+version+"\","+body
		var b bytes.Buffer
		if err := r.PrintTo(&b); err != nil || b.String() != want {
			t.Errorf("%v, printed %s\nwant %s", err, &b, want)
		}
		decoded, err := types020.NewResult(b.Bytes())
		if err != nil || !reflect.DeepEqual(decoded, r) {
			t.Errorf("%v, decoded %+v", err, decoded)
		}
	}
}

func TestNewResult(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want, err string }{
		{"no version", `{}`, `{"cniVersion":"0.1.0","dns":{}}`, ""},
		{"null", `null`, `{"cniVersion":"0.1.0","dns":{}}`, ""},
		{"empty version", `{"cniVersion":"","ip4":null}`, `{"cniVersion":"0.1.0","dns":{}}`, ""},
		{"unknown keys are lost", `{"cniVersion":"0.2.0","ip6":{"ip":"::1/128","more":1},"more":1}`,
			`{"cniVersion":"0.2.0","ip6":{"ip":"::1/128"},"dns":{}}`, ""},
		{"null route", `{"ip4":{"ip":"10.0.0.5/24","routes":[null]}}`, `{"cniVersion":"0.1.0",` +
			`"ip4":{"ip":"10.0.0.5/24","routes":[{"dst":"\u003cnil\u003e"}]},"dns":{}}`, ""},
		{"newer version", `{"cniVersion":"0.3.0"}`, "",
			`result type supports [ 0.1.0 0.2.0] but unmarshalled CNIVersion is "0.3.0"`},
		{"bad address", `{"ip4":{"ip":"10.0.0.5"}}`, "", "invalid CIDR address: 10.0.0.5"},
		{"not JSON", `{`, "", "unexpected end of JSON input"},
		{"not an object", `[]`, "",
			"json: cannot unmarshal array into Go value of type types020.Result"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := types020.NewResult([]byte(tt.in))
			if err != nil {
				if err.Error() != tt.err {
					t.Errorf("%v, want %s", err, tt.err)
				}
				return
			}
			if b, err := json.Marshal(r); err != nil || string(b) != tt.want {
				t.Errorf("%v, %s\nwant %s", err, b, tt.want)
			}
		})
	}
}

func TestGetAsVersion(t *testing.T) {
	t.Parallel()
	r := full(t, "0.2.0")
	for to, same := range map[string]bool{"": false, "0.1.0": false, "0.2.0": true} {
		got, err := r.GetAsVersion(to)
		if err != nil {
			t.Fatal(err)
		}
		if to == "" {
			to = "0.1.0"
		}
		if (got == types.Result(r)) != same || !reflect.DeepEqual(got, full(t, to)) {
			t.Errorf("%q: %+v", to, got)
		}
	}
	older, err := r.GetAsVersion("0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	c := older.(*types020.Result)
	c.IP4.Routes[0].MTU, c.IP6.Gateway, c.DNS.Nameservers[0] = 1, net.IP{1}, "x"
	if !reflect.DeepEqual(r, full(t, "0.2.0")) {
		t.Error("the converted result shares data")
	}
}

func TestResultWithoutVersion(t *testing.T) {
	t.Parallel()
	r := full(t, "")
	if _, err := types020.GetResult(r); err == nil ||
		err.Error() != "no converter for CNI result version  to 0.2.0" {
		t.Errorf("GetResult: %v", err)
	}
	got, err := r.GetAsVersion("0.1.0")
	if err != nil || r.Version() != "0.2.0" || got.Version() != "0.1.0" {
		t.Errorf("%v, %s becomes %s", err, r.Version(), got.Version())
	}
}

// The packages of newer results are not linked into this test.
func TestConversionToUnknownVersions(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"0.3.0", "1.0.0", "x"} {
		_, err := full(t, "0.1.0").GetAsVersion(to)
		want := "no converter for CNI result version 0.1.0 to " + to
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestGetResult(t *testing.T) {
	t.Parallel()
	r, err := types020.GetResult(full(t, "0.1.0"))
	if err != nil || !reflect.DeepEqual(r, full(t, "0.2.0")) {
		t.Errorf("%v, %+v", err, r)
	}
	if _, err := types020.GetResult(nil); err == nil || err.Error() != "failed to convert result" {
		t.Errorf("nil: %v", err)
	}
}

func TestIPConfig(t *testing.T) {
	t.Parallel()
	if c := (*types020.IPConfig)(nil).Copy(); c != nil {
		t.Errorf("copy of nil: %v", c)
	}
	ip := full(t, "").IP4
	c := ip.Copy()
	if !reflect.DeepEqual(c, ip) || &c.Gateway[0] != &ip.Gateway[0] {
		t.Errorf("copy %+v of %+v", c, ip)
	}
	*c.Routes[0].Table = 8
	if *ip.Routes[0].Table != 7 {
		t.Error("the copy shares its routes")
	}
	if c := (&types020.IPConfig{Routes: []types.Route{}}).Copy(); c.Routes != nil {
		t.Error("the copy of an empty list is not nil")
	}
	for _, text := range []string{`{"ip":3}`, `{"ip":"10.0.0.5"}`, `{"gateway":"x"}`, `[]`} {
		decoded := types020.IPConfig{Gateway: net.IP{10, 0, 0, 1}}
		if err := json.Unmarshal([]byte(text), &decoded); err == nil || decoded.Gateway == nil {
			t.Errorf("%s: %v, %+v", text, err, decoded)
		}
	}
}
