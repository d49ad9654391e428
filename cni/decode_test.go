package cni_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
)

func TestDecodeResultTakesVersionOfCall(t *testing.T) {
	t.Parallel()
	for _, member := range []string{``, `"cniVersion":"",`, `"cniVersion":4,`,
		`"cniVersion":null,`} {
		in := []byte(`{` + member + `"ips":[{"address":"10.0.0.2/24"}]}`)
		r, err := cni.DecodeResult(in, cni.V110)
		if err != nil || len(r.IPs) != 1 {
			t.Errorf("%s: %+v, %v", in, r, err)
		}
		// Decoded as 0.1.0 it has no address.
		if r, err := cni.DecodeResult(in, cni.V010); err != nil || len(r.IPs) != 0 {
			t.Errorf("%s: %+v, %v", in, r, err)
		}
		if v, err := cni.ResultVersion(in, cni.V031); v != cni.V031 || err != nil {
			t.Errorf("%s: version %v, %v", in, v, err)
		}
		if r, err := cni.DecodeResult(in, 0); cni.CodeOf(err) != cni.CodeDecodingFailure {
			t.Errorf("%s without any version: %+v, %v", in, r, err)
		}
	}
}

func TestResultVersion(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		in   string
		want cni.Version
		code cni.Code
	}{
		{`{"cniVersion":"0.4.0"}`, cni.V040, 0},
		{`{"CNIVersion":"0.4.0"}`, cni.V040, 0}, // as encoding/json reads it
		{`{"cniVersion":"2.0.0"}`, 0, cni.CodeIncompatibleVersion},
		{`{"cniVersion":"new"}`, 0, cni.CodeDecodingFailure},
		{`[]`, 0, cni.CodeDecodingFailure},
	} {
		if v, err := cni.ResultVersion([]byte(test.in), cni.V110); v != test.want ||
			cni.CodeOf(err) != test.code {
			t.Errorf("%s: %v, %v", test.in, v, err)
		}
	}
}

// Members of other versions are unknown and must be ignored, whatever they contain; members of no
// version are lost (RES-08).
func TestDecodeResultIgnoresMembersOfOtherVersions(t *testing.T) {
	t.Parallel()
	address := []cni.IP{{Address: prefix("10.0.0.2/24")}}
	for _, test := range []struct {
		in   string
		want cni.Result
	}{
		{`{"cniVersion":"1.0.0","ips":[{"version":4,"address":"10.0.0.2/24"}]}`,
			cni.Result{IPs: address}},
		{`{"cniVersion":"1.1.0","ip":"10.0.0.2","ips":[{"address":"10.0.0.2/24"}]}`,
			cni.Result{IPs: address}},
		{`{"cniVersion":"0.3.1","ip":[{"version":"4","address":"10.0.0.2/24"}]}`, cni.Result{}},
		{`{"cniVersion":"0.3.0","ip":7,"ips":[{"version":"4","address":"10.0.0.2/24"}]}`,
			cni.Result{IPs: address}},
		{
			`{"cniVersion":"0.4.0","interfaces":[{"name":"a","mtu":"big","socketPath":1,"pciID":[]}]}`,
			cni.Result{Interfaces: []cni.Interface{{Name: "a"}}},
		},
		{
			`{"cniVersion":"0.2.0","interfaces":5,"ips":"x","routes":{},"ip4":{"ip":"10.0.0.2/24","routes":[{"dst":"10.0.0.0/8","mtu":"x"}]}}`,
			cni.Result{IPs: address, Routes: []cni.Route{{Dst: prefix("10.0.0.0/8")}}},
		},
		{`{"cniVersion":"1.1.0","ip4":5,"ips":[{"address":"10.0.0.2/24"}]}`,
			cni.Result{IPs: address}},
		{`{"cniVersion":"1.1.0","extra":{"a":[1]},"ips":[{"address":"10.0.0.2/24","extra":1}]}`,
			cni.Result{IPs: address}},
	} {
		r, err := cni.DecodeResultStrict([]byte(test.in), cni.V110)
		if err != nil {
			t.Errorf("%s: %v", test.in, err)
			continue
		}
		if diff := cmp.Diff(test.want, *r, sameResult); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.in, diff)
		}
	}
}

