package cni_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
)

func TestDecodeResultTakesVersionOfCall(t *testing.T) {
	t.Parallel()
	for _, member := range []string{``, `"cniVersion":"",`, `"cniVersion":4,`, `"cniVersion":null,`} {
		in := []byte(`{` + member + `"ips":[{"address":"10.0.0.2/24"}]}`)
		r, err := cni.DecodeResult(in, cni.V110)
		if err != nil || len(r.IPs) != 1 {
			t.Errorf("%s: %+v, %v", in, r, err)
		}
		// Read as 0.1.0 there is no address in it.
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
		if v, err := cni.ResultVersion([]byte(test.in), cni.V110); v != test.want || cni.CodeOf(err) != test.code {
			t.Errorf("%s: %v, %v", test.in, v, err)
		}
	}
}

// Members that a version does not have are unknown there and must not be looked at, whatever they hold; those of no version
// are lost (RES-08).
func TestDecodeResultIgnoresMembersOfOtherVersions(t *testing.T) {
	t.Parallel()
	address := []cni.IP{{Address: prefix("10.0.0.2/24")}}
	for _, test := range []struct {
		in   string
		want cni.Result
	}{
		{`{"cniVersion":"1.0.0","ips":[{"version":4,"address":"10.0.0.2/24"}]}`, cni.Result{IPs: address}},
		{`{"cniVersion":"1.1.0","ip":"10.0.0.2","ips":[{"address":"10.0.0.2/24"}]}`, cni.Result{IPs: address}},
		{`{"cniVersion":"0.3.1","ip":[{"version":"4","address":"10.0.0.2/24"}]}`, cni.Result{}},
		{`{"cniVersion":"0.3.0","ip":7,"ips":[{"version":"4","address":"10.0.0.2/24"}]}`, cni.Result{IPs: address}},
		{
			`{"cniVersion":"0.4.0","interfaces":[{"name":"a","mtu":"big","socketPath":1,"pciID":[]}]}`,
			cni.Result{Interfaces: []cni.Interface{{Name: "a"}}},
		},
		{
			`{"cniVersion":"0.2.0","interfaces":5,"ips":"x","routes":{},"ip4":{"ip":"10.0.0.2/24","routes":[{"dst":"10.0.0.0/8","mtu":"x"}]}}`,
			cni.Result{IPs: address, Routes: []cni.Route{{Dst: prefix("10.0.0.0/8")}}},
		},
		{`{"cniVersion":"1.1.0","ip4":5,"ips":[{"address":"10.0.0.2/24"}]}`, cni.Result{IPs: address}},
		{`{"cniVersion":"1.1.0","extra":{"a":[1]},"ips":[{"address":"10.0.0.2/24","extra":1}]}`, cni.Result{IPs: address}},
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

// RES-11, RES-18: a version that is missing is derived, one that contradicts its address is refused.
func TestDecodeResultTolerance(t *testing.T) {
	t.Parallel()
	in := []byte(`{"cniVersion":"0.4.0","ips":[{"address":"2001:db8::2/64","interface":-1}]}`)
	r, err := cni.DecodeResult(in, cni.V040)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(cni.Result{IPs: []cni.IP{{Address: prefix("2001:db8::2/64")}}}, *r, sameResult); diff != "" {
		t.Errorf("tolerant (-want +got):\n%s", diff)
	}
	if r, err := cni.DecodeResultStrict(in, cni.V040); cni.CodeOf(err) != cni.CodeInvalidConfig {
		t.Errorf("strict: %+v, %v", r, err)
	}
	for _, in := range []string{
		`{"ips":[{"version":"6","address":"10.0.0.2/24"}]}`, // a contradiction, not an omission
		`{"interfaces":[{"name":"a"}],"ips":[{"version":"4","address":"10.0.0.2/24","interface":-2}]}`,
	} {
		if r, err := cni.DecodeResult([]byte(in), cni.V040); cni.CodeOf(err) != cni.CodeInvalidConfig {
			t.Errorf("%s: %+v, %v", in, r, err)
		}
	}
}

// RES-10, CNV-14: nulls, omissions and contradictions are errors with a code.
func TestDecodeResultRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, in string
		code     cni.Code
		says     string
	}{
		{"error object", `{"cniVersion":"1.1.0","code":7,"msg":"no bridge"}`, cni.CodeDecodingFailure, `"no bridge"`},
		{"null", `null`, cni.CodeDecodingFailure, "null"},
		{"byte order mark", "\xef\xbb\xbf{}", cni.CodeDecodingFailure, "byte order mark"},
		{"gateway with a zone", `{"ips":[{"address":"fe80::2/64","gateway":"fe80::1%eth0"}]}`, cni.CodeDecodingFailure, "zone"},
		{"gateway as number", `{"ips":[{"address":"10.0.0.2/24","gateway":1}]}`, cni.CodeDecodingFailure, "ips: gateway: a JSON number"},
		{"dns as text", `{"dns":"10.0.0.53"}`, cni.CodeDecodingFailure, "dns: a JSON string"},
		{"null address", `{"ips":[null]}`, cni.CodeInvalidConfig, "ips[0] is null"},
		{"null interface", `{"cniVersion":"0.4.0","interfaces":[null]}`, cni.CodeInvalidConfig, "interfaces[0] is null"},
		{"null route", `{"routes":[{"dst":"::/0"},null]}`, cni.CodeInvalidConfig, "routes[1] is null"},
		{"null address of 0.3.1", `{"cniVersion":"0.3.1","ips":[null]}`, cni.CodeInvalidConfig, "ips[0] is null"},
		{"routes as object", `{"routes":{}}`, cni.CodeDecodingFailure, "routes: a JSON object"},
		{"routes as object in 0.3.1", `{"cniVersion":"0.3.1","routes":{}}`, cni.CodeDecodingFailure, "routes: a JSON object"},
		{"null route of 0.2.0", `{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24","routes":[null]}}`, cni.CodeInvalidConfig, "ip4: routes[0] is null"},
		{"no ip in 0.2.0", `{"cniVersion":"0.2.0","ip6":{"gateway":"::1"}}`, cni.CodeInvalidConfig, "ip6 has no ip"},
		{"ip4 as text in 0.2.0", `{"cniVersion":"0.2.0","ip4":"10.0.0.2/24"}`, cni.CodeDecodingFailure, "ip4: a JSON string"},
		{"ip6 holds IPv4 in 0.2.0", `{"cniVersion":"0.2.0","ip6":{"ip":"10.0.0.2/24"}}`, cni.CodeInvalidConfig, "ip6 holds 10.0.0.2/24"},
		{"ip4 holds an IPv6 route", `{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24","routes":[{"dst":"::/0"}]}}`, cni.CodeInvalidConfig, "route ::/0"},
		{"no dst in 0.2.0", `{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24","routes":[{"gw":"10.0.0.1"}]}}`, cni.CodeInvalidConfig, "dst is missing"},
		{"gateway of the other family in 0.2.0", `{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24","gateway":"fe80::1"}}`, cni.CodeInvalidConfig, "gateway fe80::1"},
		{"route by the other family in 0.2.0", `{"cniVersion":"0.2.0","ip6":{"ip":"::2/64","routes":[{"dst":"::/0","gw":"10.0.0.1"}]}}`, cni.CodeInvalidConfig, "gw 10.0.0.1"},
		{"gateway of the other family in 0.4.0", `{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.0.0.2/24","gateway":"fe80::1"}]}`, cni.CodeInvalidConfig, "gateway fe80::1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r, err := cni.DecodeResult([]byte(test.in), cni.V110)
			if cni.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%+v, code %d: %v, want %d and %q", r, cni.CodeOf(err), err, test.code, test.says)
			}
		})
	}
}

