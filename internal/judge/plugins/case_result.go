package plugins

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// resultCases compare results with the kernel. The form of results is judged on every ADD.
var resultCases = []*Case{resultCase, errorsCase}

// previousDNS is the member dns of the previous result of chained plugins.
const previousDNS = `"dns":{"nameservers":["10.77.0.53"],"domain":"conform.example","search":["a.example"],"options":["ndots:2"]}`

var resultCase = &Case{
	Name: "result", Roles: []Role{Interface, Chained, Meta}, Variants: true,
	Rows: []string{"RES-02", "RES-03", "RES-15", "RES-16", "RES-17", "RES-18", "PL-ADD-12", "R-66", "DNS-02"},
	Script: func(s *Setup) (*script.Scenario, string) {
		add := s.Call("add", cni.Add, 1)
		if s.Role == Chained {
			prev := strings.TrimSuffix(s.PrevResult(1), "}") + "," + previousDNS + "}"
			add = s.Call("add", cni.Add, 1, With("prevResult", script.Literal(prev)))
		}
		return s.Scenario(1, Each(add, s.Call("del", cni.Del, 1))...), ""
	},
	Judge: func(j *Judgment) {
		if !j.Requires("add") {
			return
		}
		r, _ := j.Call("add")
		result, err := cni.DecodeResult(r.Stdout, j.Setup.Version)
		if err != nil {
			j.Stopped = "the result of ADD is invalid: " + err.Error()
			return
		}
		c := comparison{Judgment: j, result: result, state: j.After("add"), printed: string(r.Stdout)}
		if c.container = c.state.Container("c1"); c.container == nil {
			j.Stopped = "the namespace of the container is gone"
			return
		}
		c.compare()
	},
}

// comparison compares a result with the state of the kernel.
type comparison struct {
	*Judgment
	result    *cni.Result
	printed   string
	state     *script.Snapshot
	container *host.Namespace
	found     map[string][]string // problems by row
}

// ifName returns the value of CNI_IFNAME.
func (c *comparison) ifName() string { return cmp.Or(c.Setup.Config.IfName, ifName) }

func (c *comparison) problem(row, format string, args ...any) {
	c.found[row] = append(c.found[row], fmt.Sprintf(format, args...))
}

func (c *comparison) compare() {
	c.found = map[string][]string{}
	if c.Setup.Version >= cni.V030 {
		for i := range c.result.Interfaces {
			c.listed(i)
		}
		c.unlisted()
	}
	for n := range c.result.IPs {
		c.address(n)
	}
	c.missingAddresses()
	for _, rt := range c.result.Routes {
		c.route(rt)
	}
	if c.Setup.Role == Chained {
		c.dns()
	} else {
		c.NotApplicable("DNS-02", "not a chained plugin")
	}
	for _, v := range []Verdict{
		{Row: "RES-02", Severity: report.Medium, Title: "interfaces of the result and of the kernel differ",
			Expected: "all interfaces of the attachment on the host and in the container, with their properties",
			Hint:     "list the host side of a veth pair, too"},
		{Row: "RES-03", Severity: report.Medium, Title: "an index of ips points to the wrong interface",
			Expected: "the index of the interface that has the address"},
		{Row: "RES-15", Severity: report.Medium, Title: "the result describes something that the plugin did not do",
			Expected: "addresses and routes that exist in the container"},
		{Row: "RES-16", Severity: report.Low, Title: "the result lacks known properties",
			Expected: "MAC address and all addresses of the interface in the container"},
		{Row: "RES-17", Severity: report.Medium, Title: "a route of the result does not exist on the interface of the container",
			Expected: "routes of the container through CNI_IFNAME"},
		{Row: "PL-ADD-12", Severity: report.High, Title: "sandbox does not say where an interface is",
			Expected: fmt.Sprintf("sandbox %q, the value of CNI_NETNS, for interfaces of the container, and none for interfaces of the host", netns(1)),
			Hint:     "runtimes find the interface of the container by sandbox"},
		{Row: "R-66", Severity: report.Medium, Title: "a MAC address in the result is not the interface's",
			Expected: "the MAC address of the link when ADD ends", Hint: "read the link again after the last change"},
	} {
		v.Actual = strings.Join(c.found[v.Row], "; ") + "; result " + c.printed
		c.Expect(c.found[v.Row] == nil, v)
	}
	if c.Setup.Version < cni.V100 && c.Setup.Version >= cni.V030 {
		return // every.go judges RES-18
	}
	c.NotApplicable("RES-18", "the version has no member version in ips")
}