// RES-10, RES-11, RES-18: a tolerant reader repairs the mistakes that libcni accepts, and reports
// each repair once. A strict reader refuses them all except the index -1.
func TestRepairResult(t *testing.T) {
	t.Parallel()
	const eth0 = `"interfaces":[{"name":"eth0"}],`
	v4 := []cni.IP{{Address: prefix("10.0.0.2/24")}}
	v6 := []cni.IP{{Address: prefix("fd00::2/64")}}
	interfaces := []cni.Interface{{Name: "eth0"}}
	for _, row := range []struct {
		name, version, in string
		want              cni.Result
		repairs           []string
	}{
		{"index without interfaces (example of 0.3.1)", "0.3.1",
			`"ips":[{"version":"4","address":"10.0.0.2/24","interface":0}]`,
			cni.Result{IPs: v4},
			[]string{"ips[0]: interface 0 is not one of 0: it counts as absent"}},
		{"index after the interfaces", "1.0.0", eth0 +
			`"ips":[{"address":"10.0.0.2/24","interface":1}]`,
			cni.Result{Interfaces: interfaces, IPs: v4},
			[]string{"ips[0]: interface 1 is not one of 1: it counts as absent"}},
		{"negative index", "1.1.0", eth0 + `"ips":[{"address":"10.0.0.2/24","interface":-2}]`,
			cni.Result{Interfaces: interfaces, IPs: v4},
			[]string{"ips[0]: interface -2 is not one of 1: it counts as absent"}},
		{"index -1", "1.1.0", eth0 + `"ips":[{"address":"10.0.0.2/24","interface":-1}]`,
			cni.Result{Interfaces: interfaces, IPs: v4},
			[]string{"ips[0]: interface -1 is not one of 1: it counts as absent"}},
		{"no version", "0.4.0", `"ips":[{"address":"fd00::2/64"}]`,
			cni.Result{IPs: v6},
			[]string{`ips[0] has version "" and address fd00::2/64: it counts as 6`}},
		{"wrong version", "0.4.0", `"ips":[{"version":"6","address":"10.0.0.2/24"}]`,
			cni.Result{IPs: v4},
			[]string{`ips[0] has version "6" and address 10.0.0.2/24: it counts as 4`}},
		{"gateway of the other family", "0.3.0",
			`"ips":[{"version":"4","address":"10.0.0.2/24","gateway":"fe80::1"}]`,
			cni.Result{IPs: []cni.IP{{Address: prefix("10.0.0.2/24"), Gateway: addr("fe80::1")}}},
			[]string{"ips[0] has address 10.0.0.2/24 and gateway fe80::1: it is kept"}},
		{"next hop of the other family", "0.4.0", `"routes":[{"dst":"::/0","gw":"10.0.0.1"}]`,
			cni.Result{Routes: []cni.Route{{Dst: prefix("::/0"), GW: addr("10.0.0.1")}}},
			[]string{"routes[0] has dst ::/0 and gw 10.0.0.1: it is kept"}},
		{"gateway of the other family in 0.2.0", "0.2.0",
			`"ip4":{"ip":"10.0.0.2/24","gateway":"fe80::1"}`,
			cni.Result{IPs: []cni.IP{{Address: prefix("10.0.0.2/24"), Gateway: addr("fe80::1")}}},
			[]string{"ips[0] has address 10.0.0.2/24 and gateway fe80::1: it is kept"}},
		{"ip4 holds IPv6", "0.1.0", `"ip4":{"ip":"fd00::2/64"}`,
			cni.Result{IPs: v6}, []string{"ip4 holds fd00::2/64: its family counts"}},
		{"ip4 holds an IPv6 route", "0.2.0", `"ip4":{"ip":"10.0.0.2/24","routes":[{"dst":"::/0"}]}`,
			cni.Result{IPs: v4, Routes: []cni.Route{{Dst: prefix("::/0")}}},
			[]string{"ip4 holds route ::/0: its family counts"}},
		{"negative numbers", "1.1.0",
			`"interfaces":[{"name":"eth0","mtu":-1}],"routes":[{"dst":"::/0","mtu":-2,"advmss":-3,"priority":-4,"table":-5,"scope":-6}]`,
			cni.Result{Interfaces: interfaces, Routes: []cni.Route{{Dst: prefix("::/0")}}},
			[]string{
				"interfaces[0]: mtu -1 is not an unsigned 32-bit number: it counts as absent",
				"routes[0]: mtu -2 is not an unsigned 32-bit number: it counts as absent",
				"routes[0]: advmss -3 is not an unsigned 32-bit number: it counts as absent",
				"routes[0]: priority -4 is not an unsigned 32-bit number: it counts as absent",
				"routes[0]: table -5 is not an unsigned 32-bit number: it counts as absent",
				"routes[0]: scope -6 is not an unsigned 32-bit number: it counts as absent",
			}},
		{"several faults", "0.4.0",
			`"ips":[{"version":"4","address":"10.0.0.2/24","interface":0},{"version":"4","address":"fd00::2/64"}]`,
			cni.Result{IPs: append(v4[:1:1], v6...)}, []string{
				"ips[0]: interface 0 is not one of 0: it counts as absent",
				`ips[1] has version "4" and address fd00::2/64: it counts as 6`,
			}},
		{"nothing wrong", "1.0.0", eth0 +
			`"ips":[{"address":"10.0.0.2/24","interface":0}],"routes":[{"dst":"0.0.0.0/0","gw":"fe80::1"}]`,
			cni.Result{
				Interfaces: interfaces, IPs: []cni.IP{{Address: prefix("10.0.0.2/24"),
					Interface: cni.Some(0)}},
				Routes: []cni.Route{{Dst: prefix("0.0.0.0/0"), GW: addr("fe80::1")}},
			}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			in := []byte(`{"cniVersion":"` + row.version + `",` + row.in + `}`)
			r, repairs, err := cni.RepairResult(in, 0)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, *r, sameResult); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(row.repairs, repairs); diff != "" {
				t.Errorf("repairs (-want +got):\n%s", diff)
			}
			if again, err := cni.DecodeResult(in, 0); err != nil ||
				!cmp.Equal(r, again, sameResult) {
				t.Errorf("DecodeResult: %+v, %v", again, err)
			}
			allowed := row.repairs == nil || row.name == "index -1"
			if strict, err := cni.DecodeResultStrict(in, 0); (err == nil) != allowed ||
				err != nil && cni.CodeOf(err) != cni.CodeInvalidConfig {
				t.Errorf("strict: %+v, %v", strict, err)
			}
		})
	}
}

