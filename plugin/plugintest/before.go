package plugintest

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin"
)

// Veth attaches containers in place of the plugins before a chained one; it is the default of
// [Suite.Before] for chained plugins. It creates a veth pair with ip(8): eth0 in the container and
// vethN on the host, where N is the number of the container. eth0 has 10.88.N.2/24 and
// fd00:88:0:N::2/64, and default routes to the gateways .1 and ::1 on the host. The host has a
// route to each address and forwards packets. The result has interfaces, addresses, routes and DNS.
func Veth(_ testing.TB, n *Net, c *Namespace) *cni.Result {
	var (
		number = byte(c.Number)
		end    = fmt.Sprintf("veth%d", c.Number) // on the host
		mac    = func(side byte) string {
			return net.HardwareAddr{2, 0x88, 0, 0, number, side}.String()
		}
		v4 = func(host byte) netip.Addr {
			return netip.AddrFrom4([4]byte{10, 88, number, host})
		}
		v6 = func(host byte) netip.Addr {
			return netip.AddrFrom16([16]byte{0xfd, 0, 0, 0x88, 0, 0, 0, number, 15: host})
		}
	)
	c.Batch(fmt.Sprintf("link add %s address %s type veth peer name %s address %s netns %s", ifName,
		mac(2), end, mac(1), n.Host.Path()))
	// The kernel does not resolve neighbours from a tentative address, so the first packets would
	// be delayed.
	c.Command("sysctl", "-qw", "net.ipv6.conf."+ifName+".accept_dad=0")
	n.Host.Command("sysctl", "-qw", "net.ipv6.conf."+end+".accept_dad=0", "net.ipv4.ip_forward=1",
		"net.ipv6.conf.all.forwarding=1")
	n.Host.Batch(
		"link set "+end+" up",
		fmt.Sprintf("address add %s/32 dev %s", v4(1), end),
		fmt.Sprintf("address add %s/128 dev %s nodad", v6(1), end),
		fmt.Sprintf("route add %s/32 dev %s", v4(2), end),
		fmt.Sprintf("route add %s/128 dev %s", v6(2), end))
	c.Batch(
		"link set "+ifName+" up",
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
		DNS: cni.DNS{Nameservers: []string{v4(1).String()}, Domain: "example",
			Search: []string{"example"}, Options: []string{"ndots:2"}},
	}
}

// onlyChained reports whether the plugin requires a previous result.
func (s *Suite) onlyChained() bool { return s.Plugin.Role == plugin.RoleChained }

// before returns the function that attaches containers before the plugin, or nil if the plugin
// attaches them itself.
func (s *Suite) before() func(testing.TB, *Net, *Namespace) *cni.Result {
	if s.Before == nil && s.onlyChained() {
		return Veth
	}
	return s.Before
}

// repeatable reports whether a second ADD must succeed. Chained plugins must repeat: they do not
// create an interface with a name that could be in use (PL-ADD-03), and ADD restores rules that
// were flushed.
func (s *Suite) repeatable() bool { return s.Repeatable || s.onlyChained() }

// Container returns the container of that name. If it does not exist, Container creates it and
// calls [Suite.Before] for it.
func (r *Runtime) Container(name string) *Namespace {
	r.t.Helper()
	if before := r.suite.before(); before != nil && !r.prepared(name) {
		r.before[name] = before(r.t, r.Net, r.Net.Container(name))
	}
	return r.Net.Container(name)
}

// Remove ends a container as a runtime does: it removes the path, and the kernel removes the
// namespace with all interfaces unless another process holds it.
func (r *Runtime) Remove(name string) {
	r.t.Helper()
	if r.prepared(name) {
		r.unplug(name) // the kernel would delete the host-side veths later, in the background
	}
	delete(r.before, name)
	r.Net.Remove(name)
}

// prepared reports whether Before has been called for a container.
func (r *Runtime) prepared(name string) bool {
	_, ok := r.before[name]
	return ok
}

// unplug deletes all interfaces of a container.
func (r *Runtime) unplug(container string) {
	r.t.Helper()
	for _, l := range r.interfaces(container) {
		if l != "lo" { // deleting one end of a veth pair deletes the other
			_ = r.Net.Container(container).Try("ip", "link", "delete", l)
		}
	}
	if left := r.interfaces(container); len(left) > 1 {
		r.t.Fatalf("interfaces of %s that cannot be deleted: %q", container, left)
	}
}

// interfaces lists the names of a container's interfaces.
func (r *Runtime) interfaces(container string) []string {
	r.t.Helper()
	var links []net.Interface
	err := r.Net.Container(container).Run(func() (err error) {
		links, err = net.Interfaces()
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	names := make([]string, len(links))
	for i, l := range links {
		names[i] = l.Name
	}
	return names
}

// previous returns the result of Before in the form of a request, or nil if there is none.
func (r *Runtime) previous(container string) json.RawMessage {
	r.t.Helper()
	if result := r.before[container]; result != nil {
		return r.encode(result)
	}
	return nil
}

// encode returns a result in the version of the network, or nil if the version is unknown or cannot
// express the result.
func (r *Runtime) encode(result *cni.Result) json.RawMessage {
	r.t.Helper()
	text, _ := r.Conf["cniVersion"].(string)
	version, err := cni.ParseVersion(text)
	if err != nil {
		return nil
	}
	out, _, err := result.Relay(version, result)
	if err != nil && version >= cni.V030 {
		r.t.Fatal(err)
	}
	return out
}
