package static_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/static"
)

// ipam is the ipam section of most tests: an address of each family with a gateway.
const ipam = `"ipam":{"type":"static","addresses":[{"address":"10.1.0.9/24","gateway":"10.1.0.1","version":"4"},{"address":"fd00:1::9/64","gateway":"fd00:1::1"}]}`

// runtime creates a host with a network; members are JSON members of the plugin's configuration.
func runtime(t *testing.T, members string) *plugintest.Runtime {
	t.Helper()
	return plugintest.NewRuntime(t, static.Plugin,
		`{"cniVersion":"1.1.0","name":"net","type":"bridge",`+members+`}`)
}

// request returns an ADD with CNI_ARGS.
func request(r *plugintest.Runtime, args string) plugintest.Request {
	q := r.Request(cni.Add, "c")
	q.Args = args
	return q
}

// TestResult: the configuration is passed on unchanged, in its order, without interfaces (IPAM-02,
// IPAM-03, RES-18). Two routes to one destination both stay.
func TestResult(t *testing.T) {
	t.Parallel()
	r := runtime(t, `"ipam":{"type":"static",
		"addresses":[{"address":"10.1.0.9/24"},{"address":"10.2.0.9/16","gateway":"10.2.0.1"}],
		"routes":[
			{"dst":"10.9.0.0/16","gw":"10.1.0.1","mtu":1300,"advmss":1200,"priority":5,"table":100,"scope":253},
			{"dst":"10.8.0.0/16","gw":"10.2.0.1"},{"dst":"10.8.0.0/16","gw":"10.2.0.2"},{"dst":"10.7.7.7/8","table":0,"scope":0}],
		"dns":{"nameservers":["10.1.0.1"],"domain":"d","search":["s"],"options":["o"]}}`)
	var want, got any
	for text, v := range map[string]*any{
		`{"cniVersion":"1.1.0",
			"ips":[{"address":"10.1.0.9/24"},{"address":"10.2.0.9/16","gateway":"10.2.0.1"}],
			"routes":[
				{"dst":"10.9.0.0/16","gw":"10.1.0.1","mtu":1300,"advmss":1200,"priority":5,"table":100,"scope":253},
				{"dst":"10.8.0.0/16","gw":"10.2.0.1"},{"dst":"10.8.0.0/16","gw":"10.2.0.2"},{"dst":"10.7.7.7/8","table":0,"scope":0}],
			"dns":{"nameservers":["10.1.0.1"],"domain":"d","search":["s"],"options":["o"]}}`: &want,
		string(r.Must(request(r, ""))): &got,
	} {
		if err := json.Unmarshal([]byte(text), v); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestVersions: two addresses with gateways, routes and dns in every version (IPAM-05, RES-01).
func TestVersions(t *testing.T) {
	t.Parallel()
	r := runtime(t,
		strings.TrimSuffix(ipam,
			"}")+`,"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0","gw":"fd00:1::1"}],"dns":{"domain":"d"}}`)
	for _, v := range cni.Versions() {
		r.Conf["cniVersion"] = v.String()
		result := r.Add("c")
		if len(result.IPs) != 2 || len(result.Routes) != 2 || len(result.Interfaces) != 0 ||
			result.DNS.Domain != "d" ||
			result.IPs[0].Gateway != netip.MustParseAddr("10.1.0.1") ||
			result.IPs[1].Gateway != netip.MustParseAddr("fd00:1::1") {
			t.Errorf("%v: %+v", v, result)
		}
		if v.Has(cni.Check) {
			r.Check("c")
		}
		r.Del("c")
		r.Del("c")
	}
}

// TestSources: precedence of the sources of addresses, in every version (CONV-02, CONV-04, CONV-14,
// CONV-20, CONV-21, CONV-24, IPAM-10).
func TestSources(t *testing.T) {
	t.Parallel()
	const (
		args       = `,"args":{"cni":{"ips":["10.1.0.20/24"],"labels":[{"key":"a","value":"b"}]}}`
		capability = `,"runtimeConfig":{"ips":["10.1.0.30/24","fd00:1::30/64"]}`
	)
	for _, row := range []struct{ name, members, args, want string }{
		{"configuration", ipam, "", "10.1.0.9/24 via 10.1.0.1; fd00:1::9/64 via fd00:1::1"},
		{"CNI_ARGS alone", `"ipam":{}`, "IP=10.10.0.1/24;GATEWAY=10.10.0.254",
			"10.10.0.1/24 via 10.10.0.254"},
		{"CNI_ARGS are added", ipam, "IP=10.10.0.1/24",
			"10.1.0.9/24 via 10.1.0.1; fd00:1::9/64 via fd00:1::1; 10.10.0.1/24"},
		{"gateway of CNI_ARGS does not apply to configured addresses", ipam,
			"IP=10.10.0.1/24;GATEWAY=10.1.0.77",
			"10.1.0.9/24 via 10.1.0.1; fd00:1::9/64 via fd00:1::1; 10.10.0.1/24"},
		{"several in CNI_ARGS", `"ipam":{}`,
			"IP=10.10.0.1/24, 11.11.0.1/24,fd10::1/64;GATEWAY=11.11.0.254, 10.10.0.254,fd10::ff",
			"10.10.0.1/24 via 10.10.0.254; 11.11.0.1/24 via 11.11.0.254; fd10::1/64 via fd10::ff"},
		{"one gateway for two addresses", `"ipam":{}`,
			"IP=10.10.0.1/24,10.10.0.2/24;GATEWAY=10.10.0.254",
			"10.10.0.1/24 via 10.10.0.254; 10.10.0.2/24 via 10.10.0.254"},
		{"empty values", ipam, "IP=;GATEWAY=",
			"10.1.0.9/24 via 10.1.0.1; fd00:1::9/64 via fd00:1::1"},
		{"gateway without an address", ipam, "GATEWAY=10.1.0.77",
			"10.1.0.9/24 via 10.1.0.1; fd00:1::9/64 via fd00:1::1"},
		{"args", ipam + args, "", "10.1.0.20/24"},
		{"args, not CNI_ARGS", ipam + args, "IP=10.1.0.40/24;GATEWAY=10.1.0.1", "10.1.0.20/24"},
		{"empty args", ipam + `,"args":{"cni":{"ips":[]}}`, "IP=10.1.0.40/24",
			"10.1.0.9/24 via 10.1.0.1; fd00:1::9/64 via fd00:1::1; 10.1.0.40/24"},
		{"capability", ipam + capability, "", "10.1.0.30/24; fd00:1::30/64"},
		{"all three", ipam + args + capability, "IP=10.1.0.40/24", "10.1.0.30/24; fd00:1::30/64"},
		{"capability in capitals", ipam + `,"RuntimeConfig":{"Ips":["10.1.0.30/24"]}`, "",
			"10.1.0.30/24"},
		{"capability without a prefix length",
			ipam + `,"runtimeConfig":{"ips":["10.1.0.30","fd00:1::30"]}`, "",
			"10.1.0.30/24 via 10.1.0.1; fd00:1::30/64 via fd00:1::1"},
		{"args without a prefix length", ipam + `,"args":{"cni":{"ips":["10.1.0.20"]}}`, "",
			"10.1.0.20/24 via 10.1.0.1"},
		{"CNI_ARGS without a prefix length", ipam, "IP=10.1.0.40",
			"10.1.0.9/24 via 10.1.0.1; fd00:1::9/64 via fd00:1::1; 10.1.0.40/24 via 10.1.0.1"},
		{"invalid address that is replaced", `"ipam":{"addresses":[{"address":"x"}]}` + capability,
			"", "10.1.0.30/24; fd00:1::30/64"},
		{"no address", `"ipam":{}`, "", ""},
		{"IPv4 in the notation of IPv6",
			`"ipam":{"addresses":[{"address":"::ffff:10.1.2.3/120","gateway":"::ffff:10.1.2.1"}]}`,
			"IP=::ffff:10.1.2.4;GATEWAY=::ffff:10.1.2.2",
			"10.1.2.3/24 via 10.1.2.1; 10.1.2.4/24 via 10.1.2.2"},
		{"keys of Kubernetes (CONV-22, CONV-25)", `"ipam":{}`,
			"K8S_POD_NAME=web;IgnoreUnknown=1;IP=10.10.0.1/24", "10.10.0.1/24"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, row.members)
			for _, v := range cni.Versions() {
				r.Conf["cniVersion"] = v.String()
				q := request(r, row.args)
				if v < cni.V030 && !onePerFamily(row.want) { // 0.1.0 and 0.2.0 cannot express it
					r.Refused(q, cni.CodeInvalidConfig)
					continue
				}
				out := r.Must(q)
				if diff := cmp.Diff(row.want, described(t, out)); diff != "" {
					t.Errorf("%v: %s", v, diff)
				}
				if v.Has(cni.Check) {
					q.Command, q.Conf["prevResult"] = cni.Check, out
					r.Must(q)
				}
			}
		})
	}
}