// TestRepairAbove32Bits: a number above 32 bits is not decoded where int has 32 bits.
func TestRepairAbove32Bits(t *testing.T) {
	t.Parallel()
	const in = `{"cniVersion":"1.1.0","routes":[{"dst":"::/0","scope":4294967296}]}`
	r, repairs, err := cni.RepairResult([]byte(in), 0)
	if math.MaxInt == math.MaxInt32 {
		if cni.CodeOf(err) != cni.CodeDecodingFailure ||
			!strings.Contains(err.Error(), "to 2147483647, found 4294967296") {
			t.Errorf("%v, want a decoding failure", err)
		}
		return
	}
	want := []string{
		"routes[0]: scope 4294967296 is not an unsigned 32-bit number: it counts as absent",
	}
	if diff := cmp.Diff(want, repairs); err != nil || diff != "" || r.Routes[0].Scope.Set {
		t.Errorf("%v, %v, repairs (-want +got):\n%s", r, err, diff)
	}
}

// RES-10: among members that differ in case, the one in the spelling of the specification counts,
// regardless of order.
func TestDecodeResultPrefersExactKeys(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		`{"cniVersion":"1.1.0","interfaces":[{"NAME":"x","name":"eth0","pciid":"y","pciID":"z"}],"ips":[{"Address":"192.0.2.9/24","address":"10.0.0.2/24","GATEWAY":"192.0.2.1"}],"DNS":{"domain":"x"},"dns":{"domain":"d","Domain":"x"}}`,
		`{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","NAME":"x","pciID":"z","pciid":"y"}],"ips":[{"address":"10.0.0.2/24","Address":"192.0.2.9/24","GATEWAY":"192.0.2.1"}],"dns":{"Domain":"x","domain":"d"},"DNS":{"domain":"x"}}`,
		`{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","PciID":5,"pciID":"z"}],"ips":[{"address":"10.0.0.2/24","addreſs":5,"GATEWAY":"192.0.2.1"}],"dns":{"domain":"d"}}`,
	} {
		want := cni.Result{
			Interfaces: []cni.Interface{{Name: "eth0", PciID: "z"}},
			IPs:        []cni.IP{{Address: prefix("10.0.0.2/24"), Gateway: addr("192.0.2.1")}},
			DNS:        cni.DNS{Domain: "d"},
		}
		for range 20 { // map order is random
			r, err := cni.DecodeResult([]byte(in), 0)
			if err != nil {
				t.Fatalf("%s: %v", in, err)
			}
			if diff := cmp.Diff(want, *r, sameResult); diff != "" {
				t.Fatalf("%s (-want +got):\n%s", in, diff)
			}
		}
	}
	in := `{"cniVersion":"0.2.0","ip4":{"IP":"192.0.2.9/24","ip":"10.0.0.2/24","routes":[{"dst":"10.1.0.0/16","Dst":"10.2.0.0/16"}]}}`
	r, err := cni.DecodeResult([]byte(in), 0)
	if err != nil || r.IPs[0].Address != prefix("10.0.0.2/24") ||
		r.Routes[0].Dst != prefix("10.1.0.0/16") {
		t.Errorf("%s: %+v, %v", in, r, err)
	}
}

