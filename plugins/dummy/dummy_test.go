package dummy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/dummy"
)

// runtime creates a host with a network; members are added to the plugin's configuration.
func runtime(t *testing.T, members string) *plugintest.Runtime {
	t.Helper()
	testnet.Require(t, dummies)
	return plugintest.NewRuntime(t, dummy.Plugin,
		`{"cniVersion":"1.1.0","name":"net","type":"dummy"`+members+`}`)
}

const ipam = `,"ipam":{"type":"static","addresses":[{"address":"10.1.2.2/24","gateway":"10.1.2.1"}],
	"routes":[{"dst":"10.9.0.0/16"}],"dns":{"nameservers":["10.1.2.53"]}}`

// TestResult: the result has one interface, which is up, and the routes and DNS settings of IPAM.
// The plugin ignores dns, mtu and mac of the configuration.
func TestResult(t *testing.T) {
	t.Parallel()
	r := runtime(t,
		ipam+`,"dns":{"nameservers":["192.0.2.53"],"domain":"example"},"mtu":1234,"mac":"02:00:00:00:00:01"`)
	var got any
	if err := json.Unmarshal(r.Must(r.Request(cni.Add, "c")), &got); err != nil {
		t.Fatal(err)
	}
	var links []struct {
		Address string
		MTU     int
		Flags   []string
	}
	if err := json.Unmarshal([]byte(r.Container("c").
		Command("ip", "-j", "link", "show", "type", "dummy")), &links); err != nil ||
		len(links) != 1 {
		t.Fatalf("links %v: %v", links, err)
	}
	if l := links[0]; l.MTU != 1500 || l.Address == "02:00:00:00:00:01" ||
		!strings.Contains(fmt.Sprint(l.Flags), "UP") {
		t.Errorf("interface is %+v", l)
	}
	if diff := cmp.Diff(any(map[string]any{
		"cniVersion": "1.1.0",
		"interfaces": []any{map[string]any{"name": "eth0", "mac": links[0].Address,
			"sandbox": r.Container("c").Path()}},
		"ips": []any{map[string]any{"address": "10.1.2.2/24", "gateway": "10.1.2.1",
			"interface": 0.0}},
		"routes": []any{map[string]any{"dst": "10.9.0.0/16"}},
		"dns":    map[string]any{"nameservers": []any{"10.1.2.53"}},
	}), got); diff != "" {
		t.Errorf("result (-want +got): %s", diff)
	}
}

// TestWithoutIPAM: without ipam, ADD and CHECK fail with upstream's text and DEL succeeds.
func TestWithoutIPAM(t *testing.T) {
	t.Parallel()
	for _, members := range []string{"", `,"ipam":{}`, `,"ipam":{"type":""}`} {
		t.Run(members, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, members)
			r.Container("c")
			before := r.State()
			for _, verb := range []cni.Command{cni.Add, cni.Check} {
				plugintest.Says(t, r.Refused(r.Request(verb, "c"), cni.CodeInvalidConfig),
					"dummy interface requires an IPAM configuration")
			}
			r.Must(r.Request(cni.Del, "c"))
			r.Unchanged(before)
		})
	}
}

// TestNames: the host can have a link of the same name. ADD refuses a name that the container has;
// ADD and DEL leave that link unchanged.
func TestNames(t *testing.T) {
	t.Parallel()
	r := runtime(t, ipam)
	r.Host.Batch("link add dummy0 type dummy", "link add a.b type dummy")
	c := r.Container("c")
	for _, name := range []string{"dummy0", "a.b"} {
		q := r.Request(cni.Add, "c")
		q.IfName = name
		q.Conf["prevResult"] = nil
		prev := r.Must(q)
		attached := r.State()
		plugintest.Says(t, r.Refused(q, plugin.CodeInUse),
			fmt.Sprintf("link %q exists in %s", name, c.Path()))
		r.Unchanged(attached)
		q.Conf["prevResult"] = prev
		for _, verb := range []cni.Command{cni.Check, cni.Del, cni.Del} {
			q.Command = verb
			r.Must(q)
		}
	}
	c.Command("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "other")
	before := r.State()
	plugintest.Says(t, r.Refused(r.Request(cni.Add, "c"), plugin.CodeInUse), `link "eth0" exists`)
	r.Must(r.Request(cni.Del, "c"))
	r.Unchanged(before)
}

// TestSingleAddress: a /32 or /128 address has no route of its own, and CHECK requires none.
func TestSingleAddress(t *testing.T) {
	t.Parallel()
	r := runtime(t,
		`,"ipam":{"type":"static","addresses":[{"address":"203.0.113.7/32"},{"address":"2001:db8::7/128"}]}`)
	r.Add("c")
	r.Check("c")
	r.Del("c")
	r.Del("c")
}

// TestStatus: STATUS checks the kernel and calls IPAM. The test also runs on kernels without dummy
// interfaces.
func TestStatus(t *testing.T) {
	t.Parallel()
	r := plugintest.NewRuntime(t, dummy.Plugin,
		`{"cniVersion":"1.1.0","name":"net","type":"dummy","ipam":{"type":"host-local","subnet":"10.1.2.0/24"}}`)
	if dummies() != nil {
		plugintest.Says(t, r.Refused(r.Request(cni.Status, "c"), cni.CodeNotAvailable), "dummy")
		return
	}
	r.Must(r.Request(cni.Status, "c"))
	r.Conf["ipam"].(map[string]any)["rangeEnd"] = "10.9.9.9"
	if _, err := r.Do(t.Context(), r.Request(cni.Status, "c")); err == nil ||
		!strings.Contains(err.Error(), "10.9.9.9") {
		t.Errorf("STATUS did not call IPAM: %v", err)
	}
}