// From 1.0.0 on a next hop may be of the other family (DIS-34).
func TestDecodeResultAllowsNextHopOfOtherFamily(t *testing.T) {
	t.Parallel()
	in := []byte(`{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/24","gateway":"fe80::1"}],"routes":[{"dst":"0.0.0.0/0","gw":"fe80::1"}]}`)
	if _, err := cni.DecodeResultStrict(in, cni.V100); err != nil {
		t.Error(err)
	}
}

// An object with code and msg that says something as a result is one.
func TestDecodeResultWithCodeAndMsg(t *testing.T) {
	t.Parallel()
	r, err := cni.DecodeResult([]byte(`{"code":0,"msg":"ok","ips":[{"address":"10.0.0.2/24"}]}`), cni.V110)
	if err != nil || len(r.IPs) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// Addresses are written canonically (RES-12).
// RES-09: an empty gateway is none.
func TestDecodeResultCanonicalises(t *testing.T) {
	t.Parallel()
	r, err := cni.DecodeResult([]byte(`{"ips":[{"address":"2001:DB8:0:0::2/64","gateway":""}]}`), cni.V110)
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Encode(cni.V110)
	if want := `{"cniVersion":"1.1.0","ips":[{"address":"2001:db8::2/64"}]}`; string(b) != want || err != nil {
		t.Errorf("%s, %v, want %s", b, err, want)
	}
}