// RES-10, CNV-10: a plugin passes on the values of an earlier plugin unchanged, even values that
// its own result may not contain.
func TestRelay(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		version cni.Version
		from    string
	}{
		{cni.V010, `{"cniVersion":"0.1.0","dns":{}}`},
		{cni.V020, `{"cniVersion":"0.2.0","dns":{"domain":"d"}}`},
		{cni.V020,
			`{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24","gateway":"fe80::1","routes":[{"dst":"0.0.0.0/0","gw":"fe80::1"}]},"dns":{}}`},
		{cni.V040,
			`{"cniVersion":"0.4.0","ips":[{"version":"6","address":"fd00::2/64","gateway":"10.0.0.1"}],"routes":[{"dst":"::/0","gw":"10.0.0.1"}],"dns":{}}`},
	} {
		from, err := cni.DecodeResult([]byte(row.from), row.version)
		if err != nil {
			t.Fatal(err)
		}
		encoded, lost, err := from.Clone().Relay(row.version, from)
		if string(encoded) != row.from || lost != nil || err != nil {
			t.Errorf("%s is passed on as %s, lost %q, %v", row.from, encoded, lost, err)
		}
	}
	own := &cni.Result{
		IPs:    []cni.IP{{Address: prefix("10.0.0.2/24"), Gateway: addr("fe80::1")}},
		Routes: []cni.Route{{Dst: prefix("0.0.0.0/0"), GW: addr("fe80::1")}},
	}
	encoded, lost, err := own.Relay(cni.V040, &cni.Result{})
	const want = `{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.0.0.2/24"}],"dns":{}}`
	if diff := cmp.Diff([]string{"address 10.0.0.2/24: gateway fe80::1", "route 0.0.0.0/0"},
		lost); diff != "" || string(encoded) != want || err != nil {
		t.Errorf("own result: %s, %v %s", encoded, err, diff)
	}
	links := &cni.Result{Interfaces: []cni.Interface{{Name: "eth0"}}}
	if encoded, _, err := links.Relay(cni.V020,
		&cni.Result{}); cni.CodeOf(err) != cni.CodeInvalidConfig {
		t.Errorf("interface without address in 0.2.0: %s, %v", encoded, err)
	}
	several := conversions["several-addresses"]
	_, lost, err = several.Relay(cni.V020, &several)
	if diff := cmp.Diff([]string{"address 10.7.0.3/16", "address 2001:db8:7::3/64",
		"address 192.0.2.7/32"}, lost); diff != "" || err != nil {
		t.Errorf("lost in 0.2.0: %v %s", err, diff)
	}
}

