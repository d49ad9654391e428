package cni

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Capabilities are capability arguments as types: what a runtime asks for one attachment, and plugins get that declare the
// capability (CNI conventions, "Dynamic Plugin specific fields"). The zero value of a member asks for nothing.
type Capabilities struct {
	PortMappings   []PortMapping `json:"portMappings,omitempty"`
	IPRanges       [][]IPRange   `json:"ipRanges,omitempty"` // an address is taken from each pool, from whichever of its ranges has one
	Bandwidth      Bandwidth     `json:"bandwidth,omitzero"`
	MAC            string        `json:"mac,omitempty"` // six bytes in hexadecimal with colons or hyphens between
	DNS            Resolver      `json:"dns,omitzero"`
	DeviceID       string        `json:"deviceID,omitempty"` // such as a PCI address
	InfinibandGUID string        `json:"infinibandGUID,omitempty"`
	CgroupPath     string        `json:"cgroupPath,omitempty"`
	Aliases        []string      `json:"aliases,omitempty"` // further names for the addresses of the interface

	// IPs are addresses with the length of their network, for the capability ips. Some plugins take an address without it:
	// netip.PrefixFrom(addr, -1).
	IPs []netip.Prefix `json:"-"`

	// Raw are arguments that have no member here, as JSON by the name of the capability. One that has, and is set, is an error:
	// neither is silently preferred.
	Raw map[string]json.RawMessage `json:"-"`
}

// PortMapping makes ports of the container ports of the host.
type PortMapping struct {
	HostPort      uint16   `json:"hostPort"`      // from 1; who does not want one leaves the mapping out
	ContainerPort uint16   `json:"containerPort"` // from 1
	Protocol      Protocol `json:"protocol"`      // zero is TCP

	// HostIP is the address of the host that is forwarded, of its family only; 0.0.0.0 and :: are all of the family. Zero is
	// all addresses of both families.
	HostIP netip.Addr `json:"hostIP,omitzero"`

	// Range is how many ports are mapped, from HostPort and ContainerPort on; zero is 1. More than one is known to the portmap
	// of Tenon only: others map the first and say nothing.
	Range uint16 `json:"range,omitempty"`
}

// Protocol is a transport protocol with ports. Its letters may be of either case, as in Kubernetes; plugins get the lower.
type Protocol string

// The protocols.
const (
	TCP  Protocol = "tcp"
	UDP  Protocol = "udp"
	SCTP Protocol = "sctp"
)

// IPRange is a range of addresses in a subnet. What is zero the IPAM plugin chooses.
type IPRange struct {
	Subnet     netip.Prefix `json:"subnet"` // without host bits
	RangeStart netip.Addr   `json:"rangeStart,omitzero"`
	RangeEnd   netip.Addr   `json:"rangeEnd,omitzero"` // included
	Gateway    netip.Addr   `json:"gateway,omitzero"`
}

// Resolver is what /etc/resolv.conf is to say (resolv.conf(5)). It is not [DNS], which is what plugins answer and whose
// members have other names.
type Resolver struct {
	Servers  []netip.Addr `json:"servers,omitempty"`
	Searches []string     `json:"searches,omitempty"`
	Options  []string     `json:"options,omitempty"`
}

// Encode returns the arguments by the names of the capabilities, as network.Parameters and [RequestData] take them. It refuses
// what plugins would refuse later, after others have run already: a port 0, a protocol without ports, addresses of another
// family than their subnet, a burst without a rate, and so on. The code is [CodeInvalidConfig], or [CodeDecodingFailure] for
// what is not JSON in Raw.
func (c Capabilities) Encode() (map[string]json.RawMessage, error) {
	var err error
	if c.PortMappings, err = portMappings(c.PortMappings); err != nil {
		return nil, err
	}
	ips, err := addresses(c.IPs)
	if err != nil {
		return nil, err
	}
	for _, check := range []func() error{c.checkRanges, c.Bandwidth.check, c.checkMAC, c.DNS.check} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	all, err := parseObject(encode(c))
	if err != nil {
		return nil, err
	}
	if len(ips) > 0 {
		all["ips"] = encode(ips)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Raw)) { // of several errors always the same
		if _, twice := all[name]; twice {
			return nil, invalidCapability(name, "it is given twice, as a type and raw")
		}
		if !json.Valid(c.Raw[name]) {
			return nil, Errorf(CodeDecodingFailure, "capability %s: the raw argument is not JSON", name)
		}
		all[name] = c.Raw[name]
	}
	return all, nil
}

