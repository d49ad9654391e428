package types020

import (
	"encoding/json"
	"net"

	"github.com/containernetworking/cni/pkg/types"
)

// IPConfig is the address of one family with its routes.
type IPConfig struct {
	IP      net.IPNet // the address with its prefix length
	Gateway net.IP
	Routes  []types.Route
}

// ipConfig is the JSON form of an IPConfig.
type ipConfig struct {
	IP      types.IPNet   `json:"ip"`
	Gateway net.IP        `json:"gateway,omitempty"`
	Routes  []types.Route `json:"routes,omitempty"`
}

// Copy returns a copy of i with its own routes; the copy shares the bytes of the addresses. Copy of
// nil is nil.
func (i *IPConfig) Copy() *IPConfig {
	if i == nil {
		return nil
	}
	c := &IPConfig{IP: i.IP, Gateway: i.Gateway}
	for _, r := range i.Routes {
		c.Routes = append(c.Routes, *r.Copy())
	}
	return c
}

// MarshalJSON encodes the address and the members that are present.
func (i *IPConfig) MarshalJSON() ([]byte, error) {
	return json.Marshal(ipConfig{IP: types.IPNet(i.IP), Gateway: i.Gateway, Routes: i.Routes})
}

// UnmarshalJSON decodes an address and replaces all members of i. It accepts a missing address. It
// returns errors of encoding/json and, for the address, of [types.ParseCIDR].
func (i *IPConfig) UnmarshalJSON(data []byte) error {
	var w ipConfig
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*i = IPConfig{IP: net.IPNet(w.IP), Gateway: w.Gateway, Routes: w.Routes}
	return nil
}
