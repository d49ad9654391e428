package cni_test

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
)

func TestCloneIsDeep(t *testing.T) {
	t.Parallel()
	full := conversions["full"]
	encoded, err := full.Encode(cni.V110)
	if err != nil {
		t.Fatal(err)
	}
	decode := func() *cni.Result {
		r, err := cni.DecodeResultStrict(encoded, cni.V110)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	original := decode()
	c := original.Clone()
	if diff := cmp.Diff(decode(), c, sameResult); diff != "" {
		t.Fatalf("clone (-want +got):\n%s", diff)
	}
	c.Interfaces[0].Name = "changed"
	c.IPs[0].Address = prefix("192.0.2.1/32")
	c.Routes[0].Priority = 99
	c.DNS.Nameservers[0], c.DNS.Search[0], c.DNS.Options[0] = "changed", "changed", "changed"
	if diff := cmp.Diff(decode(), original, sameResult); diff != "" {
		t.Errorf("original after a change of the clone (-want +got):\n%s", diff)
	}
}

func TestSandboxed(t *testing.T) {
	t.Parallel()
	r := cni.Result{Interfaces: []cni.Interface{
		{Name: "eth0"}, {Name: "eth0", Sandbox: "/run/netns/c"},
		{Name: "eth0", Sandbox: "/run/netns/d"},
		{Name: "eth0", Sandbox: "/run/netns/c"},
	}}
	for _, test := range []struct {
		name, sandbox string
		index         int
		ok            bool
	}{
		{"eth0", "/run/netns/c", 3, true}, {"eth0", "/run/netns/d", 2, true},
		{"eth1", "/run/netns/c", 0, false}, {"eth0", "", 0, false},
	} {
		if index, ok := r.Sandboxed(test.name, test.sandbox); index != test.index || ok != test.ok {
			t.Errorf("%s in %q: %d, %v", test.name, test.sandbox, index, ok)
		}
	}
}

// Encode refuses results that a plugin must not print, in every version.
// RES-03
func TestEncodeRefusesInvalid(t *testing.T) {
	t.Parallel()
	ip := cni.IP{Address: prefix("10.0.0.2/24")}
	results := map[string]cni.Result{
		"interface without a name": {IPs: []cni.IP{ip},
			Interfaces: []cni.Interface{{MAC: "02:00:00:00:00:01"}}},
		"interface with a negative mtu": {IPs: []cni.IP{ip},
			Interfaces: []cni.Interface{{Name: "a", MTU: -1}}},
		"no address": {IPs: []cni.IP{ip, {}}},
		"gateway with a zone": {IPs: []cni.IP{{Address: prefix("fe80::2/64"),
			Gateway: addr("fe80::1%eth0")}}},
		"index out of range": {IPs: []cni.IP{{Address: ip.Address,
			Interface: cni.Some(0)}}},
		"negative index": {
			Interfaces: []cni.Interface{{Name: "a"}},
			IPs:        []cni.IP{{Address: ip.Address, Interface: cni.Some(-1)}},
		},
		"route without dst": {IPs: []cni.IP{ip},
			Routes: []cni.Route{{GW: addr("10.0.0.1")}}},
		"route with a zone": {IPs: []cni.IP{ip},
			Routes: []cni.Route{{Dst: prefix("::/0"), GW: addr("fe80::1%eth0")}}},
		"route with mtu below 0": {IPs: []cni.IP{ip},
			Routes: []cni.Route{{Dst: prefix("::/0"), MTU: -1}}},
		"route with table below 0": {IPs: []cni.IP{ip},
			Routes: []cni.Route{{Dst: prefix("::/0"), Table: cni.Some(-1)}}},
	}
	if above := int64(math.MaxUint32 + 1); above <= math.MaxInt { // not on 32-bit processors
		results["route with scope above 32 bits"] = cni.Result{IPs: []cni.IP{ip},
			Routes: []cni.Route{{Dst: prefix("::/0"), Scope: cni.Some(int(above))}}}
	}
	for name, r := range results {
		for _, v := range cni.Versions() {
			if b, err := r.Encode(v); cni.CodeOf(err) != cni.CodeInvalidConfig {
				t.Errorf("%s: %v: %s, %v", name, v, b, err)
			}
		}
	}
}

// maxNumber is the largest number of 32 bits that fits in an int, which has 32 bits on some
// processors.
const maxNumber = min(math.MaxInt, math.MaxUint32)

func TestRouteJSON(t *testing.T) {
	t.Parallel()
	text := fmt.Sprintf(`{"dst":"10.1.2.3/8","gw":"10.0.0.1","mtu":1400,"advmss":1360,`+
		`"priority":%d,"table":0,"scope":254}`, maxNumber)
	want := cni.Route{
		Dst: prefix("10.1.2.3/8"), GW: addr("10.0.0.1"), MTU: 1400, AdvMSS: 1360,
		Priority: maxNumber,
		Table:    cni.Some(0), Scope: cni.Some(254),
	}
	var r cni.Route
	if err := json.Unmarshal([]byte(text), &r); err != nil || r != want {
		t.Errorf("%+v, %v", r, err)
	}
	if b := marshal(t, r); string(b) != text {
		t.Errorf("%s", b)
	}
	for in, code := range map[string]cni.Code{
		`{"gw":"10.0.0.1"}`:                     cni.CodeInvalidConfig,
		`{"dst":"10.0.0.0/8","priority":-1}`:    cni.CodeInvalidConfig,
		`{"dst":"10.0.0.0"}`:                    cni.CodeDecodingFailure,
		`{"dst":"::/0","gw":"fe80::1%eth0"}`:    cni.CodeDecodingFailure,
		`{"dst":"10.0.0.0/8","priority":"low"}`: cni.CodeDecodingFailure,
	} {
		kept := want
		if err := kept.UnmarshalJSON([]byte(in)); cni.CodeOf(err) != code || kept != want {
			t.Errorf("%s: %+v, %v, want code %d", in, kept, err, code)
		}
	}
	if b, err := json.Marshal(cni.Route{}); err == nil {
		t.Errorf("route without dst marshalled as %s", b)
	}
}