func invalidCapability(name, format string, args ...any) error {
	return Errorf(CodeInvalidConfig, "capability %s: %s", name, fmt.Sprintf(format, args...))
}

// portMappings returns the mappings as plugins get them.
func portMappings(list []PortMapping) ([]PortMapping, error) {
	list = slices.Clone(list)
	for i := range list {
		m := &list[i]
		m.Protocol = Protocol(strings.ToLower(string(cmp.Or(m.Protocol, TCP))))
		m.HostIP = m.HostIP.Unmap()
		if wrong := m.wrong(); wrong != "" {
			return nil, invalidCapability("portMappings", "host port %d to container port %d: %s", m.HostPort, m.ContainerPort, wrong)
		}
	}
	return list, nil
}

func (m *PortMapping) wrong() string {
	switch last := int(max(m.HostPort, m.ContainerPort)) + int(max(m.Range, 1)) - 1; {
	case m.HostPort == 0 || m.ContainerPort == 0:
		return "there is no port 0"
	case last > math.MaxUint16:
		return fmt.Sprintf("a range of %d ports goes beyond %d", m.Range, math.MaxUint16)
	case m.Protocol != TCP && m.Protocol != UDP && m.Protocol != SCTP:
		return fmt.Sprintf("protocol %q is none of tcp, udp and sctp", m.Protocol)
	case m.HostIP.Zone() != "":
		return fmt.Sprintf("hostIP %s has a zone", m.HostIP)
	}
	return ""
}

func (c Capabilities) checkRanges() error {
	for _, pool := range c.IPRanges {
		if len(pool) == 0 {
			return invalidCapability("ipRanges", "a pool without a range")
		}
		for _, r := range pool {
			if wrong := r.wrong(); wrong != "" {
				return invalidCapability("ipRanges", "subnet %s: %s", r.Subnet, wrong)
			}
			if r.Subnet.Addr().Is4() != pool[0].Subnet.Addr().Is4() {
				return invalidCapability("ipRanges", "subnets %s and %s of one pool are of different families", pool[0].Subnet, r.Subnet)
			}
		}
	}
	return nil
}

func (r IPRange) wrong() string {
	if !r.Subnet.IsValid() || r.Subnet != r.Subnet.Masked() || r.Subnet.Addr().Is4In6() {
		return "it is not the prefix of a network"
	}
	for _, a := range []netip.Addr{r.RangeStart, r.RangeEnd} {
		if a.IsValid() && !r.Subnet.Contains(a) {
			return fmt.Sprintf("address %s is not in it", a)
		}
	}
	if r.RangeStart.IsValid() && r.RangeEnd.IsValid() && r.RangeEnd.Less(r.RangeStart) {
		return fmt.Sprintf("the range from %s to %s is empty", r.RangeStart, r.RangeEnd)
	}
	if g := r.Gateway; g.IsValid() && (g.Is4() != r.Subnet.Addr().Is4() || g.Zone() != "") {
		return fmt.Sprintf("gateway %s is of another family, or has a zone", g)
	}
	return ""
}

// checkMAC accepts what is the address of one Ethernet interface.
func (c Capabilities) checkMAC() error {
	if c.MAC == "" {
		return nil
	}
	mac, ok := parseMAC(c.MAC)
	if !ok || mac[0]&1 != 0 || mac == [6]byte{} {
		return invalidCapability("mac", "%q is not the address of one Ethernet interface", c.MAC)
	}
	return nil
}

func parseMAC(s string) (mac [6]byte, ok bool) {
	separator := ":"
	if strings.Contains(s, "-") {
		separator = "-"
	}
	parts := strings.Split(s, separator)
	for i, part := range parts {
		b, err := strconv.ParseUint(part, 16, 8)
		if err != nil || len(part) != 2 || len(parts) != len(mac) {
			return mac, false
		}
		mac[i] = byte(b)
	}
	return mac, true
}

// addresses returns prefixes, and those without a length as addresses, as text.
func addresses(list []netip.Prefix) (texts []string, err error) {
	for _, p := range list {
		switch {
		case !p.Addr().IsValid() || p.Addr().Is4In6():
			return nil, invalidCapability("ips", "%v is neither an address nor one with the length of its network", p.Addr())
		case p.Bits() < 0:
			texts = append(texts, p.Addr().String())
		default:
			texts = append(texts, p.String())
		}
	}
	return texts, nil
}

func (r Resolver) check() error {
	for _, server := range r.Servers {
		if !server.IsValid() {
			return invalidCapability("dns", "a server without an address")
		}
	}
	return nil
}
