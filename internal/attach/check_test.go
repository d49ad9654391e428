package attach_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	sessions "github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/invoke"
)

// TestCheckAllows: CHECK accepts changes by later plugins and administrators (PL-CHK-03), and the
// kernel's form of unusual routes.
func TestCheckAllows(t *testing.T) {
	t.Parallel()
	const routed = address + `,"routes":[{"dst":"0.0.0.0/0"},{"dst":"192.168.0.0/16","table":77}]`
	for _, row := range []struct {
		name, members string
		change        func(*bench)
	}{
		{"nothing", routed, func(*bench) {}},
		{"another address", routed, func(b *bench) { b.inside("ip", "address", "add", "10.9.9.9/24", "dev", "eth0") }},
		{"another route", routed, func(b *bench) { b.inside("ip", "route", "add", "172.16.0.0/12", "via", "10.0.0.1") }},
		{"routes moved to another table, as sbr and vrf do", routed, func(b *bench) {
			b.inside("ip", "route", "add", "default", "via", "10.0.0.1", "table", "100")
			b.inside("ip", "route", "delete", "default", "table", "main")
			b.inside("ip", "route", "delete", "10.0.0.0/24")
			b.inside("ip", "route", "add", "10.0.0.0/24", "dev", "eth0", "table", "100")
		}},
		{"another default gateway", routed, func(b *bench) { b.inside("ip", "route", "replace", "default", "via", "10.0.0.9") }},
		{"all attributes of a route (R-76)", address + `,"routes":[
			{"dst":"192.168.0.0/16","priority":7,"mtu":1300,"advmss":1200,"table":77},{"dst":"192.168.0.0/16","scope":253},
			{"dst":"172.16.0.0/12","gw":"0.0.0.0"},{"dst":"10.99.9.9/16","table":0,"scope":0}]`, func(*bench) {}},
		{"values above the kernel's limits", address + `,"routes":[{"dst":"192.168.0.0/16","mtu":70000,"advmss":70000}]`, func(*bench) {}},
		{"two gateways for one destination", address + `,"routes":[{"dst":"192.168.0.0/16","gw":"10.0.0.8"},{"dst":"192.168.0.0/16","gw":"10.0.0.9"}]`,
			func(*bench) {}},
		{"another route to the same destination", routed, func(b *bench) {
			b.inside("ip", "route", "prepend", "192.168.0.0/16", "via", "10.0.0.9", "metric", "7", "table", "77")
		}},
		{"address without a network", `"ips":[{"address":"10.0.0.2/32"},{"address":"fd00::2/128"}]`, func(*bench) {}},
		{"address and network of another interface", routed, func(b *bench) {
			b.prev(func(r *cni.Result) {
				r.IPs = append(r.IPs, cni.IP{Address: mustPrefix("10.77.0.1/24"), Interface: cni.Some(0)})
			})
		}},
		{"another MAC that a later plugin reported", routed, func(b *bench) {
			b.inside("ip", "link", "set", "eth0", "address", "02:00:00:00:00:07")
			b.prev(func(r *cni.Result) { r.Interfaces[1].MAC = "02:00:00:00:00:07" })
		}},
		{"MAC in capitals", routed, func(b *bench) {
			b.prev(func(r *cni.Result) { r.Interfaces[1].MAC = strings.ToUpper(r.Interfaces[1].MAC) })
		}},
		{"result without MAC addresses", routed, func(b *bench) {
			b.prev(func(r *cni.Result) { r.Interfaces[0].MAC, r.Interfaces[1].MAC = "", "" })
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, pair{}, give(row.members))
			b.add()
			row.change(b)
			if err := b.call(cni.Check); err != nil {
				t.Error(err)
			}
		})
	}
}

// prev changes the previous result.
func (b *bench) prev(change func(*cni.Result)) {
	b.t.Helper()
	r, err := cni.DecodeResult(b.conf["prevResult"].(json.RawMessage), 0)
	if err != nil {
		b.t.Fatal(err)
	}
	change(r)
	out, err := r.Encode(cni.V110)
	if err != nil {
		b.t.Fatal(err)
	}
	b.conf["prevResult"] = json.RawMessage(out)
}