// space returns the namespace that an interface of the result names, nil if the judge does not know it.
func (c *comparison) space(i cni.Interface) *host.Namespace {
	switch i.Sandbox {
	case "":
		return c.state.Host.Own()
	case netns(1):
		return c.container
	}
	return nil
}

// virtual reports whether an interface need not be a link of the kernel.
func virtual(i cni.Interface) bool { return i.SocketPath != "" || i.PciID != "" }

// listed compares an interface of the result with its link.
func (c *comparison) listed(n int) {
	i := c.result.Interfaces[n]
	inside, outside := c.container.LinkByName(i.Name), c.state.Host.Own().LinkByName(i.Name)
	link := outside
	if i.Sandbox != "" {
		link = inside
	}
	switch {
	case i.Sandbox == "" && outside == nil && inside != nil:
		c.problem("PL-ADD-12", "interfaces[%d], %s, is in the container and has no sandbox", n, i.Name)
		return
	case i.Sandbox != "" && inside == nil && outside != nil:
		c.problem("PL-ADD-12", "interfaces[%d], %s, is on the host and has sandbox %q", n, i.Name, i.Sandbox)
		return
	case i.Sandbox != "" && i.Sandbox != netns(1) && inside != nil:
		c.problem("PL-ADD-12", "interfaces[%d], %s, has sandbox %q", n, i.Name, i.Sandbox)
		return
	case link == nil:
		if !virtual(i) {
			c.problem("RES-02", "interfaces[%d], %s, does not exist", n, i.Name)
		}
		return
	}
	if i.MAC != "" && link.MAC != "" && !strings.EqualFold(i.MAC, link.MAC) {
		c.problem("R-66", "interfaces[%d], %s, has MAC address %s, the link %s", n, i.Name, i.MAC, link.MAC)
	}
	if i.MTU != 0 && i.MTU != link.MTU {
		c.problem("RES-02", "interfaces[%d], %s, has mtu %d, the link %d", n, i.Name, i.MTU, link.MTU)
	}
	if i.MAC == "" && link.MAC != "" && link.MAC != "00:00:00:00:00:00" && i.Name == c.ifName() && i.Sandbox != "" {
		c.problem("RES-16", "interfaces[%d], %s, lacks the MAC address %s", n, i.Name, link.MAC)
	}
}

// unlisted finds links that came with ADD and went with DEL, and are not in the result. Links that
// stay belong to all attachments of the network.
func (c *comparison) unlisted() {
	before, end := c.Before("add"), c.After("del")
	if end == nil {
		return
	}
	for _, place := range []struct {
		now     *host.Namespace
		sandbox string
	}{{c.state.Host.Own(), ""}, {c.container, netns(1)}} {
		was, is := before.Host.Namespace(place.now.ID), end.Host.Namespace(place.now.ID)
		if was == nil || is == nil {
			continue
		}
		for _, l := range place.now.Links {
			named := slices.ContainsFunc(c.result.Interfaces, func(i cni.Interface) bool {
				return i.Name == l.Name && (i.Sandbox == place.sandbox || c.found["PL-ADD-12"] != nil)
			})
			if !named && was.LinkByName(l.Name) == nil && is.LinkByName(l.Name) == nil {
				c.problem("RES-02", "interfaces lacks %s%s", l.Name, map[bool]string{true: " of the host", false: " of the container"}[place.sandbox == ""])
			}
		}
	}
}

// address finds an address of the result in the kernel.
func (c *comparison) address(n int) {
	ip := c.result.IPs[n]
	index, set := ip.Interface.Get()
	if set && index >= 0 && index < len(c.result.Interfaces) {
		i := c.result.Interfaces[index]
		space := c.space(i)
		if space == nil || virtual(i) {
			return
		}
		link := space.LinkByName(i.Name)
		if link == nil || has(space, link, ip.Address) {
			return
		}
		for other, o := range c.result.Interfaces {
			space := c.space(o)
			if space == nil {
				continue
			}
			if link := space.LinkByName(o.Name); link != nil && has(space, link, ip.Address) {
				c.problem("RES-03", "ips[%d], %s, is an address of interfaces[%d], not of interfaces[%d]", n, ip.Address, other, index)
				return
			}
		}
	}
	for _, space := range []*host.Namespace{c.container, c.state.Host.Own()} {
		for i := range space.Links {
			if has(space, &space.Links[i], ip.Address) {
				return
			}
		}
	}
	c.problem("RES-15", "ips[%d], %s, is not assigned to any interface", n, ip.Address)
}

