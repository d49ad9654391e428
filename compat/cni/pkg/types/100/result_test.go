package types100_test

import (
	"bytes"
	"encoding/json"
	"net"
	"reflect"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types020 "github.com/containernetworking/cni/pkg/types/020"
	types040 "github.com/containernetworking/cni/pkg/types/040"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

func cidr(t *testing.T, s string) net.IPNet {
	t.Helper()
	n, err := types.ParseCIDR(s)
	if err != nil {
		t.Fatal(err)
	}
	return *n
}

func full(t *testing.T, version string) *types100.Result {
	t.Helper()
	table, scope := 0, 253
	return &types100.Result{
		CNIVersion: version,
		Interfaces: []*types100.Interface{{
			Name: "eth0", Mac: "02:00:00:00:00:01", Mtu: 1500, Sandbox: "/run/netns/a",
			SocketPath: "/run/vhost", PciID: "0000:00:01.0",
		}},
		IPs: []*types100.IPConfig{
			{Interface: types100.Int(0), Address: cidr(t, "10.0.0.5/24"),
				Gateway: net.ParseIP("10.0.0.1")},
			{Address: cidr(t, "fd00::5/64")},
		},
		Routes: []*types.Route{
			{Dst: cidr(t, "0.0.0.0/0"), GW: net.ParseIP("10.0.0.1"), MTU: 1400, AdvMSS: 1360,
				Priority: 100, Table: &table, Scope: &scope},
		},
		DNS: types.DNS{Options: []string{"o"}, Nameservers: []string{"10.0.0.53"}},
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
	// Keys of 1.0.0 and newer are sorted.
	tail = `"dns":{"nameservers":["10.0.0.53"],"options":["o"]},` +
		`"interfaces":[{"mac":"02:00:00:00:00:01","mtu":1500,"name":"eth0","pciID":"0000:00:01.0",` +
		`"sandbox":"/run/netns/a","socketPath":"/run/vhost"}],` +
		`"ips":[{"address":"10.0.0.5/24","gateway":"10.0.0.1","interface":0},` +
		`{"address":"fd00::5/64"}],` +
		`"routes":[{"advmss":1360,"dst":"0.0.0.0/0","gw":"10.0.0.1","mtu":1400,"priority":100,` +
		`"scope":253,"table":0}]}`
	tail040 = `"interfaces":[{"name":"eth0","mac":"02:00:00:00:00:01","sandbox":"/run/netns/a"}],` +
		`"ips":[{"version":"4","interface":0,"address":"10.0.0.5/24","gateway":"10.0.0.1"},` +
		`{"version":"6","address":"fd00::5/64"}],` +
		`"routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.1","mtu":1400,"advmss":1360,"priority":100,` +
		`"table":0,"scope":253}],"dns":{"nameservers":["10.0.0.53"],"options":["o"]}}`
	tail020 = `"ip4":{"ip":"10.0.0.5/24","gateway":"10.0.0.1",` +
		`"routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.1"}]},"ip6":{"ip":"fd00::5/64"},` +
		`"dns":{"nameservers":["10.0.0.53"],"options":["o"]}}`
)

func TestConversions(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]string{
		"1.1.0": `{"cniVersion":"1.1.0",` + tail,
		"1.0.0": `{"cniVersion":"1.0.0",` + tail,
		"0.4.0": `{"cniVersion":"0.4.0",` + tail040,
		"0.3.1": `{"cniVersion":"0.3.1",` + tail040,
		"0.3.0": `{"cniVersion":"0.3.0",` + tail040,
		"0.2.0": `{"cniVersion":"0.2.0",` + tail020,
		"0.1.0": `{"cniVersion":"0.1.0",` + tail020,
		"":      `{"cniVersion":"0.1.0",` + tail020,
	} {
		r := full(t, "1.1.0")
		got, err := r.GetAsVersion(to)
		if err != nil {
			t.Fatal(err)
		}
		if text := encoded(t, got); text != want {
			t.Errorf("%q: %s\nwant %s", to, text, want)
		}
		if (got == types.Result(r)) != (to == "1.1.0") {
			t.Errorf("%q: same result: %v", to, got == types.Result(r))
		}
		if !reflect.DeepEqual(r, full(t, "1.1.0")) {
			t.Errorf("%q: the result has changed", to)
		}
	}
}

func TestBetween100And110(t *testing.T) {
	t.Parallel()
	r := full(t, "1.1.0")
	older, err := r.GetAsVersion("1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	if &older.(*types100.Result).IPs[0] != &r.IPs[0] {
		t.Error("the converted result has its own list")
	}
	back, err := older.GetAsVersion("1.1.0")
	if err != nil || !reflect.DeepEqual(back, r) {
		t.Errorf("%v, %s", err, encoded(t, back))
	}
}

func TestConversionIsDeep(t *testing.T) {
	t.Parallel()
	r := full(t, "1.0.0")
	converted, err := types040.GetResult(r)
	if err != nil {
		t.Fatal(err)
	}
	c := converted
	c.Interfaces[0].Name, *c.IPs[0].Interface, c.Routes[0].MTU, c.DNS.Options[0] = "x", 9, 9, "x"
	if !reflect.DeepEqual(r, full(t, "1.0.0")) {
		t.Errorf("the converted result shares data: %s", encoded(t, r))
	}
}

func TestFromOldResults(t *testing.T) {
	t.Parallel()
	const ips = `"ips":[{"address":"10.0.0.5/24","gateway":"10.0.0.1"},{"address":"fd00::5/64"}],` +
		`"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}`
	old, err := types020.NewResult([]byte(`{"ip6":{"ip":"fd00::5/64","routes":[{"dst":"::/0"}]},
		"ip4":{"ip":"10.0.0.5/24","gateway":"10.0.0.1","routes":[{"dst":"0.0.0.0/0"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	lists, err := types040.NewResult([]byte(`{"cniVersion":"0.3.0","interfaces":[{"name":"a"}],
		"ips":[{"version":"6","interface":0,"address":"10.0.0.5/24"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		from types.Result
		want string
	}{
		{old, `{"cniVersion":"1.1.0",` + ips},
		{lists, `{"cniVersion":"1.1.0","interfaces":[{"name":"a"}],` +
			`"ips":[{"address":"10.0.0.5/24","interface":0}]}`},
	} {
		r, err := types100.GetResult(tt.from)
		if err != nil {
			t.Fatal(err)
		}
		if got := encoded(t, r); got != tt.want {
			t.Errorf("%s\nwant %s", got, tt.want)
		}
	}
}

// Indexes of interfaces stay valid, so that nil elements stay where the target has lists.
func TestNilElements(t *testing.T) {
	t.Parallel()
	r, err := types100.NewResult([]byte(
		`{"cniVersion":"1.0.0","interfaces":[null,{"name":"b"}],"ips":[null],"routes":[null]}`))
	if err != nil {
		t.Fatal(err)
	}
	lists, err := r.GetAsVersion("0.4.0")
	if err != nil {
		t.Fatal(err)
	}
	want := `{"cniVersion":"0.4.0","interfaces":[null,{"name":"b"}],"ips":[null],` +
		`"routes":[null],"dns":{}}`
	if got := encoded(t, lists); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	back, err := lists.GetAsVersion("1.0.0")
	if err != nil || !reflect.DeepEqual(back, r) {
		t.Errorf("%v, %s", err, encoded(t, back))
	}
	_, err = r.GetAsVersion("0.2.0")
	if err == nil || err.Error() != "cannot convert: no valid IP addresses" {
		t.Errorf("%v", err)
	}
}

func TestAddressFamilies(t *testing.T) {
	t.Parallel()
	r := &types100.Result{IPs: []*types100.IPConfig{
		{Address: net.IPNet{IP: net.IP{10, 0, 0, 5}, Mask: net.CIDRMask(8, 32)}},
		{Address: cidr(t, "::ffff:10.0.0.6/120")},
		{Address: cidr(t, "fd00::5/64")},
		{},
		{Address: net.IPNet{IP: net.IP{1, 2}}},
	}}
	lists, err := types040.GetResult(r)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, ip := range lists.IPs {
		got += ip.Version
	}
	if got != "44666" {
		t.Errorf("versions %s", got)
	}
	if len(lists.IPs[0].Address.IP) != 4 {
		t.Error("the bytes of the address have changed")
	}
}

func TestEncoding(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		result any
		want   string
	}{
		{"empty dns is omitted", &types100.Result{CNIVersion: "1.0.0"}, `{"cniVersion":"1.0.0"}`},
		{"nothing", &types100.Result{}, `{}`},
		{"value keeps dns", types100.Result{}, `{"dns":{}}`},
		{"unset address", &types100.Result{IPs: []*types100.IPConfig{{}}},
			`{"ips":[{"address":"\u003cnil\u003e"}]}`},
		{"nil", (*types100.Result)(nil), "null"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if b, err := json.Marshal(tt.result); err != nil || string(b) != tt.want {
				t.Errorf("%s, %v, want %s", b, err, tt.want)
			}
		})
	}
	var b bytes.Buffer
	if err := (&types100.Result{CNIVersion: "1.1.0"}).PrintTo(&b); err != nil ||
		b.String() != "{\n    \"cniVersion\": \"1.1.0\"\n}" {
		t.Errorf("%v, printed %s", err, &b)
	}
}

func TestNewResult(t *testing.T) {
	t.Parallel()
	const unsupported = "result type supports [1.0.0 1.1.0] but unmarshalled CNIVersion is "
	for in, want := range map[string]string{
		`{"cniVersion":"1.0.0"}`:                     "",
		`{"cniVersion":"1.1.0","dns":null,"ips":[]}`: "",
		`{}`:                     unsupported + `""`,
		`null`:                   unsupported + `""`,
		`{"cniVersion":"1.2.0"}`: unsupported + `"1.2.0"`,
		`{"cniVersion":"0.4.0"}`: unsupported + `"0.4.0"`,
		`{"cniVersion":"1.0.0","ips":3}`: "json: cannot unmarshal number into Go struct field " +
			"Result.ips of type []*types100.IPConfig",
	} {
		_, err := types100.NewResult([]byte(in))
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
	_, err := types100.NewResultFromResult(full(t, ""))
	if err == nil || err.Error() != "no converter for CNI result version  to 1.1.0" {
		t.Errorf("NewResultFromResult: %v", err)
	}
	r := full(t, "")
	if got, err := types100.GetResult(r); err != nil || got != r || r.Version() != "1.1.0" {
		t.Errorf("GetResult: %v, %v", got, err)
	}
	_, err = full(t, "1.0.0").GetAsVersion("1.2.0")
	if err == nil || err.Error() != "no converter for CNI result version 1.0.0 to 1.2.0" {
		t.Errorf("unknown version: %v", err)
	}
}

func TestWrongTypes(t *testing.T) {
	t.Parallel()
	const want = "failed to convert result"
	for name, r := range map[string]types.Result{
		"nil":                 nil,
		"0.2.0 with lists":    &types100.Result{CNIVersion: "0.2.0"},
		"0.4.0, newer type":   &types100.Result{CNIVersion: "0.4.0"},
		"1.0.0, older type":   &types040.Result{CNIVersion: "1.0.0"},
		"1.1.0 without lists": &types020.Result{CNIVersion: "1.1.0"},
	} {
		if got, err := types100.GetResult(r); err == nil || err.Error() != want || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if got, err := types100.NewResultFromResult(r); err == nil || err.Error() != want || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
