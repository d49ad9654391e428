package bandwidth_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/bandwidth"
)

// runtime creates a host with a network; members are added to the plugin's configuration.
func runtime(t testing.TB, members string) *plugintest.Runtime {
	t.Helper()
	require(t)
	return plugintest.NewRuntime(t, bandwidth.Plugin,
		`{"cniVersion":"1.0.0","name":"net1","type":"bandwidth"`+members+`}`)
}

const both = `"ingressRate":8000,"ingressBurst":80000,"egressRate":16000,"egressBurst":160000`

// TestRefused tests invalid limits.
func TestRefused(t *testing.T) {
	t.Parallel()
	const gib4 int64 = 4 << 30 * 8
	valid := `,"runtimeConfig":{"bandwidth":{` + both + `}}`
	for _, row := range []struct {
		name, members string
		code          cni.Code
		want          string
	}{
		{"burst without rate", `,"ingressBurst":80`, cni.CodeInvalidConfig,
			"if burst is set, rate must also be set"},
		{"burst with rate 0", `,"egressRate":0,"egressBurst":80`, cni.CodeInvalidConfig,
			"if burst is set, rate must also be set"},
		{"less than a byte per second", `,"ingressRate":7`, cni.CodeInvalidConfig,
			"ingressRate: 7 bit/s is less than a byte per second"},
		{"rate with burst 0", `,"ingressRate":1,"ingressBurst":0`, cni.CodeInvalidConfig,
			"if rate is set, burst must also be set: remove ingressBurst to use the default"},
		{"less than a byte at once", `,"egressRate":80,"egressBurst":7`, cni.CodeInvalidConfig,
			"egressBurst: 7 bit is less than a byte"},
		{"burst of 4 GiB", fmt.Sprintf(`,"ingressRate":80,"ingressBurst":%d`, gib4),
			cni.CodeInvalidConfig, "burst cannot be more than 4GB"},
		{"smallest invalid burst", fmt.Sprintf(`,"egressRate":80,"egressBurst":%d`, gib4-8),
			cni.CodeInvalidConfig, "burst cannot be more than 4GB"},
		{"negative", `,"ingressRate":-8`, cni.CodeDecodingFailure, "ingressRate"},
		{"fraction", `,"ingressRate":8.5`, cni.CodeDecodingFailure, "ingressRate"},
		{"from the runtime", `,"runtimeConfig":{"bandwidth":{"egressBurst":80}}`,
			cni.CodeInvalidConfig,
			"if burst is set, rate must also be set: set egressRate, or remove egressBurst"},
		{"the configuration takes precedence over the runtime", `,"ingressBurst":80` + valid,
			cni.CodeInvalidConfig,
			"if burst is set, rate must also be set: set ingressRate, or remove ingressBurst"},
		{"both kinds of subnets",
			`,"ingressRate":80,"shapedSubnets":["10.0.0.0/8"],"unshapedSubnets":["fd00::/8"]`,
			cni.CodeInvalidConfig, "cannot be combined"},
		{"address as subnet", `,"ingressRate":80,"shapedSubnets":["10.0.0.1"]`,
			cni.CodeDecodingFailure, `"10.0.0.1"`},
		{"empty subnet", `,"ingressRate":80,"unshapedSubnets":[""]`, cni.CodeInvalidConfig,
			"is not a network"},
		{"IPv4 as IPv6", `,"ingressRate":80,"shapedSubnets":["::ffff:10.0.0.0/104"]`,
			cni.CodeInvalidConfig, "is not a network"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, row.members)
			r.Container("c")
			before := r.State()
			if err := r.Refused(r.Request(cni.Add, "c"), row.code); err == nil ||
				!strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want %q", err, row.want)
			}
			r.Unchanged(before)
			// DEL succeeds although the configuration has become invalid
			r.Must(r.Request(cni.Del, "c"))
		})
	}
}

// TestGreatestBurst tests the largest burst that the kernel can store, at a rate that exceeds its
// tick counter.
func TestGreatestBurst(t *testing.T) {
	t.Parallel()
	r := runtime(t,
		fmt.Sprintf(
			`,"ingressRate":8000,"ingressBurst":%d,"egressRate":10000000000,"egressBurst":%[1]d`,
			int64(4<<30*8-16)))
	r.Add("c")
	r.Check("c")
	if out := r.Host.Command("tc", "qdisc", "show"); !strings.Contains(out, "rate 10Gbit") ||
		!strings.Contains(out, "rate 8Kbit") {
		t.Error(out)
	}
}

// TestNoLimits: without limits ADD changes nothing, and CHECK succeeds.
func TestNoLimits(t *testing.T) {
	t.Parallel()
	for _, members := range []string{"", `,"ingressRate":0,"ingressBurst":0`,
		`,"runtimeConfig":{"bandwidth":{}}`, `,"runtimeConfig":{}`, `,"ingressRate":null`} {
		r := runtime(t, members)
		r.Container("c")
		before := r.State()
		if result := r.Add("c"); len(result.Interfaces) != 2 {
			t.Errorf("%s: %v", members, result.Interfaces)
		}
		r.Check("c")
		r.Unchanged(before)
		q := r.Request(cni.Add, "c")
		delete(q.Conf, "prevResult")
		if err := r.Refused(q, cni.CodeInvalidConfig); !strings.Contains(err.Error(),
			"must be called as chained plugin") {
			t.Errorf("%s: %v", members, err)
		}
	}
}

