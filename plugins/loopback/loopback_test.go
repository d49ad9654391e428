package loopback_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/all"
	"github.com/tenon-cni/tenon/plugins/loopback"
)

func TestMain(m *testing.M) { plugintest.Main(m, all.Plugins...) }

var suite = plugintest.Suite{
	Plugin:     loopback.Plugin,
	Repeatable: true,
	Drifts: []plugintest.Drift{{Name: "lo down",
		Break: func(_ testing.TB, a plugintest.Attached) string {
			a.Container.Command("ip", "link", "set", "lo", "down")
			return "loopback interface is down"
		}}},
}

func TestSuite(t *testing.T) { plugintest.Run(t, suite) }

// TestSuiteChained: loopback fulfils all contracts as a chained plugin.
func TestSuiteChained(t *testing.T) {
	chained := suite
	chained.Before = plugintest.Veth
	plugintest.Run(t, chained)
}

func FuzzServe(f *testing.F) { plugintest.Fuzz(f, suite) }

func runtime(t *testing.T) *plugintest.Runtime {
	t.Helper()
	return plugintest.NewRuntime(t, loopback.Plugin,
		`{"cniVersion":"1.1.0","name":"lo","type":"loopback"}`)
}

func up(t *testing.T, r *plugintest.Runtime, container string) bool {
	t.Helper()
	var links []struct{ Flags []string }
	out := r.Container(container).Command("ip", "-j", "link", "show", "dev", "lo")
	if err := json.Unmarshal([]byte(out), &links); err != nil || len(links) != 1 {
		t.Fatalf("%v in %s", err, out)
	}
	return slices.Contains(links[0].Flags, "UP")
}

// TestResults checks the output in each form of the result, and the state of the interface.
func TestResults(t *testing.T) {
	t.Parallel()
	const (
		oldest = `{"cniVersion":"VERSION","ip4":{"ip":"127.0.0.1/8"},"ip6":{"ip":"::1/128"},"dns":{}}`
		older  = `{"cniVersion":"VERSION","interfaces":[{"name":"lo","mac":"00:00:00:00:00:00","sandbox":"SANDBOX"}],` +
			`"ips":[{"version":"4","interface":0,"address":"127.0.0.1/8"},{"version":"6","interface":0,"address":"::1/128"}],"dns":{}}`
		newest = `{"cniVersion":"VERSION","interfaces":[{"name":"lo","mac":"00:00:00:00:00:00","sandbox":"SANDBOX"}],` +
			`"ips":[{"interface":0,"address":"127.0.0.1/8"},{"interface":0,"address":"::1/128"}]}`
	)
	r := runtime(t)
	for v, want := range map[cni.Version]string{
		cni.V010: oldest, cni.V020: oldest, cni.V030: older, cni.V031: older, cni.V040: older, cni.V100: newest, cni.V110: newest,
	} {
		r.Conf["cniVersion"] = v.String()
		q := r.Request(cni.Add, "c")
		want = strings.NewReplacer("VERSION", v.String(), "SANDBOX", q.Netns).Replace(want)
		if diff := cmp.Diff(want, string(r.Must(q))); diff != "" {
			t.Error(diff)
		}
		if !up(t, r, "c") {
			t.Errorf("%v: lo is down after ADD", v)
		}
		r.Del("c")
		if up(t, r, "c") {
			t.Errorf("%v: lo is up after DEL", v)
		}
	}
}

func TestIPv6Disabled(t *testing.T) {
	t.Parallel()
	r := runtime(t)
	r.Container("c").Command("sysctl", "-qw", "net.ipv6.conf.lo.disable_ipv6=1")
	result := r.Add("c")
	if len(result.IPs) != 1 || result.IPs[0].Address.String() != "127.0.0.1/8" {
		t.Errorf("addresses %+v", result.IPs)
	}
}

// TestChained: the previous result is passed on completely, including dns.
// DIS-33, DNS-02, PL-ADD-06
func TestChained(t *testing.T) {
	t.Parallel()
	const prev = `{"cniVersion":"1.1.0",` +
		`"interfaces":[{"name":"eth0","mac":"02:00:00:00:00:01","sandbox":"/somewhere","mtu":1400,"socketPath":"/s","pciID":"0000:00:02.0"}],` +
		`"ips":[{"interface":0,"address":"10.0.0.2/24","gateway":"10.0.0.1"}],` +
		`"routes":[{"dst":"10.1.2.3/8","gw":"10.0.0.9","mtu":1300,"advmss":1200,"priority":7,"table":0,"scope":0}],` +
		`"dns":{"nameservers":["10.0.0.53"],"domain":"d","search":["s"],"options":["o"]}}`
	r := runtime(t)
	q := r.Request(cni.Add, "c")
	q.Conf["prevResult"] = json.RawMessage(prev)
	if diff := cmp.Diff(prev, string(r.Must(q))); diff != "" {
		t.Error(diff)
	}
	if !up(t, r, "c") {
		t.Error("lo is down")
	}
}

// TestForeignAddress: an address on lo that is not a loopback address is an error, and lo does not
// change.
func TestForeignAddress(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"10.0.0.2/24", "fd00::2/64"} {
		r := runtime(t)
		r.Container("c").Command("ip", "address", "add", address, "dev", "lo")
		if err := r.Refused(r.Request(cni.Add, "c"), cni.CodeInternal); err != nil &&
			!strings.Contains(err.Error(), address) {
			t.Errorf("error does not name %s: %v", address, err)
		}
		if up(t, r, "c") {
			t.Error("lo is up")
		}
	}
}

// TestNamespace proves R-40.
func TestNamespace(t *testing.T) {
	t.Parallel()
	r := runtime(t)
	for path, code := range map[string]cni.Code{
		"/absent": cni.CodeUnknownContainer, t.TempDir(): cni.CodeInvalidEnvironment,
	} {
		q := r.Request(cni.Add, "c")
		q.Netns = path
		r.Refused(q, code)
		q.Command = cni.Check
		r.Refused(q, code)
	}
	q := r.Request(cni.Del, "c")
	q.Netns = ""
	r.Must(q)
}

// TestCheckNeedsNoPrevResult: CHECK works without a previous result.
func TestCheckNeedsNoPrevResult(t *testing.T) {
	t.Parallel()
	r := runtime(t)
	r.Add("c")
	q := r.Request(cni.Check, "c")
	delete(q.Conf, "prevResult")
	r.Must(q)
}
