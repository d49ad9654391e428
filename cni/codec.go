package cni

import (
	"encoding/json"
	"net/netip"
)

// wireResultA is the form of 0.1.0 and 0.2.0.
type wireResultA struct {
	CNIVersion Version  `json:"cniVersion"`
	IP4        *wireIPA `json:"ip4,omitempty"`
	IP6        *wireIPA `json:"ip6,omitempty"`
	DNS        DNS      `json:"dns"`
}

type wireIPA struct {
	IP      netip.Prefix  `json:"ip"`
	Gateway wireAddr      `json:"gateway,omitzero"`
	Routes  []*wireRouteA `json:"routes,omitempty"`
}

type wireRouteA struct {
	Dst netip.Prefix `json:"dst" required:"true"` // destination network
	GW  wireAddr     `json:"gw,omitzero"`         // next hop; zero means the gateway of the address
}

// wireResult is the form of 0.3.0 and later. [Result.express] removes interface members that are
// newer than the version.
type wireResult struct {
	CNIVersion Version         `json:"cniVersion"`
	Interfaces []wireInterface `json:"interfaces,omitempty"`
	IPs        []wireIPB       `json:"ips,omitempty"`
	Routes     []wireRoute     `json:"routes,omitempty"`
	DNS        *DNS            `json:"dns,omitempty"`
}

// wireInterfaceB is an interface from 0.3.0 to 0.4.0.
type wireInterfaceB struct {
	Name    string `json:"name"`
	MAC     string `json:"mac,omitempty"`
	Sandbox string `json:"sandbox,omitempty"`
}

type wireInterface struct {
	wireInterfaceB
	MTU        int    `json:"mtu,omitempty"`
	SocketPath string `json:"socketPath,omitempty"`
	PciID      string `json:"pciID,omitempty"`
}

// wireIPB is an address from 0.3.0 to 0.4.0; without the version member it is an address of later
// versions.
type wireIPB struct {
	Version string `json:"version,omitempty"`
	wireIP
}

type wireIP struct {
	Interface *int         `json:"interface,omitempty"`
	Address   netip.Prefix `json:"address"`
	Gateway   wireAddr     `json:"gateway,omitzero"`
}

type wireRoute struct {
	wireRouteA
	MTU      int  `json:"mtu,omitempty"`      // largest packet on the path, in bytes
	AdvMSS   int  `json:"advmss,omitempty"`   // largest TCP segment to ask for, in bytes
	Priority int  `json:"priority,omitempty"` // lower wins
	Table    *int `json:"table,omitempty"`    // routing table; absent means the main table
	Scope    *int `json:"scope,omitempty"`    // 0 global, 253 link, 254 host
}

// wireAddr is an address without a zone, because the protocol has no zones.
type wireAddr struct{ netip.Addr }

func (a *wireAddr) UnmarshalText(text []byte) error {
	if err := a.Addr.UnmarshalText(text); err != nil {
		return err
	}
	if a.Zone() != "" {
		return Errorf(CodeDecodingFailure, "address %q has a zone", text)
	}
	return nil
}

// Encode returns r in version v as compact JSON, without the values that v cannot express (see
// [Result.Dropped]). It returns an error with [CodeInvalidConfig] if r is not valid, or if v is
// 0.1.0 or 0.2.0 and r has no address, because these versions require one. It returns an error with
// [CodeIncompatibleVersion] if v is not a published version.
func (r *Result) Encode(v Version) ([]byte, error) {
	encoded, _, err := r.Relay(v, nil)
	return encoded, err
}

// Relay encodes r like [Result.Encode], for a plugin or a runtime that passes on the result from of
// a previous plugin. It keeps two properties of from that Encode drops or refuses: a gateway of the
// other family in 0.4.0 and older, and the lack of addresses in 0.1.0 and 0.2.0 if r has no
// interfaces either. If from is nil, Relay equals Encode.
//
// Relay also returns the addresses, gateways and routes that v cannot express, one sentence each.
func (r *Result) Relay(v Version, from *Result) (encoded []byte, lost []string, err error) {
	if v < V010 || v > Newest {
		return nil, nil, Errorf(CodeIncompatibleVersion, "CNI version %d is not published", v)
	}
	if err := r.Validate(); err != nil {
		return nil, nil, DecodeFailure("result", err)
	}
	e := r.express(v, from)
	if e.generation != genA {
		return encodeBC(&e.said, v), e.lost, nil
	}
	passedOn := from != nil && len(from.IPs)+len(r.Interfaces) == 0
	if len(r.IPs) == 0 && !passedOn {
		return nil, nil, Errorf(CodeInvalidConfig,
			"result without addresses cannot be expressed in CNI version %v", v).
			WithDetails("use cniVersion 0.3.0 or newer")
	}
	return encodeA(&e.said, v), e.lost, nil
}