// described formats a result as "ADDRESS via GATEWAY; …".
func described(t *testing.T, out json.RawMessage) string {
	t.Helper()
	result, err := cni.DecodeResultStrict(out, 0)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, ip := range result.IPs {
		text := ip.Address.String()
		if ip.Gateway.IsValid() {
			text += " via " + ip.Gateway.String()
		}
		list = append(list, text)
	}
	return strings.Join(list, "; ")
}

// onePerFamily reports whether a described result has at least one address, and at most one of each
// family.
func onePerFamily(text string) bool {
	six := 0
	for ip := range strings.SplitSeq(text, "; ") {
		if address, _, _ := strings.Cut(ip, "/"); strings.Contains(address, ":") {
			six++
		}
	}
	four := strings.Count(text, "; ") + 1 - six
	return text != "" && four <= 1 && six <= 1
}

// TestRefused compares the error texts with upstream's (CONV-07, CONV-22, CONV-23).
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, members, args string
		code                cni.Code
		says                string
	}{
		{"no ipam", `"x":1`, "", cni.CodeInvalidConfig, "IPAM config missing 'ipam' key"},
		{"ipam is null", `"ipam":null`, "", cni.CodeInvalidConfig,
			"IPAM config missing 'ipam' key"},
		{"no ipam, CNI_ARGS", `"x":1`, "IP=10.10.0.1/24", cni.CodeInvalidConfig,
			"IPAM config missing 'ipam' key"},
		{"no ipam, args", `"args":{"cni":{"ips":["10.10.0.1/24"]}}`, "", cni.CodeInvalidConfig,
			"IPAM config missing 'ipam' key"},
		{"no ipam, capability", `"runtimeConfig":{"ips":["10.10.0.1/24"]}`, "",
			cni.CodeInvalidConfig, "IPAM config missing 'ipam' key"},
		{"configured address", `"ipam":{"addresses":[{"address":"10.10.0.1"}]}`, "",
			cni.CodeInvalidConfig,
			"the 'address' field is expected to be in CIDR notation, got: '10.10.0.1'"},
		{"configured address is empty", `"ipam":{"addresses":[{}]}`, "", cni.CodeInvalidConfig,
			"the 'address' field is expected to be in CIDR notation, got: ''"},
		{"configured address, one of CNI_ARGS is good", `"ipam":{"addresses":[{"address":"x/24"}]}`,
			"IP=10.10.0.1/24", cni.CodeInvalidConfig,
			"the 'address' field is expected to be in CIDR notation, got: 'x/24'"},
		{"configured gateway",
			`"ipam":{"addresses":[{"address":"10.10.0.1/24","gateway":"10.10.0.1/24"}]}`, "",
			cni.CodeDecodingFailure, "10.10.0.1/24"},
		{"CNI_ARGS", `"ipam":{}`, "IP=10.10.0.1", cni.CodeInvalidEnvironment,
			"the 'ip' field is expected to be in CIDR notation, got: '10.10.0.1'"},
		{"CNI_ARGS, second", `"ipam":{}`, "IP=10.10.0.1/24, x", cni.CodeInvalidEnvironment,
			"the 'ip' field is expected to be in CIDR notation, got: 'x'"},
		{"gateway of CNI_ARGS", `"ipam":{}`, "IP=10.10.0.1/24;GATEWAY=10.10.0",
			cni.CodeInvalidEnvironment, "invalid gateway address: 10.10.0"},
		{"unknown key of CNI_ARGS", `"ipam":{}`, "IP=10.10.0.1/24;MAC=02:00:00:00:00:01",
			cni.CodeInvalidEnvironment, "MAC"},
		{"invalid CNI_ARGS", `"ipam":{}`, "IP=10.10.0.1/24;", cni.CodeInvalidEnvironment,
			"KEY=VALUE"},
		{"args", `"ipam":{},"args":{"cni":{"ips":["10.10.0.1"]}}`, "", cni.CodeInvalidConfig,
			"an entry in the 'ips' field is NOT in CIDR notation, got: '10.10.0.1'"},
		{"capability", `"ipam":{},"runtimeConfig":{"ips":["10.10.0.1/24","10.10.0.1/33"]}`, "",
			cni.CodeInvalidConfig,
			"an entry in the 'ips' field is NOT in CIDR notation, got: '10.10.0.1/33'"},
		{"without a prefix length, in no configured network",
			ipam + `,"runtimeConfig":{"ips":["10.99.0.1"]}`, "", cni.CodeInvalidConfig,
			"an entry in the 'ips' field is NOT in CIDR notation, got: '10.99.0.1'"},
		{"two of a family in 0.2.0 (IPAM-07)",
			`"cniVersion":"0.2.0","ipam":{"addresses":[{"address":"10.1.0.1/24"},{"address":"10.2.0.1/24"}]}`, "",
			cni.CodeInvalidConfig, "CNI version 0.2.0 does not support more than 1 address per family"},
		{"two of a family in CNI_ARGS in 0.1.0", `"cniVersion":"0.1.0","ipam":{}`,
			"IP=fd10::1/64,fd10::2/64", cni.CodeInvalidConfig,
			"CNI version 0.1.0 does not support more than 1 address per family"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, `"cniVersion":"1.1.0",`+row.members)
			q := request(r, row.args)
			if err := r.Refused(q, row.code); err == nil ||
				!strings.Contains(err.Error(), row.says) {
				t.Errorf("error lacks %q: %v", row.says, err)
			}
			q.Command = cni.Del
			r.Must(q)
		})
	}
}

