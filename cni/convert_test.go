package cni_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }

// sameResult compares results by value; nil and empty lists are equal.
var sameResult = cmp.Options{cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmpopts.EquateEmpty()}

// conversions are results; testdata/convert has their encodings in all versions.
var conversions = map[string]cni.Result{
	"full": {
		Interfaces: []cni.Interface{
			{Name: "br0", MAC: "02:00:00:00:00:01", MTU: 1450},
			{Name: "eth0", MAC: "02:00:00:00:00:02", MTU: 1450, Sandbox: "/run/netns/c",
				SocketPath: "/run/vhost/c.sock", PciID: "0000:3b:02.1"},
		},
		IPs: []cni.IP{
			{Address: prefix("10.1.2.3/24"), Gateway: addr("10.1.2.1"), Interface: cni.Some(1)},
			{Address: prefix("2001:db8::3/64"), Gateway: addr("2001:db8::1"),
				Interface: cni.Some(1)},
		},
		Routes: []cni.Route{
			{Dst: prefix("0.0.0.0/0"), GW: addr("10.1.2.1")},
			{Dst: prefix("10.9.0.0/16"), MTU: 1400, AdvMSS: 1360, Priority: 20,
				Table: cni.Some(100), Scope: cni.Some(253)},
			{Dst: prefix("::/0"), GW: addr("2001:db8::1"), Priority: 5},
		},
		DNS: cni.DNS{
			Nameservers: []string{"10.1.2.1", "2001:db8::53"}, Domain: "example.org",
			Search: []string{"a.example.org", "b.example.org"}, Options: []string{"ndots:2"},
		},
	},
	"ipam": {
		IPs:    []cni.IP{{Address: prefix("10.1.2.3/24"), Gateway: addr("10.1.2.1")}},
		Routes: []cni.Route{{Dst: prefix("0.0.0.0/0")}},
	},
	"several-addresses": {
		Interfaces: []cni.Interface{{Name: "eth0", Sandbox: "/run/netns/c"},
			{Name: "net1", Sandbox: "/run/netns/c"}},
		IPs: []cni.IP{
			{Address: prefix("2001:db8::3/64"), Interface: cni.Some(0)},
			{Address: prefix("10.1.2.3/24"), Gateway: addr("10.1.2.1"), Interface: cni.Some(0)},
			{Address: prefix("10.7.0.3/16"), Gateway: addr("10.7.0.1"), Interface: cni.Some(1)},
			{Address: prefix("2001:db8:7::3/64"), Interface: cni.Some(1)},
			{Address: prefix("192.0.2.7/32")},
		},
		Routes: []cni.Route{
			{Dst: prefix("2001:db8:8::/48"), GW: addr("2001:db8::1")},
			{Dst: prefix("10.8.0.0/16"), GW: addr("10.1.2.1")},
			{Dst: prefix("::/0"), GW: addr("2001:db8::1")},
			{Dst: prefix("0.0.0.0/0"), GW: addr("10.7.0.1")},
		},
	},
	"mapped-stays-ipv6": {
		IPs: []cni.IP{
			{Address: prefix("::ffff:10.1.2.3/120"), Gateway: addr("::ffff:10.1.2.1")},
			{Address: prefix("10.1.2.3/24"), Gateway: addr("10.1.2.1")},
		},
		Routes: []cni.Route{{Dst: prefix("::ffff:0:0/96"), GW: addr("::ffff:10.1.2.1")}},
	},
	"loopback-without-address": {Interfaces: []cni.Interface{{Name: "lo", Sandbox: "/run/netns/c",
		MTU: 65536}}},
	"empty": {},
	"zero-table-and-scope": {
		IPs: []cni.IP{{Address: prefix("10.1.2.3/24")}},
		Routes: []cni.Route{
			{Dst: prefix("10.8.0.0/16"), Table: cni.Some(0), Scope: cni.Some(0)},
			{Dst: prefix("10.9.0.0/16"), Table: cni.Some(254)},
		},
	},
	"route-without-address-of-its-family": {
		IPs: []cni.IP{{Address: prefix("10.1.2.3/24")}},
		Routes: []cni.Route{{Dst: prefix("::/0"), GW: addr("fe80::1")},
			{Dst: prefix("10.8.0.0/16")}},
	},
	"gateway-of-the-other-family": {
		IPs: []cni.IP{
			{Address: prefix("10.1.2.3/24"), Gateway: addr("fe80::1")},
			{Address: prefix("2001:db8::3/64"), Gateway: addr("2001:db8::1")},
		},
		Routes: []cni.Route{{Dst: prefix("0.0.0.0/0"), GW: addr("fe80::1")},
			{Dst: prefix("::/0"), GW: addr("fe80::1")}},
	},
	"host-bits": {
		IPs:    []cni.IP{{Address: prefix("10.1.2.3/8")}},
		Routes: []cni.Route{{Dst: prefix("10.1.2.3/8")}},
	},
	"dns-alone": {DNS: cni.DNS{Nameservers: []string{"192.0.2.53"}, Search: []string{"<a>&b"}}},
}

