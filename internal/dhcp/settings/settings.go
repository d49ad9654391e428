// Package settings is the ipam section of networks whose addresses come from DHCP: what it may say, and which options of the
// protocol that means.
package settings

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/dhcp/v4"
)

// DefaultSocket is where the daemon listens.
const DefaultSocket = "/run/cni/dhcp.sock"

// Settings is the ipam section.
type Settings struct {
	// DaemonSocketPath is the socket of the daemon.
	DaemonSocketPath string `json:"daemonSocketPath" default:"/run/cni/dhcp.sock"`
	// Provide are options that are sent to the server.
	Provide []Provided `json:"provide"`
	// Request are options that the server is asked for, in this order.
	Request []Requested `json:"request"`
	// Priority is the metric of all routes that come from the server; 0 is the kernel's default.
	Priority int `json:"priority" min:"0"`
	// Routes are added to those of the server.
	Routes []cni.Route `json:"routes"`
	// DHCP6 asks for IPv6 besides the IPv4 address: "stateful" a DHCPv6 server for addresses, "stateless" one for name servers
	// only; "slaac" has the kernel take its addresses and router from router advertisements.
	DHCP6 DHCP6 `json:"dhcp6" enum:"stateful,stateless,slaac"`
}

// DHCP6 is where IPv6 comes from.
type DHCP6 string

// The ways. The empty one is none.
const (
	Stateful  DHCP6 = "stateful"  // a DHCPv6 server gives addresses (RFC 8415 section 6.2)
	Stateless DHCP6 = "stateless" // one tells what else there is (section 6.1)
	SLAAC     DHCP6 = "slaac"     // routers advertise prefixes (RFC 4862), and no server is asked
)

// Provided is an option that is sent.
type Provided struct {
	// Option is its name or number.
	Option string `json:"option"`
	// Value is sent as it is, at most 255 bytes.
	Value string `json:"value"`
	// FromArg is a key of CNI_ARGS, whose value is sent instead if it is there.
	FromArg string `json:"fromArg"`
}

// Requested is an option that is asked for.
type Requested struct {
	// SkipDefault leaves out what is asked for otherwise: subnet-mask and routers.
	SkipDefault bool `json:"skipDefault"`
	// Option is the name or number of an option; empty for none.
	Option string `json:"option"`
}

// Network is a network configuration, as far as the daemon needs it.
type Network struct {
	Name string    `json:"name"`
	IPAM *Settings `json:"ipam"`
}

// Parse reads a network configuration.
func Parse(config []byte) (*Network, error) {
	n := new(Network)
	if err := json.Unmarshal(config, n); err != nil {
		return nil, cni.DecodeFailure("network configuration", err)
	}
	if n.IPAM == nil {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "the network configuration has no ipam section")
	}
	return n, nil
}

// Options returns the options that are sent to the server, and the codes of those that it is asked for. args is CNI_ARGS,
// of which anything but a value that is asked for is passed over. Errors have [cni.CodeInvalidConfig].
func (s *Settings) Options(args string) (provide []v4.Option, request []byte, err error) {
	switch s.DHCP6 {
	case "", Stateful, Stateless, SLAAC:
	default:
		return nil, nil, cni.Errorf(cni.CodeInvalidConfig, "dhcp6: %q is neither %q nor %q nor %q", s.DHCP6, Stateful, Stateless, SLAAC)
	}
	for _, p := range s.Provide {
		code, err := Code(p.Option)
		if err != nil {
			return nil, nil, err
		}
		values := []string{p.Value}
		if fromArg, ok := argument(args, p.FromArg); ok {
			values = append(values, fromArg)
		}
		for _, value := range values {
			if len(value) > 255 {
				return nil, nil, cni.Errorf(cni.CodeInvalidConfig, "provide: the value of option %s is longer than 255 bytes", p.Option)
			}
			if value != "" {
				provide = slices.DeleteFunc(provide, func(o v4.Option) bool { return o.Code == code })
				provide = append(provide, v4.Option{Code: code, Value: []byte(value)})
			}
		}
	}
	defaults := []byte{v4.OptRouter, v4.OptSubnetMask}
	for _, r := range s.Request {
		if r.SkipDefault {
			defaults = nil
		}
		if r.Option == "" {
			continue
		}
		code, err := Code(r.Option)
		if err != nil {
			return nil, nil, err
		}
		request = append(request, code)
	}
	request = append(request, defaults...)
	if len(request) == 0 { // what the library of the reference plugin asks for then
		request = []byte{v4.OptSubnetMask, v4.OptRouter, v4.OptDomainName, v4.OptDNS}
	}
	return provide, unique(request), nil
}

func unique(codes []byte) (out []byte) {
	for _, c := range codes {
		if !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

// argument is the value of a key in CNI_ARGS, which is not checked: it is not for this plugin alone.
func argument(args, key string) (value string, ok bool) {
	if key == "" {
		return "", false
	}
	for pair := range strings.SplitSeq(args, ";") {
		if k, v, found := strings.Cut(pair, "="); found && k == key {
			value, ok = v, true
		}
	}
	return value, ok
}

// Code returns the number of an option from its name or number. The first six names are all that the reference plugin knows.
func Code(name string) (byte, error) {
	switch name {
	case "dhcp-client-identifier":
		return v4.OptClientID, nil
	case "subnet-mask":
		return v4.OptSubnetMask, nil
	case "routers":
		return v4.OptRouter, nil
	case "host-name":
		return v4.OptHostName, nil
	case "user-class":
		return v4.OptUserClass, nil
	case "vendor-class-identifier":
		return v4.OptVendorClass, nil
	case "domain-name-servers":
		return v4.OptDNS, nil
	case "domain-name":
		return v4.OptDomainName, nil
	case "domain-search":
		return v4.OptSearch, nil
	case "interface-mtu":
		return v4.OptMTU, nil
	case "static-routes":
		return v4.OptStaticRoutes, nil
	case "classless-static-routes":
		return v4.OptClasslessRoute, nil
	}
	n, err := strconv.ParseUint(name, 10, 8)
	if err != nil {
		return 0, cni.Errorf(cni.CodeInvalidConfig, "%q is no DHCP option: neither a known name nor a number from 0 to 255", name)
	}
	return byte(n), nil
}
