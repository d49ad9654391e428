package types

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
)

// Route is a route of a result. Zero and nil members are absent.
type Route struct {
	Dst      net.IPNet
	GW       net.IP
	MTU      int // bytes, of the path
	AdvMSS   int // bytes, advertised to TCP peers
	Priority int // metric; lower values win
	Table    *int
	Scope    *int // 0 global, 253 link, 254 host
}

// route is the JSON form of a Route.
type route struct {
	Dst      IPNet  `json:"dst"`
	GW       net.IP `json:"gw,omitempty"`
	MTU      int    `json:"mtu,omitempty"`
	AdvMSS   int    `json:"advmss,omitempty"`
	Priority int    `json:"priority,omitempty"`
	Table    *int   `json:"table,omitempty"`
	Scope    *int   `json:"scope,omitempty"`
}

// String returns the members of r in one line, for messages: the mask is hexadecimal, and "<nil>"
// stands for an absent table or scope.
func (r *Route) String() string {
	if r == nil {
		return "<nil>"
	}
	return fmt.Sprintf("{Dst:%+v GW:%v MTU:%d AdvMSS:%d Priority:%d Table:%s Scope:%s}",
		r.Dst, r.GW, r.MTU, r.AdvMSS, r.Priority, optional(r.Table), optional(r.Scope))
}

func optional(n *int) string {
	if n == nil {
		return "<nil>"
	}
	return strconv.Itoa(*n)
}

// Copy returns a copy of r with its own table and scope; the copy shares the bytes of the
// addresses. Copy of nil is nil.
func (r *Route) Copy() *Route {
	if r == nil {
		return nil
	}
	c := *r
	c.Table, c.Scope = copyInt(r.Table), copyInt(r.Scope)
	return &c
}

func copyInt(n *int) *int {
	if n == nil {
		return nil
	}
	c := *n
	return &c
}

// MarshalJSON encodes the destination and all members that are present.
func (r Route) MarshalJSON() ([]byte, error) {
	return json.Marshal(route{
		Dst:      IPNet(r.Dst),
		GW:       r.GW,
		MTU:      r.MTU,
		AdvMSS:   r.AdvMSS,
		Priority: r.Priority,
		Table:    r.Table,
		Scope:    r.Scope,
	})
}

// UnmarshalJSON decodes a route and replaces all members of r. It accepts a route without
// destination. It returns errors of encoding/json and, for the destination, of [ParseCIDR].
func (r *Route) UnmarshalJSON(data []byte) error {
	var w route
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*r = Route{
		Dst:      net.IPNet(w.Dst),
		GW:       w.GW,
		MTU:      w.MTU,
		AdvMSS:   w.AdvMSS,
		Priority: w.Priority,
		Table:    w.Table,
		Scope:    w.Scope,
	}
	return nil
}