// CNV-08, CNV-09, CNV-10, CNV-13, RES-01, RES-13, DIS-16, DIS-17: the form of results in each
// version.
func TestConversions(t *testing.T) {
	t.Parallel()
	for name, r := range conversions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			for _, v := range cni.Versions() {
				fmt.Fprintf(&b, "== %s\n%s", v, conversion(t, r, v))
			}
			golden := filepath.Join("testdata", "convert", name+".txt")
			if *update {
				if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), b.String()); diff != "" {
				t.Errorf("conversions (-want +got):\n%s", diff)
			}
		})
	}
}

// conversion returns the encoding of a result in a version, as text.
func conversion(t *testing.T, r cni.Result, v cni.Version) string {
	t.Helper()
	encoded, err := r.Encode(v)
	if err != nil {
		return fmt.Sprintf("error %d: %v\n", cni.CodeOf(err), err)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, encoded); err != nil || !bytes.Equal(b.Bytes(), encoded) {
		t.Fatalf("%q is not compact JSON: %v", encoded, err)
	}
	b.Reset()
	if err := json.Indent(&b, encoded, "", "  "); err != nil {
		t.Fatal(err)
	}
	b.WriteByte('\n')
	for _, d := range r.Dropped(v) {
		fmt.Fprintf(&b, "dropped: %s\n", d)
	}
	return b.String()
}

func TestEncodeRefusesUnpublishedVersion(t *testing.T) {
	t.Parallel()
	r := conversions["ipam"]
	for _, v := range []cni.Version{0, cni.Newest + 1} {
		if b, err := r.Encode(v); cni.CodeOf(err) != cni.CodeIncompatibleVersion {
			t.Errorf("%d: %s, %v", v, b, err)
		}
	}
}

// Decoding restores the encoded values, and Dropped lists the rest.
func TestDroppedIsWhatIsLost(t *testing.T) {
	t.Parallel()
	forRandomResults(t, func(t *testing.T, r cni.Result) {
		for _, v := range cni.Versions() {
			encoded, err := r.Encode(v)
			if inexpressible := v <= cni.V020 && len(r.IPs) == 0; inexpressible || err != nil {
				if !inexpressible || cni.CodeOf(err) != cni.CodeInvalidConfig {
					t.Errorf("%v: %v", v, err)
				}
				continue
			}
			back, err := cni.DecodeResultStrict(encoded, v)
			if err != nil {
				t.Errorf("%v: %s: %v", v, encoded, err)
				continue
			}
			if diff := cmp.Diff(lost(r, *back), r.Dropped(v), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%v: dropped (-lost +reported):\n%s\n%s", v, diff, encoded)
			}
			if more := invented(r, *back); len(more) > 0 {
				t.Errorf("%v: invented %q: %s", v, more, encoded)
			}
		}
	})
}

