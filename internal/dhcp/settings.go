// Package dhcp is the part of DHCP that the plugin dhcp and the command tenon use: the ipam section
// of a network configuration, requests to the daemon, the files of a socket, and the flags and the
// start of tenon-dhcp, the program of the daemon. It does not handle DHCP messages, so plugins do
// not link code for them. Package daemon is the other side.
//
// Plugin and daemon communicate over a Unix stream socket. Each side sends a greeting line first.
// Then the plugin sends a request as a line of JSON, which may pass the namespace as a file
// descriptor (SCM_RIGHTS), and the daemon replies with another line. The upstream plugin and its
// daemon use net/rpc over HTTP instead. This package does not link it, because encoding/gob would
// add 0.14 ms to the start of each plugin. If the answer to the greeting is HTTP, tenon-dhcp makes
// the request.
package dhcp

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-cni/tenon/cni"
)

// DefaultSocket is the default path of the daemon's socket.
const DefaultSocket = "/run/cni/dhcp.sock"

// Settings is the ipam section.
type Settings struct {
	// DaemonSocketPath is the path of the daemon's socket.
	DaemonSocketPath string `json:"daemonSocketPath" default:"/run/cni/dhcp.sock"`
	// Provide are options to send to the server.
	Provide []Provided `json:"provide"`
	// Request are options to request from the server, in this order.
	Request []Requested `json:"request"`
	// Priority is the metric of all routes from the server; 0 is the kernel's default.
	Priority int `json:"priority" min:"0"`
	// Routes are added to the server's routes.
	Routes []cni.Route `json:"routes"`
	// DHCP6 selects the source of IPv6 settings in addition to the IPv4 address. With "stateful", a
	// DHCPv6 server provides addresses; with "stateless", a DHCPv6 server provides name servers
	// only; with "slaac", the kernel takes its addresses and router from router advertisements.
	DHCP6 DHCP6 `json:"dhcp6" enum:"stateful,stateless,slaac"`
}

// DHCP6 is the source of IPv6 settings.
type DHCP6 string

// The sources; empty stands for none.
const (
	Stateful  DHCP6 = "stateful"  // a DHCPv6 server provides addresses (RFC 8415 section 6.2)
	Stateless DHCP6 = "stateless" // a DHCPv6 server provides other settings (section 6.1)
	SLAAC     DHCP6 = "slaac"     // routers advertise prefixes (RFC 4862); no server is used
)

// Provided is an option to send.
type Provided struct {
	// Option is the name or number of the option.
	Option string `json:"option"`
	// Value is sent unchanged, at most 255 bytes.
	Value string `json:"value"`
	// FromArg is a key of CNI_ARGS. If the runtime passes it, its value is sent instead.
	FromArg string `json:"fromArg"`
}

// Requested is an option to request.
type Requested struct {
	// SkipDefault omits the default options, subnet-mask and routers.
	SkipDefault bool `json:"skipDefault"`
	// Option is the name or number of an option; empty stands for none.
	Option string `json:"option"`
}

// Option is a DHCPv4 option. A lease file holds it as JSON.
type Option struct {
	Code  byte
	Value []byte
}

// Network is the part of a network configuration that the daemon needs.
type Network struct {
	Name string    `json:"name"`
	IPAM *Settings `json:"ipam"`
}

// Parse decodes a network configuration.
func Parse(config []byte) (*Network, error) {
	n := new(Network)
	if err := json.Unmarshal(config, n); err != nil {
		return nil, cni.DecodeFailure("network configuration", err)
	}
	if n.IPAM == nil {
		return nil, cni.Errorf(cni.CodeInvalidConfig,
			"the network configuration has no ipam section")
	}
	return n, nil
}

// Options returns the options to send, and the codes of the options to request. args is CNI_ARGS;
// Options reads only the keys of fromArg. Errors have [cni.CodeInvalidConfig].
func (s *Settings) Options(args string) (provide []Option, request []byte, err error) {
	switch s.DHCP6 {
	case "", Stateful, Stateless, SLAAC:
	default:
		return nil, nil, cni.Errorf(cni.CodeInvalidConfig, "dhcp6: %q is not one of %q, %q and %q",
			s.DHCP6, Stateful, Stateless, SLAAC)
	}
	for _, p := range s.Provide {
		code, err := code(p.Option)
		if err != nil {
			return nil, nil, err
		}
		values := []string{p.Value}
		if fromArg, ok := argument(args, p.FromArg); ok {
			values = append(values, fromArg)
		}
		for _, value := range values {
			if len(value) > 255 {
				return nil, nil, cni.Errorf(cni.CodeInvalidConfig,
					"provide: the value of option %s is longer than 255 bytes", p.Option)
			}
			if value != "" {
				provide = slices.DeleteFunc(provide, func(o Option) bool { return o.Code == code })
				provide = append(provide, Option{Code: code, Value: []byte(value)})
			}
		}
	}
	defaults := []byte{3, 1} // routers, subnet-mask
	var asked []byte
	for _, r := range s.Request {
		if r.SkipDefault {
			defaults = nil
		}
		if r.Option == "" {
			continue
		}
		code, err := code(r.Option)
		if err != nil {
			return nil, nil, err
		}
		asked = append(asked, code)
	}
	for _, code := range append(asked, defaults...) {
		if !slices.Contains(request, code) {
			request = append(request, code)
		}
	}
	if len(request) == 0 { // the upstream plugin's library requests these
		request = []byte{1, 3, 15, 6} // subnet-mask, routers, domain-name, domain-name-servers
	}
	return provide, request, nil
}

// argument returns the value of a key in CNI_ARGS. It does not validate CNI_ARGS, which other
// plugins use too.
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

// optionCodes are the DHCPv4 options that have a name (RFC 2132; 77: RFC 3004, 119: RFC 3397, 121:
// RFC 3442). The upstream plugin knows only the first six names.
var optionCodes = map[string]byte{
	"dhcp-client-identifier": 61, "subnet-mask": 1, "routers": 3,
	"host-name": 12, "user-class": 77, "vendor-class-identifier": 60,

	"domain-name-servers": 6, "domain-name": 15, "domain-search": 119,
	"interface-mtu": 26, "static-routes": 33, "classless-static-routes": 121,
}

// code returns the number of an option from its name or number.
func code(option string) (byte, error) {
	if code, ok := optionCodes[option]; ok {
		return code, nil
	}
	n, err := strconv.ParseUint(option, 10, 8)
	if err != nil {
		return 0, cni.Errorf(cni.CodeInvalidConfig,
			"%q is not a DHCP option: it is neither a known name nor a number from 0 to 255",
			option)
	}
	return byte(n), nil
}
