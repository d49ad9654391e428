package types

import (
	"encoding/json"
	"net"
)

// IPNet is a network in CIDR notation that keeps host bits, so that it can also hold an address
// with its prefix length. Its JSON form is the text "10.0.0.5/24".
type IPNet net.IPNet

// ParseCIDR parses CIDR notation. Unlike [net.ParseCIDR] it keeps host bits: the network of
// "10.0.0.5/24" has the IP 10.0.0.5. The error is a [*net.ParseError].
func ParseCIDR(s string) (*net.IPNet, error) {
	ip, network, err := net.ParseCIDR(s)
	if err != nil {
		return nil, err
	}
	network.IP = ip
	return network, nil
}

// MarshalJSON returns CIDR notation as JSON text. The zero value becomes "<nil>", which
// [IPNet.UnmarshalJSON] refuses.
func (n IPNet) MarshalJSON() ([]byte, error) {
	return json.Marshal((*net.IPNet)(&n).String())
}

// UnmarshalJSON decodes CIDR notation by [ParseCIDR]. It returns errors of encoding/json and
// ParseCIDR.
func (n *IPNet) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	parsed, err := ParseCIDR(s)
	if err != nil {
		return err
	}
	*n = IPNet(*parsed)
	return nil
}