// lost compares a result with its decoded encoding and lists the missing values in the words of
// Dropped. Interfaces have different names, and so have addresses and destinations.
func lost(r, back cni.Result) []string {
	var all []string
	tell := func(what string, members ...string) {
		if members = slices.DeleteFunc(members,
			func(s string) bool { return s == "" }); len(members) > 0 {
			all = append(all, what+": "+strings.Join(members, ", "))
		}
	}
	for _, x := range r.Interfaces {
		what := "interface " + x.Name
		y, ok := find(back.Interfaces, func(y cni.Interface) bool { return y.Name == x.Name })
		if !ok {
			all = append(all, what)
			continue
		}
		tell(what, differs("name", x.Name, y.Name), differs("mac", x.MAC, y.MAC),
			differs("sandbox", x.Sandbox, y.Sandbox),
			differs("mtu", x.MTU, y.MTU), differs("socketPath", x.SocketPath, y.SocketPath),
			differs("pciID", x.PciID, y.PciID))
	}
	for _, x := range r.IPs {
		what := "address " + x.Address.String()
		y, ok := find(back.IPs, func(y cni.IP) bool { return y.Address == x.Address })
		if !ok {
			all = append(all, what)
			continue
		}
		index := ""
		if len(back.Interfaces) > 0 { // otherwise it is lost with the interface
			index = differs("interface", x.Interface, y.Interface)
		}
		tell(what, index, differs("gateway "+x.Gateway.String(), x.Gateway, y.Gateway))
	}
	for _, x := range r.Routes {
		what := "route " + x.Dst.String()
		y, ok := find(back.Routes, func(y cni.Route) bool { return y.Dst == x.Dst })
		if !ok {
			all = append(all, what)
			continue
		}
		tell(what, differs("gw", x.GW, y.GW), differs("mtu", x.MTU, y.MTU),
			differs("advmss", x.AdvMSS, y.AdvMSS),
			differs("priority", x.Priority, y.Priority), differs("table", x.Table, y.Table),
			differs("scope", x.Scope, y.Scope))
	}
	if !cmp.Equal(r.DNS, back.DNS, sameResult) {
		all = append(all, "dns")
	}
	return all
}

// invented lists decoded objects that the original lacks. For members that differ, see lost.
func invented(r, back cni.Result) []string {
	return slices.DeleteFunc(lost(back, r),
		func(s string) bool { return strings.Contains(s, ": ") })
}

func differs[T comparable](member string, a, b T) string {
	if a == b {
		return ""
	}
	return member
}

func find[T any](all []T, is func(T) bool) (found T, ok bool) {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i], true
	}
	return found, false
}

// if nothing is dropped, nothing changes, including the order; only 0.1.0 and 0.2.0 put IPv4
// first.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	forRandomResults(t, func(t *testing.T, r cni.Result) {
		for _, v := range cni.Versions() {
			encoded, err := r.Encode(v)
			if err != nil || r.Dropped(v) != nil {
				continue
			}
			back, err := cni.DecodeResultStrict(encoded, v)
			if err != nil {
				t.Errorf("%v: %s: %v", v, encoded, err)
				continue
			}
			want := r.Clone()
			if v <= cni.V020 {
				slices.SortStableFunc(want.IPs,
					func(a, b cni.IP) int { return ipv4First(a.Address, b.Address) })
				slices.SortStableFunc(want.Routes,
					func(a, b cni.Route) int { return ipv4First(a.Dst, b.Dst) })
			}
			if diff := cmp.Diff(want, back, sameResult); diff != "" {
				t.Errorf("%v (-want +got):\n%s", v, diff)
			}
		}
	})
}

func ipv4First(a, b netip.Prefix) int {
	switch {
	case a.Addr().Is4() == b.Addr().Is4():
		return 0
	case a.Addr().Is4():
		return -1
	}
	return 1
}

