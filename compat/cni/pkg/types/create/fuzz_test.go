package create_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types020 "github.com/containernetworking/cni/pkg/types/020"
	types040 "github.com/containernetworking/cni/pkg/types/040"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
)

var seeds = []string{
	`{"ip4":{"ip":"10.0.0.5/24","gateway":"10.0.0.1","routes":[{"dst":"0.0.0.0/0","mtu":1}]},
	  "ip6":{"ip":"fd00::5/64","routes":[{"dst":"::/0","gw":"fd00::1"}]},"dns":{"domain":"d"}}`,
	`{"ip4":{"routes":[null,{}]},"ip6":{"ip":"10.0.0.5/24","routes":[{"dst":"10.0.0.0/8"}]}}`,
	`{"interfaces":[{"name":"eth0","mac":"m","sandbox":"s","mtu":9,"pciID":"p","socketPath":"k"}],
	  "ips":[{"version":"4","interface":0,"address":"10.0.0.5/24","gateway":"10.0.0.1"},
	  {"version":"6","address":"fd00::5/64"},{"version":"6","address":"fd00::6/64"},
	  {"version":"4","interface":1,"address":"10.0.0.6/24"}],
	  "routes":[{"dst":"::/0","gw":"fd00::1","scope":0},{"dst":"0.0.0.0/0","table":3}]}`,
	`{"interfaces":[null],"ips":[null,{}],"routes":[null,{}],"dns":{"search":[],"options":["o"]}}`,
	`{"ips":[{"address":"::ffff:10.0.0.5/24"}]}`,
	`{"ips":[{"version":"6","address":"10.0.0.6/24"},{"version":"4","address":"fd00::6/64"}]}`,
	`{"ips":[],"IPS":[{"Address":"10.0.0.5/24"}]}`,
	`{}`,
	`null`,
}

// No decoder and no converter panics. A converted result survives its encoding, and converted back
// it has everything that the version in between can express.
func FuzzConversions(f *testing.F) {
	for i, v := range versions {
		for _, seed := range seeds {
			f.Add([]byte(strings.Replace(seed, "{", `{"cniVersion":"`+v.version+`",`, 1)), uint8(i))
			f.Add([]byte(seed), uint8(i))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, i uint8) {
		_, _ = create.CreateFromBytes(data)
		r, err := create.Create(versions[int(i)%len(versions)].version, data)
		if err != nil {
			return
		}
		for _, v := range versions {
			detour(t, r, v.version)
		}
	})
}

