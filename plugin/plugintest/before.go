package plugintest

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin"
)

// Veth attaches a container as the plugins before a chained one do, by hand: a pair of interfaces, eth0 inside, with an
// IPv4 and an IPv6 network of its own (10.88.n.2/24 and fd00:88:0:n::2/64, of which the host's end is the gateway) and
// default routes. The host's end has a route to each address, and the host forwards. It is the Before of chained plugins
// that have none.
func Veth(_ testing.TB, n *Net, c *Namespace) *cni.Result {
	var (
		number = byte(c.Number)
		end    = fmt.Sprintf("veth%d", c.Number) // of the host
		mac    = func(side byte) string { return net.HardwareAddr{2, 0x88, 0, 0, number, side}.String() }
		v4     = func(host byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 88, number, host}) }
		v6     = func(host byte) netip.Addr {
			return netip.AddrFrom16([16]byte{0xfd, 0, 0, 0x88, 0, 0, 0, number, 15: host})
		}
	)
	c.Batch(
		fmt.Sprintf("link add %s address %s type veth peer name %s address %s netns %s", ifName, mac(2), end, mac(1), n.Host.Path()),
		"link set "+ifName+" up")
	n.Host.Batch(
		"link set "+end+" up",
		fmt.Sprintf("address add %s/32 dev %s", v4(1), end),
		fmt.Sprintf("address add %s/128 dev %s nodad", v6(1), end),
		fmt.Sprintf("route add %s/32 dev %s", v4(2), end),
		fmt.Sprintf("route add %s/128 dev %s", v6(2), end))
	n.Host.Command("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	c.Batch(
		fmt.Sprintf("address add %s/24 dev %s", v4(2), ifName),
		fmt.Sprintf("address add %s/64 dev %s nodad", v6(2), ifName),
		fmt.Sprintf("route add default via %s", v4(1)),
		fmt.Sprintf("route add default via %s", v6(1)))
	return &cni.Result{
		Interfaces: []cni.Interface{
			{Name: end, MAC: mac(1), MTU: 1500},
			{Name: ifName, MAC: mac(2), MTU: 1500, Sandbox: c.Path()},
		},
		IPs: []cni.IP{
			{Address: netip.PrefixFrom(v4(2), 24), Gateway: v4(1), Interface: cni.Some(1)},
			{Address: netip.PrefixFrom(v6(2), 64), Gateway: v6(1), Interface: cni.Some(1)},
		},
		Routes: []cni.Route{
			{Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0), GW: v4(1)},
			{Dst: netip.PrefixFrom(netip.IPv6Unspecified(), 0), GW: v6(1)},
		},
		DNS: cni.DNS{Nameservers: []string{v4(1).String()}, Domain: "example", Search: []string{"example"}, Options: []string{"ndots:2"}},
	}
}

// onlyChained reports whether the plugin cannot do without a previous result.
func (s *Suite) onlyChained() bool { return s.Plugin.Role == plugin.RoleChained }

// before returns what attaches containers before the plugin is called, nil for a plugin that does it itself.
func (s *Suite) before() func(testing.TB, *Net, *Namespace) *cni.Result {
	if s.Before == nil && s.onlyChained() {
		return Veth
	}
	return s.Before
}

// repeatable reports whether a second ADD has to succeed. That of a chained plugin has: it makes no interface whose name
// could be in use (PL-ADD-03), and what was flushed behind its back is put back by ADD.
func (s *Suite) repeatable() bool { return s.Repeatable || s.onlyChained() }

// Container returns the container of that name. If there is none it is made, and attached by Before.
func (r *Runtime) Container(name string) *Namespace {
	r.t.Helper()
	if before := r.suite.before(); before != nil && r.before[name] == nil {
		r.before[name] = before(r.t, r.Net, r.Net.Container(name))
	}
	return r.Net.Container(name)
}

// Remove ends a container with all its interfaces as a runtime does: the path is gone, and then the namespace, unless
// something else holds it.
func (r *Runtime) Remove(name string) {
	r.t.Helper()
	if r.before[name] != nil { // the kernel would take the host's ends away some time later
		for _, l := range r.interfaces(name) {
			if l != "lo" {
				r.Net.Container(name).Command("ip", "link", "delete", l)
			}
		}
	}
	delete(r.before, name)
	r.Net.Remove(name)
}

