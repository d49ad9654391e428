package main

import (
	"encoding/json"
	"net/netip"
	"slices"
)

// result is the result of ADD in the form of 1.0.0 and 1.1.0.
type result struct {
	CNIVersion string          `json:"cniVersion"`
	Interfaces []iface         `json:"interfaces,omitempty"`
	IPs        []ip            `json:"ips,omitempty"`
	Routes     []route         `json:"routes,omitempty"`
	DNS        json.RawMessage `json:"dns,omitempty"`
}

type iface struct {
	Name    string `json:"name"`
	MAC     string `json:"mac,omitempty"`
	Sandbox string `json:"sandbox,omitempty"`
}

type ip struct {
	Version   string       `json:"version,omitempty"` // before 1.0.0: "4" or "6"
	Address   netip.Prefix `json:"address"`
	Gateway   *netip.Addr  `json:"gateway,omitempty"`
	Interface *int         `json:"interface,omitempty"`
}

func (i ip) family() string {
	if i.Address.Addr().Is4() {
		return "4"
	}
	return "6"
}

type route struct {
	Dst netip.Prefix `json:"dst"`
	GW  *netip.Addr  `json:"gw,omitempty"`
}

// old is the form of 0.1.0 and 0.2.0.
type old struct {
	CNIVersion string          `json:"cniVersion"`
	IP4        *oldIP          `json:"ip4,omitempty"`
	IP6        *oldIP          `json:"ip6,omitempty"`
	DNS        json.RawMessage `json:"dns,omitempty"`
}

type oldIP struct {
	IP      netip.Prefix `json:"ip"`
	Gateway *netip.Addr  `json:"gateway,omitempty"`
	Routes  []route      `json:"routes,omitempty"`
}

// decode reads a result in the version that it names, else in the version of the call.
func (c *call) decode(text []byte) (*result, error) {
	var named struct {
		CNIVersion string `json:"cniVersion"`
	}
	if err := json.Unmarshal(text, &named); err != nil {
		return nil, fail(codeDecode, "result: %v", err)
	}
	if named.CNIVersion == "" {
		named.CNIVersion = c.version
	}
	if !slices.Contains(versions, named.CNIVersion) {
		return nil, fail(codeVersion, "a result has the version %s", named.CNIVersion)
	}
	if !isOld(named.CNIVersion) {
		var r result
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fail(codeDecode, "result: %v", err)
		}
		return &r, nil
	}
	var o old
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, fail(codeDecode, "result: %v", err)
	}
	r := result{DNS: o.DNS}
	for _, i := range []*oldIP{o.IP4, o.IP6} {
		if i != nil {
			r.IPs = append(r.IPs, ip{Address: i.IP, Gateway: i.Gateway})
			r.Routes = append(r.Routes, i.Routes...)
		}
	}
	return &r, nil
}

// family returns the number of the form of the results of a version.
func family(version string) int {
	switch {
	case version < "0.3.0":
		return 0
	case version < "1.0.0":
		return 1
	}
	return 2
}

// isOld reports whether results of a version have the form of 0.1.0 and 0.2.0.
func isOld(version string) bool { return family(version) == 0 }

// previous returns the result of the earlier plugins, an empty one if there are none.
func (c *call) previous() (*result, error) {
	if c.conf.PrevResult == nil {
		return &result{}, nil
	}
	var named struct {
		CNIVersion string `json:"cniVersion"`
	}
	if err := json.Unmarshal(c.conf.PrevResult, &named); err != nil {
		return nil, fail(codeDecode, "prevResult: %v", err)
	}
	if v := named.CNIVersion; v != "" && family(v) != family(c.version) {
		return nil, fail(codeDecode, "prevResult of version %s in a request of %s", v, c.version)
	}
	return c.decode(c.conf.PrevResult)
}

// encode returns the result in the version of the call.
func (r *result) encode(c *call) ([]byte, error) {
	if isOld(c.version) {
		o := old{CNIVersion: c.version, DNS: r.DNS}
		for _, i := range r.IPs {
			at := &o.IP4
			if i.family() == "6" {
				at = &o.IP6
			}
			if *at != nil {
				continue // these versions have one address of each family
			}
			*at = &oldIP{IP: i.Address, Gateway: i.Gateway}
			for _, rt := range r.Routes {
				if rt.Dst.Addr().Is4() == i.Address.Addr().Is4() {
					(*at).Routes = append((*at).Routes, rt)
				}
			}
		}
		if o.IP4 == nil && o.IP6 == nil {
			return nil, fail(codeConfig, "a result without address has no form in version %s", c.version)
		}
		return json.Marshal(o)
	}
	out := *r
	out.CNIVersion = c.version
	out.IPs = nil
	for _, i := range r.IPs {
		i.Version = ""
		if !c.since("1.0.0") {
			i.Version = i.family()
		}
		out.IPs = append(out.IPs, i)
	}
	return json.Marshal(out)
}