// RES-10, CNV-14: nulls and omissions are errors with a code.
func TestDecodeResultRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, in string
		code     cni.Code
		says     string
	}{
		{"error object", `{"cniVersion":"1.1.0","code":7,"msg":"no bridge"}`,
			cni.CodeDecodingFailure, `"no bridge"`},
		{"null", `null`, cni.CodeDecodingFailure, "null"},
		{"byte order mark", "\xef\xbb\xbf{}", cni.CodeDecodingFailure, "byte order mark"},
		{"gateway with a zone", `{"ips":[{"address":"fe80::2/64","gateway":"fe80::1%eth0"}]}`, cni.CodeDecodingFailure, "zone"},
		{"gateway as number", `{"ips":[{"address":"10.0.0.2/24","gateway":1}]}`, cni.CodeDecodingFailure, "ips: gateway: expected a string, found a number"},
		{"dns as text", `{"dns":"10.0.0.53"}`, cni.CodeDecodingFailure, "dns: expected an object, found a string"},
		{"null address", `{"ips":[null]}`, cni.CodeInvalidConfig, "ips[0] is null"},
		{"null interface", `{"cniVersion":"0.4.0","interfaces":[null]}`, cni.CodeInvalidConfig, "interfaces[0] is null"},
		{"null route", `{"routes":[{"dst":"::/0"},null]}`, cni.CodeInvalidConfig, "routes[1] is null"},
		{"null address of 0.3.1", `{"cniVersion":"0.3.1","ips":[null]}`, cni.CodeInvalidConfig, "ips[0] is null"},
		{"routes as object", `{"routes":{}}`, cni.CodeDecodingFailure, "routes: expected an array, found an object"},
		{"routes as object in 0.3.1", `{"cniVersion":"0.3.1","routes":{}}`, cni.CodeDecodingFailure, "routes: expected an array, found an object"},
		{"null route of 0.2.0", `{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24","routes":[null]}}`, cni.CodeInvalidConfig, "ip4: routes[0] is null"},
		{"no ip in 0.2.0", `{"cniVersion":"0.2.0","ip6":{"gateway":"::1"}}`, cni.CodeInvalidConfig, "ip6 has no ip"},
		{"ip4 as text in 0.2.0", `{"cniVersion":"0.2.0","ip4":"10.0.0.2/24"}`, cni.CodeDecodingFailure, "ip4: expected an object, found a string"},
		{"no dst in 0.2.0", `{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24","routes":[{"gw":"10.0.0.1"}]}}`, cni.CodeInvalidConfig, "dst is missing"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r, err := cni.DecodeResult([]byte(test.in), cni.V110)
			if cni.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%+v, code %d: %v, want %d and %q", r, cni.CodeOf(err), err, test.code,
					test.says)
			}
		})
	}
}

// Since 1.0.0 a next hop may have the other family (DIS-34).
func TestDecodeResultAllowsNextHopOfOtherFamily(t *testing.T) {
	t.Parallel()
	in := []byte(`{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/24","gateway":"fe80::1"}],"routes":[{"dst":"0.0.0.0/0","gw":"fe80::1"}]}`)
	if _, err := cni.DecodeResultStrict(in, cni.V100); err != nil {
		t.Error(err)
	}
}

// An object with code, msg and a member of a result is a result.
func TestDecodeResultWithCodeAndMsg(t *testing.T) {
	t.Parallel()
	r, err := cni.DecodeResult([]byte(`{"code":0,"msg":"ok","ips":[{"address":"10.0.0.2/24"}]}`),
		cni.V110)
	if err != nil || len(r.IPs) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// Addresses are written canonically (RES-12).
// RES-09: an empty gateway means none.
func TestDecodeResultCanonicalises(t *testing.T) {
	t.Parallel()
	r, err := cni.DecodeResult([]byte(`{"ips":[{"address":"2001:DB8:0:0::2/64","gateway":""}]}`),
		cni.V110)
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Encode(cni.V110)
	if want := `{"cniVersion":"1.1.0","ips":[{"address":"2001:db8::2/64"}]}`; string(b) != want ||
		err != nil {
		t.Errorf("%s, %v, want %s", b, err, want)
	}
}