// has reports whether a link has an address.
func has(n *host.Namespace, l *host.Link, p netip.Prefix) bool {
	return slices.ContainsFunc(n.Of(l.Index), func(a host.Addr) bool { return a.Prefix.Addr() == p.Addr() })
}

// missingAddresses finds new addresses of the container's interface that the result lacks.
func (c *comparison) missingAddresses() {
	link := c.container.LinkByName(c.ifName())
	if link == nil || c.Setup.Version < cni.V030 {
		return
	}
	before := c.Before("add").Host.Namespace(c.container.ID)
	for _, a := range c.container.Of(link.Index) {
		listed := slices.ContainsFunc(c.result.IPs, func(ip cni.IP) bool { return ip.Address.Addr() == a.Prefix.Addr() })
		old := before != nil && before.LinkByName(c.ifName()) != nil && has(before, before.LinkByName(c.ifName()), a.Prefix)
		if !listed && !old && !a.Prefix.Addr().IsLinkLocalUnicast() {
			c.problem("RES-16", "ips lacks %s of %s", a.Prefix, c.ifName())
		}
	}
}

// route finds a route of the result in the container.
func (c *comparison) route(rt cni.Route) {
	row := "RES-15"
	if c.Setup.Version == cni.V040 {
		row = "RES-17"
	}
	var links []int
	for _, k := range c.container.Routes {
		if k.Dst.Masked() != rt.Dst.Masked() || k.Type == "local" {
			continue
		}
		for _, hop := range k.Hops {
			if !rt.GW.IsValid() || hop.Via == rt.GW {
				links = append(links, hop.Link)
			}
		}
	}
	text := rt.Dst.String()
	if rt.GW.IsValid() {
		text += " via " + rt.GW.String()
	}
	if links == nil {
		c.problem(row, "the container has no route to %s", text)
		return
	}
	if link := c.container.LinkByName(c.ifName()); link != nil && !slices.Contains(links, link.Index) {
		c.problem("RES-17", "the route to %s does not use %s", text, c.ifName())
	}
}

// dns compares the member dns of the two results.
func (c *comparison) dns() {
	want := cni.DNS{Nameservers: []string{"10.77.0.53"}, Domain: "conform.example", Search: []string{"a.example"}, Options: []string{"ndots:2"}}
	c.Expect(reflect.DeepEqual(c.result.DNS, want), Verdict{Row: "DNS-02", Severity: report.Medium,
		Title: "dns of prevResult is lost", Expected: previousDNS, Actual: fmt.Sprintf("%+v", c.result.DNS),
		Hint: "start from prevResult, and change only what the plugin changes"})
}

// errorsCase makes verbs fail and succeed for the checks of every call.
var errorsCase = &Case{
	Name: "errors", Once: true,
	Rows: []string{"EXE-06", "EXE-13", "EXE-15", "EXE-16", "ERR-01", "ERR-02", "ERR-03", "ERR-05", "ERR-10", "PL-ADD-05",
		"PL-DEL-07", "VER-02", "RES-01", "RES-09", "RES-12", "DNS-03"},
	Script: func(s *Setup) (*script.Scenario, string) {
		absent := Env("CNI_NETNS", script.Netns+"/absent")
		steps := []script.Step{
			quiet(s.Call("add", cni.Add, 1)),
			quiet(s.Call("del", cni.Del, 1)),
			quiet(s.Call("del-nameless", cni.Del, 1, Without("CNI_IFNAME", "prevResult"))),
			quiet(s.Call("add-absent", cni.Add, 2, absent)),
		}
		if s.needsPath() {
			steps = append(steps, quiet(s.Call("add-ipam", cni.Add, 2, With("ipam", map[string]any{"type": "conform-absent"}))))
		}
		if s.Version >= cni.V110 {
			steps = append(steps, quiet(s.Call("status", cni.Status, 1)),
				quiet(s.Call("gc", cni.GC, 1, With("cni.dev/valid-attachments", []any{}))))
		}
		return s.Scenario(2, steps...), ""
	},
}
