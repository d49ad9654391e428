package plugintest

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin"
)

// check calls CHECK of an intact attachment, right after ADD and repeatedly. CHECK must succeed and
// change nothing.
// PL-CHK-07, PL-CHK-09
func check(_ *testing.T, r *Runtime) {
	if !r.newest(cni.Check) {
		return
	}
	r.Add("c")
	r.Check("c")
	before := r.state()
	for range times(50) {
		r.Check("c")
	}
	r.unchanged(before)
	if r.hasInterface("c") {
		r.Must(r.withNeighbour("c"))
	}
	if _, err := r.Do(r.t.Context(), r.Request(cni.Check, "never-added")); err == nil {
		r.t.Error("CHECK without an ADD before succeeds, want an error (PL-CHK-04)")
	}
}

// withNeighbour returns a CHECK of a container with an address on an interface of another plugin in
// the chain, which CHECK must ignore (PL-CHK-03).
func (r *Runtime) withNeighbour(container string) Request {
	all := r.result(container)
	all.Interfaces = append(all.Interfaces,
		cni.Interface{Name: "beside", Sandbox: r.Container(container).Path()})
	all.IPs = append(all.IPs, cni.IP{
		Address: netip.MustParsePrefix("10.77.0.9/24"), Gateway: netip.MustParseAddr("10.77.0.1"),
		Interface: cni.Some(len(all.Interfaces) - 1),
	})
	q := r.Request(cni.Check, container)
	q.Conf["prevResult"] = r.encode(all)
	return q
}

// drift makes one change at a time to an attachment. CHECK must fail, name the object and repair
// nothing; DEL must succeed all the same. A suite's drift may change shared objects, so each one
// has a host of its own.
// PL-CHK-04, PL-CHK-05
func drift(t *testing.T, r *Runtime) {
	if !r.newest(cni.Check) {
		return
	}
	r.Add("c")
	if r.makesInterface("c") {
		drifts := ofInterface(r.result("c"), r.Container("c").Path())
		if ipam, ok := r.Conf["ipam"].(object); ok && ipam["type"] == "host-local" {
			drifts = append(drifts, Drift{Name: "reservations gone", Break: releaseAll})
		}
		for _, d := range drifts {
			if slices.ContainsFunc(r.suite.Drifts,
				func(own Drift) bool { return own.Name == d.Name }) {
				continue
			}
			t.Run(d.Name, func(t *testing.T) { r.with(t).drift(d) })
		}
	}
	for _, d := range r.suite.Drifts {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			first := slices.IndexFunc(r.suite.Examples, d.applies)
			if first < 0 {
				t.Fatalf("no example has %s", d.Key)
			}
			r := newUsed(t, r.suite, r.suite.Examples[first])
			r.newest(cni.Check)
			r.drift(d)
		})
	}
}

func (d Drift) applies(e plugin.Example) bool {
	var conf object
	err := json.Unmarshal([]byte(e.Config), &conf)
	return err == nil && (d.Key == "" || conf[d.Key] != nil)
}

func (r *Runtime) drift(d Drift) {
	const container = "drifted-container"
	r.Add(container)
	r.Check(container)
	says := d.Break(r.t, Attached{
		Net: r.Net, Container: r.Container(container), IfName: ifName, Conf: r.Conf,
		Result: r.result(container), Dir: r.Dir,
	})
	before := r.stateOf(r.Host, r.Container(container))
	_, err := r.Do(r.t.Context(), r.Request(cni.Check, container))
	switch {
	case err == nil:
		r.t.Errorf("CHECK succeeds although the attachment has changed; want an error that names %q (PL-CHK-04)", says)
	case !strings.Contains(err.Error(), says):
		r.t.Errorf("CHECK does not name %q, which has changed: %v", says, err)
	}
	r.same(before, r.stateOf(r.Host, r.Container(container)))
	r.Del(container)
	r.Remove(container)
	for line := range strings.SplitSeq(r.stateOf(r.Host), "\n") {
		if strings.Contains(line, container) {
			r.t.Errorf("DEL has left (PL-DEL-01): %s", line)
		}
	}
}

// ofInterface returns drifts of an interface with the addresses and routes of a result. Each drift
// removes an object of the result, which proves that ADD has created it (PL-ADD-01, RES-17).
func ofInterface(result *cni.Result, sandbox string) []Drift {
	drifts := []Drift{
		command("interface down", "link", "set", ifName, "down"),
		command("interface gone", "link", "delete", ifName),
		{Name: "interface renamed", Break: func(_ testing.TB, a Attached) string {
			// Before Linux 6.2 only interfaces that are down can be renamed.
			a.Container.Command("ip", "link", "set", ifName, "down")
			a.Container.Command("ip", "link", "set", ifName, "name", "renamed")
			return ifName
		}},
		command("another MAC", "link", "set", ifName, "address", "02:00:00:00:00:01"),
	}
	index, _ := result.Sandboxed(ifName, sandbox)
	for n, ip := range result.IPs {
		if i, ok := ip.Interface.Get(); !ok || i != index {
			continue
		}
		drifts = append(drifts,
			Drift{Name: fmt.Sprintf("ips %d gone", n),
				Break: func(_ testing.TB, a Attached) string {
					address := a.Result.IPs[n].Address.String()
					a.Container.Command("ip", "address", "delete", address, "dev", ifName)
					return address
				}},
			Drift{Name: fmt.Sprintf("route to the network of ips %d gone", n),
				Break: func(_ testing.TB, a Attached) string {
					return a.deleteRoute(a.Result.IPs[n].Address)
				}})
	}
	for n := range result.Routes {
		drifts = append(drifts, Drift{Name: fmt.Sprintf("routes %d gone", n),
			Break: func(_ testing.TB, a Attached) string {
				return a.deleteRoute(a.Result.Routes[n].Dst)
			}})
	}
	return drifts
}

// releaseAll removes the files in which host-local reserves the addresses.
func releaseAll(t testing.TB, a Attached) string {
	for _, ip := range a.Result.IPs {
		if err := os.Remove(filepath.Join(a.Dir, a.Conf["name"].(string),
			ip.Address.Addr().String())); err != nil {
			t.Fatal(err)
		}
	}
	return a.Container.Name
}

func (a Attached) deleteRoute(to netip.Prefix) string {
	dst := to.Masked().String()
	a.Container.Command("ip", "route", "delete", dst, "dev", ifName)
	return dst
}

// command returns a drift that ip(8) makes to the container's interface.
func command(name string, args ...string) Drift {
	return Drift{Name: name, Break: func(_ testing.TB, a Attached) string {
		a.Container.Command("ip", args...)
		return ifName
	}}
}