// TestPlaces: the runtime's limits work like the configuration's, also with containerd's spelling
// of the keys. If the configuration has any limit, the runtime's limits are ignored, not merged
// (CONV-12).
func TestPlaces(t *testing.T) {
	t.Parallel()
	capital := strings.NewReplacer("ingress", "Ingress", "egress", "Egress").Replace(both)
	for _, row := range []struct{ name, members, want string }{
		{"configuration", `,` + both, "8Kbit 16Kbit"},
		{"runtime", `,"runtimeConfig":{"bandwidth":{` + both + `}}`, "8Kbit 16Kbit"},
		{"runtime is containerd", `,"runtimeConfig":{"bandwidth":{` + capital + `}}`,
			"8Kbit 16Kbit"},
		{"one direction in the configuration",
			`,"egressRate":24000,"egressBurst":80000,"runtimeConfig":{"bandwidth":{` + both + `}}`,
			"24Kbit"},
		{"0 in the configuration", `,"egressRate":0,"runtimeConfig":{"bandwidth":{` + both + `}}`,
			""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, row.members)
			r.Add("c")
			var rates []string
			fields := strings.Fields(r.Host.Command("tc", "qdisc", "show"))
			for i, word := range fields {
				if word == "rate" {
					rates = append(rates, fields[i+1])
				}
			}
			if got := strings.Join(rates, " "); got != row.want {
				t.Errorf("rates %q, want %q", got, row.want)
			}
		})
	}
}

// previous decodes the result of the earlier plugins.
func previous(t *testing.T, q plugintest.Request) *cni.Result {
	t.Helper()
	raw, ok := q.Conf["prevResult"].(json.RawMessage)
	if !ok {
		t.Fatalf("prevResult is %v", q.Conf["prevResult"])
	}
	r, err := cni.DecodeResult(raw, cni.V100)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// withPrevious replaces the previous result of a request.
func withPrevious(t *testing.T, q plugintest.Request, r *cni.Result) plugintest.Request {
	t.Helper()
	b, err := r.Encode(cni.V100)
	if err != nil {
		t.Fatal(err)
	}
	q.Conf["prevResult"] = json.RawMessage(b)
	return q
}

// TestStepTwo: if the previous result has no interfaces, bandwidth finds the host-side veth through
// the kernel, as in step 2 of the example in version 0.3.1 (RES-10).
func TestStepTwo(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,`+both)
	r.Conf["cniVersion"] = "0.3.1"
	q := r.Request(cni.Add, "c")
	var prev struct{ Interfaces []struct{ Name string } }
	if err := json.Unmarshal(q.Conf["prevResult"].(json.RawMessage), &prev); err != nil {
		t.Fatal(err)
	}
	end := prev.Interfaces[0].Name
	q.Conf["prevResult"] = json.RawMessage(
		`{"ips":[{"version":"4","address":"10.0.0.5/32","interface":0}],"dns":{"nameservers":["10.1.0.1"]}}`)
	r.Must(q)
	if out := r.Host.Command("tc", "qdisc", "show"); strings.Count(out, "tbf") != 2 ||
		!strings.Contains(out, "dev "+end+" root") {
		t.Errorf("host-side veth %q:\n%s", end, out)
	}
	r.Must(r.Request(cni.Del, "c"))
}

// TestHostEnd tests the selection of the host-side veth.
func TestHostEnd(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,`+both)
	ask := func() plugintest.Request { return r.Request(cni.Add, "c") }
	r.Container("other")
	r.Container("third")
	q := ask()
	prev := previous(t, q)
	others := []cni.Interface{{Name: "veth1"}, {Name: "veth2"}}
	if end := prev.Interfaces[0].Name; end == "veth1" || end == "veth2" {
		others[0].Name = "veth0"
	}
	many := prev.Clone()
	many.Interfaces = append(others, many.Interfaces...)
	many.IPs = nil
	var result cni.Result
	r.Host.Command("ip", "link", "show", others[0].Name)
	if out, err := cni.DecodeResult(r.Must(withPrevious(t, q, many)), cni.V100); err != nil ||
		len(out.Interfaces) != 5 {
		t.Errorf("got %v, %v, want 5 interfaces", out, err)
	} else {
		result = *out
	}
	if out := r.Host.Command("tc", "qdisc", "show"); strings.Count(out, "tbf") != 2 ||
		!strings.Contains(out, "dev "+prev.Interfaces[0].Name+" root") ||
		!strings.Contains(out, "dev "+result.Interfaces[4].Name+" root") {
		t.Error(out)
	}
	r.Must(r.Request(cni.Del, "c"))
	before := r.State()

	loopback := ask()
	loopback.IfName = "lo"
	missing := ask()
	missing.IfName = "eth7"
	inside, renamed := prev.Clone(), prev.Clone()
	inside.Interfaces[0].Sandbox = q.Netns
	renamed.Interfaces[0].Name = "veth77"
	for name, wrong := range map[string]plugintest.Request{
		"not a veth":                      loopback,
		"no such interface":               missing,
		"host-side veth has a sandbox":    withPrevious(t, ask(), inside),
		"host-side veth has another name": withPrevious(t, ask(), renamed),
	} {
		if _, err := r.Do(t.Context(), wrong); err == nil {
			t.Errorf("%s: ADD succeeded", name)
		}
		r.Unchanged(before)
	}
}