func encodeA(r *Result, v Version) []byte {
	return encode(wireResultA{
		CNIVersion: v, IP4: encodeFamily(r, true), IP6: encodeFamily(r, false), DNS: r.DNS,
	})
}

// encodeFamily returns the address of a family with the routes of that family, or nil if there is
// none.
func encodeFamily(r *Result, is4 bool) *wireIPA {
	ip := r.first(is4)
	if ip == nil {
		return nil
	}
	w := &wireIPA{IP: ip.Address, Gateway: wireAddr{ip.Gateway}}
	for _, rt := range r.Routes {
		if rt.Dst.Addr().Is4() == is4 {
			w.Routes = append(w.Routes, &wireRouteA{Dst: rt.Dst, GW: wireAddr{rt.GW}})
		}
	}
	return w
}

func encodeBC(r *Result, v Version) []byte {
	w := wireResult{CNIVersion: v}
	if v.generation() == genB || !r.DNS.IsZero() {
		w.DNS = &r.DNS
	}
	for _, i := range r.Interfaces {
		w.Interfaces = append(w.Interfaces, wireInterface{
			wireInterfaceB: wireInterfaceB{Name: i.Name, MAC: i.MAC, Sandbox: i.Sandbox},
			MTU:            i.MTU, SocketPath: i.SocketPath, PciID: i.PciID,
		})
	}
	for _, ip := range r.IPs {
		wip := wireIPB{wireIP: wireIP{
			Address: ip.Address, Gateway: wireAddr{ip.Gateway}, Interface: pointer(ip.Interface),
		}}
		if v.generation() == genB {
			wip.Version = family(ip.Address)
		}
		w.IPs = append(w.IPs, wip)
	}
	for _, rt := range r.Routes {
		w.Routes = append(w.Routes, encodeRoute(rt))
	}
	return encode(w)
}

// family is the version member of an address from 0.3.0 to 0.4.0.
func family(p netip.Prefix) string {
	if p.Addr().Is4() {
		return "4"
	}
	return "6"
}

func encodeRoute(rt Route) wireRoute {
	return wireRoute{
		wireRouteA: wireRouteA{Dst: rt.Dst, GW: wireAddr{rt.GW}},
		MTU:        rt.MTU, AdvMSS: rt.AdvMSS, Priority: rt.Priority,
		Table: pointer(rt.Table), Scope: pointer(rt.Scope),
	}
}

func (w wireRoute) route() Route {
	return Route{
		Dst: w.Dst, GW: w.GW.Addr, MTU: w.MTU, AdvMSS: w.AdvMSS, Priority: w.Priority,
		Table: optional(w.Table), Scope: optional(w.Scope),
	}
}

// MarshalJSON encodes the route as in a result of 1.1.0. The code is [CodeInvalidConfig] if r is
// not valid.
func (r Route) MarshalJSON() ([]byte, error) {
	if err := r.validate(); err != nil {
		return nil, DecodeFailure("route", err)
	}
	return encode(encodeRoute(r)), nil
}

// UnmarshalJSON decodes a route as in results and IPAM configurations. It returns the same codes as
// [DecodeResult].
func (r *Route) UnmarshalJSON(b []byte) error {
	var w wireRoute
	if err := json.Unmarshal(b, &w); err != nil {
		return DecodeFailure("route", err)
	}
	rt := w.route()
	if err := rt.validate(); err != nil {
		return DecodeFailure("route", err)
	}
	*r = rt
	return nil
}

// JSONForm returns a struct with the JSON members of a route as fields. The descriptions of
// configurations are derived from it.
func (Route) JSONForm() any { return wireRoute{} }

func pointer(o Optional[int]) *int {
	if !o.Set {
		return nil
	}
	return &o.Value
}

func optional(p *int) Optional[int] {
	if p == nil {
		return Optional[int]{}
	}
	return Some(*p)
}