func TestCheckNotices(t *testing.T) {
	t.Parallel()
	const routed = address + `,"routes":[{"dst":"192.168.0.0/16","gw":"10.0.0.9"},{"dst":"192.168.0.0/16","table":77},
		{"dst":"172.16.0.0/12","priority":7,"mtu":1300,"advmss":1200},{"dst":"10.50.0.0/16","scope":253}]`
	stated := []string{"eth0", "172.16.0.0/12 metric 7 mtu 1300 advmss 1200", "found [172.16.0.0/12 via 10.0.0.1 "}
	replace := func(args ...string) func(*bench) {
		return func(b *bench) {
			b.inside("ip", "route", "delete", "172.16.0.0/12")
			b.inside(append([]string{"ip", "route", "add", "172.16.0.0/12", "via", "10.0.0.1"}, args...)...)
		}
	}
	for _, row := range []struct {
		name   string
		change func(*bench)
		code   cni.Code
		says   []string
	}{
		{"no previous result (PL-CHK-02)", func(b *bench) { delete(b.conf, "prevResult") }, cni.CodeInvalidConfig, []string{"prevResult"}},
		{"result of another namespace", func(b *bench) {
			b.prev(func(r *cni.Result) { r.Interfaces[1].Sandbox = "/elsewhere" })
		}, cni.CodeInvalidConfig, []string{"eth0", "prevResult"}},
		{"prefix length", func(b *bench) {
			b.inside("ip", "address", "add", "10.0.0.2/16", "dev", "eth0")
			b.inside("ip", "address", "delete", "10.0.0.2/24", "dev", "eth0")
		}, cni.CodeInternal, []string{"eth0", "10.0.0.2/24", "10.0.0.2/16"}},
		{"gateway", func(b *bench) {
			b.inside("ip", "route", "replace", "192.168.0.0/16", "via", "10.0.0.8")
		}, cni.CodeInternal, []string{"192.168.0.0/16", "10.0.0.9"}},
		{"route of a table", func(b *bench) { b.inside("ip", "route", "flush", "table", "77") }, cni.CodeInternal, []string{"192.168.0.0/16"}},
		{"metric (R-76)", replace("metric", "8", "mtu", "1300", "advmss", "1200"), cni.CodeInternal, stated},
		{"MTU of a route (R-76)", replace("metric", "7", "mtu", "1301", "advmss", "1200"), cni.CodeInternal, stated},
		{"segment size (R-76)", replace("metric", "7", "mtu", "1300"), cni.CodeInternal, stated},
		{"scope (R-76)", func(b *bench) {
			b.inside("ip", "route", "replace", "10.50.0.0/16", "dev", "eth0", "scope", "global")
		}, cni.CodeInternal, []string{"10.50.0.0/16 scope 253"}},
		{"route through another interface", func(b *bench) {
			b.inside("ip", "link", "add", "other", "up", "type", "bridge")
			b.inside("ip", "route", "replace", "192.168.0.0/16", "dev", "other")
		}, cni.CodeInternal, []string{"192.168.0.0/16 via 10.0.0.9", "eth0"}},
		{"address without an interface", func(b *bench) {
			b.prev(func(r *cni.Result) { r.IPs = append(r.IPs, cni.IP{Address: mustPrefix("10.66.0.1/32")}) })
		}, cni.CodeInternal, []string{"10.66.0.1/32"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, pair{}, give(routed))
			b.add()
			if err := b.call(cni.Check); err != nil {
				t.Fatal(err)
			}
			row.change(b)
			wantError(t, b.call(cni.Check), row.code, row.says...)
		})
	}
}

// TestCheckAsksIPAM: DLG-06, PL-CHK-08
func TestCheckAsksIPAM(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{}, verbs{
		cni.Add:   invoke.Print(`{"cniVersion":"1.1.0",` + address + `}`),
		cni.Check: invoke.Fail(cni.Errorf(111, "reservation is gone")),
	})
	b.add()
	wantError(t, b.call(cni.Check), 111, "reservation is gone")
}

func TestCheckOfMissingNamespace(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{}, nil)
	b.add()
	env := b.env(cni.Check)
	b.Remove("c")
	_, err := b.serve(t.Context(), env)
	wantError(t, err, cni.CodeUnknownContainer)
}

func TestStatus(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		needs []kernel.Feature
		pool  verbs
		code  cni.Code
		says  string
	}{
		{"ready", []kernel.Feature{kernel.FeatureVeth}, verbs{}, 0, ""},
		{"kernel lacks something", []kernel.Feature{kernel.FeatureVeth, "nonsense"}, verbs{}, cni.CodeNotAvailable, "module nonsense"},
		{"no IPAM", []kernel.Feature{kernel.FeatureVeth}, nil, 0, ""},
		{"IPAM is not ready (PL-STA-04)", nil, verbs{
			cni.Status: invoke.Fail(cni.Errorf(cni.CodeLimitedConnectivity, "pool is empty")),
		}, cni.CodeLimitedConnectivity, "pool is empty"},
		{"IPAM is too old for STATUS", nil, verbs{
			cni.Status: invoke.Fail(cni.Errorf(cni.CodeIncompatibleVersion, "what?")),
		}, 0, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, pair{status: func() error { return sessions.Lacking(row.needs...) }}, row.pool)
			before := b.state()
			if err := b.call(cni.Status); row.code != 0 {
				wantError(t, err, row.code, row.says)
			} else if err != nil {
				t.Error(err)
			}
			b.unchanged(before)
		})
	}
}
