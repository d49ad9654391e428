package types040_test

import (
	"bytes"
	"encoding/json"
	"net"
	"reflect"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types020 "github.com/containernetworking/cni/pkg/types/020"
	types040 "github.com/containernetworking/cni/pkg/types/040"
)

func cidr(t *testing.T, s string) net.IPNet {
	t.Helper()
	n, err := types.ParseCIDR(s)
	if err != nil {
		t.Fatal(err)
	}
	return *n
}

func full(t *testing.T, version string) *types040.Result {
	t.Helper()
	return &types040.Result{
		CNIVersion: version,
		Interfaces: []*types040.Interface{
			{Name: "eth0", Mac: "02:00:00:00:00:01", Sandbox: "/run/netns/a"},
		},
		IPs: []*types040.IPConfig{
			{Version: "4", Interface: types040.Int(0), Address: cidr(t, "10.0.0.5/24"),
				Gateway: net.ParseIP("10.0.0.1")},
			{Version: "4", Address: cidr(t, "10.0.1.5/24")},
			{Version: "6", Address: cidr(t, "fd00::5/64")},
			{Version: "6", Address: cidr(t, "fd00::6/64")},
		},
		Routes: []*types.Route{
			{Dst: cidr(t, "::/0"), GW: net.ParseIP("fd00::1"), MTU: 1400},
			{Dst: cidr(t, "0.0.0.0/0")},
		},
		DNS: types.DNS{Search: []string{"s"}},
	}
}

func encoded(t *testing.T, r types.Result) string {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const (
	tail = `"interfaces":[{"name":"eth0","mac":"02:00:00:00:00:01","sandbox":"/run/netns/a"}],` +
		`"ips":[{"version":"4","interface":0,"address":"10.0.0.5/24","gateway":"10.0.0.1"},` +
		`{"version":"4","address":"10.0.1.5/24"},{"version":"6","address":"fd00::5/64"},` +
		`{"version":"6","address":"fd00::6/64"}],` +
		`"routes":[{"dst":"::/0","gw":"fd00::1","mtu":1400},{"dst":"0.0.0.0/0"}],` +
		`"dns":{"search":["s"]}}`
	tail020 = `"ip4":{"ip":"10.0.0.5/24","gateway":"10.0.0.1","routes":[{"dst":"0.0.0.0/0"}]},` +
		`"ip6":{"ip":"fd00::5/64","routes":[{"dst":"::/0","gw":"fd00::1"}]},` +
		`"dns":{"search":["s"]}}`
)

func TestConversions(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]string{
		"0.4.0": `{"cniVersion":"0.4.0",` + tail,
		"0.3.1": `{"cniVersion":"0.3.1",` + tail,
		"0.3.0": `{"cniVersion":"0.3.0",` + tail,
		"0.2.0": `{"cniVersion":"0.2.0",` + tail020,
		"0.1.0": `{"cniVersion":"0.1.0",` + tail020,
		"":      `{"cniVersion":"0.1.0",` + tail020,
	} {
		r := full(t, "0.4.0")
		got, err := r.GetAsVersion(to)
		if err != nil {
			t.Fatal(err)
		}
		if text := encoded(t, got); text != want {
			t.Errorf("%q: %s\nwant %s", to, text, want)
		}
		if (got == types.Result(r)) != (to == "0.4.0") {
			t.Errorf("%q: same result: %v", to, got == types.Result(r))
		}
	}
}

func TestConversionIsDeep(t *testing.T) {
	t.Parallel()
	r := full(t, "0.4.0")
	converted, err := r.GetAsVersion("0.3.0")
	if err != nil {
		t.Fatal(err)
	}
	c := converted.(*types040.Result)
	c.Interfaces[0].Name, *c.IPs[0].Interface, c.Routes[0].MTU, c.DNS.Search[0] = "x", 9, 9, "x"
	if !reflect.DeepEqual(r, full(t, "0.4.0")) {
		t.Errorf("the converted result shares data: %s", encoded(t, r))
	}
}

func TestPrintTo(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := (&types040.Result{CNIVersion: "0.4.0"}).PrintTo(&b); err != nil {
		t.Fatal(err)
	}
	if want := "{\n    \"cniVersion\": \"0.4.0\",\n    \"dns\": {}\n}"; b.String() != want {
		t.Errorf("%s\nwant %s", &b, want)
	}
}