// A conversion through another version that expresses as much yields the same bytes (CNV-07,
// CNV-11).
func TestConversionByStages(t *testing.T) {
	t.Parallel()
	forRandomResults(t, func(t *testing.T, r cni.Result) {
		for _, by := range cni.Versions() {
			stage, err := r.Encode(by)
			if err != nil {
				continue
			}
			middle, err := cni.DecodeResultStrict(stage, by)
			if err != nil {
				t.Fatal(err)
			}
			for _, to := range cni.Versions() {
				if to > by {
					continue
				}
				want, wantErr := r.Encode(to)
				got, err := middle.Encode(to)
				if diff := cmp.Diff(string(want), string(got)); diff != "" ||
					(err == nil) != (wantErr == nil) {
					t.Errorf("by %v to %v (-direct +staged), %v, %v:\n%s", by, to, wantErr, err,
						diff)
				}
			}
		}
	})
}

// Up-conversion invents nothing: no interface, no index (CNV-05, CNV-12).
func TestUpConversionInventsNothing(t *testing.T) {
	t.Parallel()
	r, err := cni.DecodeResultStrict(vector(t, "result-0.2.0-valid-dual.json"), cni.V020)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []cni.Version{cni.V030, cni.V040, cni.V110} {
		encoded, err := r.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		if m := object(t, encoded); m["interfaces"] != nil ||
			bytes.Contains(encoded, []byte(`"interface"`)) {
			t.Errorf("%v: %s", v, encoded)
		}
	}
}

// CNV-01, CNV-02, CNV-03, CNV-04: a conversion between versions of one form changes only the
// version.
func TestConversionWithinAForm(t *testing.T) {
	t.Parallel()
	forRandomResults(t, func(t *testing.T, r cni.Result) {
		for _, from := range cni.Versions() {
			encoded, err := r.Encode(from)
			if err != nil {
				continue
			}
			for _, to := range cni.Versions() {
				if !from.SameForm(to) {
					continue
				}
				back, err := cni.DecodeResultStrict(encoded, from)
				if err != nil {
					t.Fatal(err)
				}
				got, err := back.Encode(to)
				want := strings.Replace(string(encoded), from.String(), to.String(), 1)
				if diff := cmp.Diff(want, string(got)); diff != "" || err != nil {
					t.Errorf("%v to %v (-want +got), %v:\n%s", from, to, err, diff)
				}
			}
		}
	})
}

// CNV-05: ip4 precedes ip6, regardless of their order in the document; routes keep that order.
func TestConversionFromTheOldestForm(t *testing.T) {
	t.Parallel()
	r, err := cni.DecodeResult([]byte(`{"cniVersion":"0.2.0",
		"ip6":{"ip":"fd00::2/64","gateway":"fd00::1","routes":[{"dst":"::/0","gw":"fd00::1"}]},
		"ip4":{"ip":"10.0.0.2/24","routes":[{"dst":"10.9.0.0/16"},{"dst":"0.0.0.0/0","gw":"10.0.0.1"}]},
		"dns":{"domain":"d"}}`), cni.V020)
	if err != nil {
		t.Fatal(err)
	}
	for v, want := range map[cni.Version]string{
		cni.V040: `{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.0.0.2/24"},{"version":"6","address":"fd00::2/64","gateway":"fd00::1"}],` +
			`"routes":[{"dst":"10.9.0.0/16"},{"dst":"0.0.0.0/0","gw":"10.0.0.1"},{"dst":"::/0","gw":"fd00::1"}],"dns":{"domain":"d"}}`,
		cni.V110: `{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.2/24"},{"address":"fd00::2/64","gateway":"fd00::1"}],` +
			`"routes":[{"dst":"10.9.0.0/16"},{"dst":"0.0.0.0/0","gw":"10.0.0.1"},{"dst":"::/0","gw":"fd00::1"}],"dns":{"domain":"d"}}`,
	} {
		got, err := r.Encode(v)
		if diff := cmp.Diff(want, string(got)); diff != "" || err != nil {
			t.Errorf("%v (-want +got), %v:\n%s", v, err, diff)
		}
	}
}