// interfaces lists the names of a container's interfaces.
func (r *Runtime) interfaces(container string) []string {
	r.t.Helper()
	var names []string
	r.Net.Container(container).Do(func() {
		links, err := net.Interfaces()
		if err != nil {
			r.t.Fatal(err)
		}
		for _, l := range links {
			names = append(names, l.Name)
		}
	})
	return names
}

// previous returns the result of Before in the version of the network, nil if there is none or the version is too old to
// hand it over.
func (r *Runtime) previous(container string) json.RawMessage {
	r.t.Helper()
	result := r.before[container]
	text, _ := r.Conf["cniVersion"].(string)
	version, err := cni.ParseVersion(text)
	if result == nil || err != nil || version < cni.V030 {
		return nil
	}
	prev, err := result.Encode(version)
	if err != nil {
		r.t.Fatal(err)
	}
	return prev
}

// passedOn fails the test unless the result of ADD has everything of the one before: interfaces under the same index,
// addresses, routes and DNS as they were. Hardware address and MTU of the container's interface a plugin may have changed.
// PL-ADD-06
func (r *Runtime) passedOn(container string) {
	r.t.Helper()
	raw := r.previous(container)
	if raw == nil {
		return
	}
	before, err := cni.DecodeResultStrict(raw, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	after := r.result(container)
	after.Interfaces = after.Interfaces[:min(len(after.Interfaces), len(before.Interfaces))]
	for _, result := range []*cni.Result{before, after} {
		if i, ok := result.Sandboxed(ifName, r.Container(container).Path()); ok {
			result.Interfaces[i].MAC, result.Interfaces[i].MTU = "", 0
		}
	}
	if diff := cmp.Diff(before, after, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		r.t.Errorf("result of ADD is not the previous one with additions: %s", diff)
	}
}

// previous calls a chained plugin without a previous result, which it refuses, and with poor ones, which it may refuse.
// Nothing changes.
// PL-ADD-08, PL-CHK-02
func previous(_ *testing.T, r *Runtime) {
	if !r.suite.onlyChained() {
		return
	}
	r.Container("c")
	before := r.State()
	for _, v := range r.suite.Plugin.Versions {
		r.Conf["cniVersion"] = v.String()
		for _, verb := range []cni.Command{cni.Add, cni.Check} {
			q := r.Request(verb, "c")
			delete(q.Conf, "prevResult")
			if v.Has(verb) {
				r.Refused(q, cni.CodeInvalidConfig)
			}
		}
	}
	for _, wrong := range []any{"x", 5, []any{}, object{"ips": "x"}, object{"ips": []any{object{"address": "x"}}}, object{"cniVersion": "9.9.9"}} {
		q := r.Request(cni.Add, "c")
		q.Conf["prevResult"] = wrong
		r.Refused(q, cni.CodeDecodingFailure, cni.CodeInvalidConfig, cni.CodeIncompatibleVersion)
	}
	r.poor(func(result *cni.Result) { result.Interfaces, result.IPs = nil, nil })
	r.poor(func(result *cni.Result) { result.IPs, result.Routes = nil, nil })
	r.poor(func(result *cni.Result) {
		for i := range result.IPs {
			result.IPs[i].Interface = cni.Optional[int]{}
		}
	})
	r.Unchanged(before)
}

// poor gives ADD a previous result that lacks something.
func (r *Runtime) poor(lack func(*cni.Result)) {
	r.t.Helper()
	result := r.before["c"]
	defer func() { r.before["c"] = result }()
	r.before["c"] = result.Clone()
	lack(r.before["c"])
	q := r.Request(cni.Add, "c")
	if _, err := r.Do(r.t.Context(), q); err != nil {
		if code := cni.CodeOf(err); code != cni.CodeInvalidConfig && code != cni.CodeUnsupportedField {
			r.t.Errorf("ADD with prevResult %s: code %d is not one for a wrong configuration: %v", q.Conf["prevResult"], code, err)
		}
		return
	}
	q.Command = cni.Del
	r.Must(q)
}