// detour converts a result to a version and back.
func detour(t *testing.T, r types.Result, via string) {
	t.Helper()
	before := encoded(t, r)
	c, err := r.GetAsVersion(via)
	if err != nil {
		if want := "cannot convert: no valid IP addresses"; err.Error() != want || via > "0.2.0" {
			t.Errorf("to %s: %v", via, err)
		}
		return
	}
	text := encoded(t, c)
	if c.Version() != via {
		t.Errorf("converted to %s: %s", via, text)
	}
	if !strings.Contains(text, `"\u003cnil\u003e"`) {
		again, err := create.CreateFromBytes([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := encoded(t, again); got != text {
			t.Errorf("encoded again: %s\nwant %s", got, text)
		}
	}
	back, err := c.GetAsVersion(r.Version())
	if err != nil {
		if r.Version() > "0.2.0" || len(addresses(r)) > 0 && consistent(r) {
			t.Errorf("from %s back to %s: %v", via, r.Version(), err)
		}
		return
	}
	if !consistent(r) {
		return
	}
	if got, want := encoded(t, back), encoded(t, expressible(r, via)); got != want {
		t.Errorf("through %s: %s\nwant %s", via, got, want)
	}
	if after := encoded(t, r); after != before {
		t.Errorf("to %s: the result has changed from %s to %s", via, before, after)
	}
}

func encoded(t *testing.T, r types.Result) string {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// address is an address of any result, with the family that the result or the address states.
type address struct {
	family string
	ip     types100.IPConfig
}

func familyOf(n types.IPNet) string {
	if n.IP.To4() != nil {
		return "4"
	}
	return "6"
}

func addresses(r types.Result) []address {
	var all []address
	switch r := r.(type) {
	case *types020.Result:
		for family, ip := range map[string]*types020.IPConfig{"4": r.IP4, "6": r.IP6} {
			if ip != nil {
				all = append(all, address{family, types100.IPConfig{Address: ip.IP, Gateway: ip.Gateway}})
			}
		}
	case *types040.Result:
		for _, ip := range r.IPs {
			if ip != nil {
				all = append(all, address{ip.Version,
					types100.IPConfig{Address: ip.Address, Gateway: ip.Gateway, Interface: ip.Interface}})
			}
		}
	case *types100.Result:
		for _, ip := range r.IPs {
			if ip != nil {
				all = append(all, address{familyOf(types.IPNet(ip.Address)), *ip})
			}
		}
	}
	return all
}

// consistent reports whether all addresses and routes belong to the family under which the result
// has them.
func consistent(r types.Result) bool {
	for _, a := range addresses(r) {
		if a.family != familyOf(types.IPNet(a.ip.Address)) {
			return false
		}
	}
	old, ok := r.(*types020.Result)
	if !ok {
		return true
	}
	for family, ip := range map[string]*types020.IPConfig{"4": old.IP4, "6": old.IP6} {
		if ip == nil {
			continue
		}
		for _, route := range ip.Routes {
			if familyOf(types.IPNet(route.Dst)) != family {
				return false
			}
		}
	}
	return true
}

// expressible returns the part of a consistent result that a version can express, in the version of
// the result.
func expressible(r types.Result, via string) types.Result {
	switch r := r.(type) {
	case *types020.Result:
		if via > "0.2.0" {
			c := *r
			c.IP4, c.IP6 = withPlainRoutes(r.IP4), withPlainRoutes(r.IP6)
			return &c
		}
	case *types040.Result:
		if via <= "0.2.0" {
			c := &types040.Result{CNIVersion: r.CNIVersion, DNS: r.DNS}
			for _, a := range firsts(r) {
				c.IPs = append(c.IPs,
					&types040.IPConfig{Version: a.family, Address: a.ip.Address, Gateway: a.ip.Gateway})
				c.Routes = append(c.Routes, routesOf(r.Routes, a.family)...)
			}
			return c
		}
	case *types100.Result:
		if via <= "0.2.0" {
			c := &types100.Result{CNIVersion: r.CNIVersion, DNS: r.DNS}
			for _, a := range firsts(r) {
				c.IPs = append(c.IPs, &types100.IPConfig{Address: a.ip.Address, Gateway: a.ip.Gateway})
				c.Routes = append(c.Routes, routesOf(r.Routes, a.family)...)
			}
			return c
		}
		if via <= "0.4.0" {
			return withoutNewMembers(r)
		}
	}
	return r
}

func withPlainRoutes(ip *types020.IPConfig) *types020.IPConfig {
	c := ip.Copy()
	if c == nil {
		return nil
	}
	for i, route := range c.Routes {
		c.Routes[i] = types.Route{Dst: route.Dst, GW: route.GW}
	}
	return c
}

// firsts returns the first address of each family, IPv4 first.
func firsts(r types.Result) []address {
	var all []address
	for _, family := range []string{"4", "6"} {
		for _, a := range addresses(r) {
			if a.family == family {
				all = append(all, a)
				break
			}
		}
	}
	return all
}

func routesOf(all []*types.Route, family string) []*types.Route {
	var routes []*types.Route
	for _, route := range all {
		if route != nil && familyOf(types.IPNet(route.Dst)) == family {
			routes = append(routes, &types.Route{Dst: route.Dst, GW: route.GW})
		}
	}
	return routes
}

func withoutNewMembers(r *types100.Result) *types100.Result {
	c := *r
	c.Interfaces = nil
	for _, i := range r.Interfaces {
		if i = i.Copy(); i != nil {
			i.Mtu, i.SocketPath, i.PciID = 0, "", ""
		}
		c.Interfaces = append(c.Interfaces, i)
	}
	return &c
}