// TestCheck compares the previous result, which later plugins may have changed (PL-CHK-02,
// PL-CHK-03, PL-CHK-04).
func TestCheck(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, prev string
		code       cni.Code
		says       string
	}{
		{"as returned",
			`{"ips":[{"address":"10.1.0.9/24","gateway":"10.1.0.1"},{"address":"fd00:1::9/64","gateway":"fd00:1::1"}]}`, 0, ""},
		{"additional address, other order",
			`{"ips":[{"address":"fd00:1::9/64","gateway":"fd00:1::1"},{"address":"10.9.0.9/24"},{"address":"10.1.0.9/24","gateway":"10.1.0.1"}]}`, 0, ""},
		{"no result", `null`, cni.CodeInvalidConfig, "prevResult"},
		{"one address absent", `{"ips":[{"address":"10.1.0.9/24","gateway":"10.1.0.1"}]}`,
			cni.CodeInternal, "expected address fd00:1::9/64, found [10.1.0.9/24]"},
		{"all addresses absent", `{"ips":[]}`, cni.CodeInternal,
			"expected address 10.1.0.9/24, found []"},
		{"different gateway", `{"ips":[{"address":"10.1.0.9/24","gateway":"10.1.0.2"}]}`,
			cni.CodeInternal, "expected gateway 10.1.0.1 of address 10.1.0.9/24, found 10.1.0.2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, ipam)
			q := r.Request(cni.Check, "c")
			q.Conf["prevResult"] = json.RawMessage(row.prev)
			_, err := r.Do(t.Context(), q)
			if code := cni.CodeOf(err); code != row.code || err != nil &&
				!strings.Contains(err.Error(), row.says) {
				t.Errorf("code %d, want %d and %q: %v", code, row.code, row.says, err)
			}
		})
	}
}