func TestRoundTripOf020(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.5/24","gateway":"10.0.0.1",` +
			`"routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.1"}]},` +
			`"ip6":{"ip":"fd00::5/64","gateway":"fd00::1","routes":[{"dst":"::/0","gw":"fd00::1"}]},` +
			`"dns":{"domain":"d"}}`,
		`{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.5/24","routes":[{"dst":"0.0.0.0/0"}]},` +
			`"ip6":{"ip":"fd00::5/64","routes":[{"dst":"::/0"}]},"dns":{}}`,
	} {
		old, err := types020.NewResult([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		r, err := types040.GetResult(old)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.IPs) != 2 || r.IPs[0].Version != "4" || r.IPs[1].Version != "6" ||
			r.Version() != "0.4.0" {
			t.Errorf("%s", encoded(t, r))
		}
		back, err := types020.GetResult(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := encoded(t, back); got != text {
			t.Errorf("%s\nwant %s", got, text)
		}
	}
}

func TestFrom020KeepsAllMembersOfRoutes(t *testing.T) {
	t.Parallel()
	old, err := types020.NewResult([]byte(
		`{"ip4":{"ip":"10.0.0.5/24","routes":[{"dst":"0.0.0.0/0","mtu":1,"priority":2}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := types040.NewResultFromResult(old)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.0.0.5/24"}],` +
		`"routes":[{"dst":"0.0.0.0/0","mtu":1,"priority":2}],"dns":{}}`
	if got := encoded(t, r); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestTo020(t *testing.T) {
	t.Parallel()
	v4, v6 := cidr(t, "10.0.0.5/24"), cidr(t, "fd00::5/64")
	for _, tt := range []struct {
		name   string
		result types040.Result
		want   string
		err    string
	}{
		{name: "no addresses", err: "cannot convert: no valid IP addresses"},
		{name: "addresses without version",
			result: types040.Result{IPs: []*types040.IPConfig{{Address: v4}, {Version: "5", Address: v6}}},
			err:    "cannot convert: no valid IP addresses"},
		{name: "nil elements are skipped",
			result: types040.Result{
				Interfaces: []*types040.Interface{nil},
				IPs:        []*types040.IPConfig{nil, {Version: "6", Address: v6}},
				Routes:     []*types.Route{nil, {Dst: v6}},
			},
			want: `{"cniVersion":"0.2.0",` +
				`"ip6":{"ip":"fd00::5/64","routes":[{"dst":"fd00::5/64"}]},"dns":{}}`},
		{name: "only nil addresses",
			result: types040.Result{IPs: []*types040.IPConfig{nil}},
			err:    "cannot convert: no valid IP addresses"},
		{name: "routes of the other family are lost",
			result: types040.Result{
				IPs:    []*types040.IPConfig{{Version: "4", Address: v4}},
				Routes: []*types.Route{{Dst: v6}, {Dst: v4, Priority: 3}, {}},
			},
			want: `{"cniVersion":"0.2.0",` +
				`"ip4":{"ip":"10.0.0.5/24","routes":[{"dst":"10.0.0.5/24"}]},"dns":{}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := tt.result
			r.CNIVersion = "0.3.0"
			got, err := types020.GetResult(&r)
			if err != nil {
				if err.Error() != tt.err {
					t.Errorf("%v, want %q", err, tt.err)
				}
				return
			}
			if text := encoded(t, got); text != tt.want {
				t.Errorf("%s\nwant %s", text, tt.want)
			}
		})
	}
}

func TestNewResult(t *testing.T) {
	t.Parallel()
	const unsupported = "result type supports [0.3.0 0.3.1 0.4.0] but unmarshalled CNIVersion is "
	for in, want := range map[string]string{
		`{"cniVersion":"0.3.0"}`: "",
		`{"cniVersion":"0.3.1"}`: "",
		`{"cniVersion":"0.4.0","ips":[null],"interfaces":[null],"routes":[null]}`: "",
		`{}`:                     unsupported + `""`,
		`{"cniVersion":"1.0.0"}`: unsupported + `"1.0.0"`,
		`{"cniVersion":"0.4.0","ips":3}`: "json: cannot unmarshal number into Go struct field " +
			"Result.ips of type []*types040.IPConfig",
		`{"cniVersion":"0.4.0","ips":[{"address":"x"}]}`: "invalid CIDR address: x",
	} {
		_, err := types040.NewResult([]byte(in))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

func TestResultWithoutVersion(t *testing.T) {
	t.Parallel()
	_, err := types040.NewResultFromResult(full(t, ""))
	if err == nil || err.Error() != "no converter for CNI result version  to 0.4.0" {
		t.Errorf("NewResultFromResult: %v", err)
	}
	r := full(t, "")
	if got, err := types040.GetResult(r); err != nil || got != r || r.Version() != "0.4.0" {
		t.Errorf("GetResult: %v, %v", got, err)
	}
}

func TestWrongTypes(t *testing.T) {
	t.Parallel()
	const want = "failed to convert result"
	for name, r := range map[string]types.Result{
		"nil":                     nil,
		"0.2.0 with lists":        &types040.Result{CNIVersion: "0.2.0"},
		"0.4.0 without lists":     &types020.Result{CNIVersion: "0.4.0"},
		"0.3.0 without lists":     &types020.Result{CNIVersion: "0.3.0"},
		"0.1.0, another type too": &types040.Result{CNIVersion: "0.1.0"},
	} {
		if got, err := types040.GetResult(r); err == nil || err.Error() != want || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if got, err := types040.NewResultFromResult(r); err == nil || err.Error() != want || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