// CNV-06: a conversion from 0.4.0 to 1.0.0 removes only the version members.
func TestConversionToTheNewestForm(t *testing.T) {
	t.Parallel()
	version := regexp.MustCompile(`"version":"[46]",`)
	forRandomResults(t, func(t *testing.T, r cni.Result) {
		encoded, err := r.Encode(cni.V040)
		if err != nil {
			t.Fatal(err)
		}
		back, err := cni.DecodeResultStrict(encoded, cni.V040)
		if err != nil {
			t.Fatal(err)
		}
		got, err := back.Encode(cni.V100)
		want := version.ReplaceAllString(strings.Replace(string(encoded), "0.4.0", "1.0.0", 1), "")
		want = strings.Replace(want, `,"dns":{}`, "", 1) // omitted if empty since 1.0.0
		if diff := cmp.Diff(want, string(got)); diff != "" || err != nil {
			t.Errorf("(-want +got), %v:\n%s", err, diff)
		}
	})
}

// RES-19: white space and the order of members have no meaning.
func TestFormattingHasNoMeaning(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		if v.Kind != conformance.KindResult || v.Verdict != conformance.Valid {
			continue
		}
		want, err := cni.DecodeResult(v.Data, callVersion(v))
		if err != nil {
			t.Fatal(err)
		}
		indented, err := json.MarshalIndent(object(t, v.Data), "\t", "    ") // sorts the members
		if err != nil {
			t.Fatal(err)
		}
		got, err := cni.DecodeResult(indented, callVersion(v))
		if diff := cmp.Diff(want, got, sameResult); diff != "" || err != nil {
			t.Errorf("%s (-want +got), %v:\n%s", v.File, err, diff)
		}
	}
}

func forRandomResults(t *testing.T, test func(t *testing.T, r cni.Result)) {
	t.Helper()
	for seed := range uint64(250) {
		test(t, randomResult(rand.New(rand.NewPCG(seed, 1))))
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

// randomResult returns a valid result with a random choice of members.
func randomResult(random *rand.Rand) cni.Result {
	maybe := func() bool { return random.IntN(2) == 0 }
	var r cni.Result
	for i := range random.IntN(3) {
		x := cni.Interface{Name: fmt.Sprintf("eth%d", i)}
		choose(random, &x.MAC, "02:00:00:00:00:01")
		choose(random, &x.MTU, 1500)
		choose(random, &x.Sandbox, "/run/netns/c")
		choose(random, &x.SocketPath, "/run/s")
		choose(random, &x.PciID, "0000:00:02.0")
		r.Interfaces = append(r.Interfaces, x)
	}
	gateways := []netip.Addr{{}, addr("10.0.0.1"), addr("2001:db8::1"), addr("::ffff:10.0.0.1")}
	networks := []string{"10.0.%d.2/24", "2001:db8:%x::2/64", "::ffff:10.1.%d.2/120"}
	for i := range random.IntN(5) {
		x := cni.IP{Address: prefix(fmt.Sprintf(pick(random, networks), i)),
			Gateway: pick(random, gateways)}
		if len(r.Interfaces) > 0 && maybe() {
			x.Interface = cni.Some(random.IntN(len(r.Interfaces)))
		}
		r.IPs = append(r.IPs, x)
	}
	for i := range random.IntN(5) {
		x := cni.Route{Dst: prefix(fmt.Sprintf(pick(random, networks), i)),
			GW: pick(random, gateways)}
		choose(random, &x.MTU, 1400)
		choose(random, &x.AdvMSS, 1360)
		choose(random, &x.Priority, maxNumber)
		choose(random, &x.Table, cni.Some(random.IntN(2)))
		choose(random, &x.Scope, cni.Some(random.IntN(2)*253))
		r.Routes = append(r.Routes, x)
	}
	choose(random, &r.DNS.Nameservers, []string{"10.0.0.53", "2001:db8::53"})
	choose(random, &r.DNS.Domain, "example.org")
	choose(random, &r.DNS.Search, []string{"example.org"})
	choose(random, &r.DNS.Options, []string{"ndots:2", "edns0"})
	return r
}

func choose[T any](random *rand.Rand, to *T, value T) {
	if random.IntN(2) == 0 {
		*to = value
	}
}

func pick[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }
