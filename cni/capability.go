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

// Capabilities are typed capability arguments: the values that a runtime requests for one
// attachment and passes to plugins that declare the capability (CNI conventions, "Dynamic Plugin
// specific fields"). The zero value of a member requests nothing.
type Capabilities struct {
	PortMappings   []PortMapping `json:"portMappings,omitempty"`
	IPRanges       [][]IPRange   `json:"ipRanges,omitempty"` // one address from each pool
	Bandwidth      Bandwidth     `json:"bandwidth,omitzero"`
	MAC            string        `json:"mac,omitempty"` // six hexadecimal bytes with ':' or '-'
	DNS            Resolver      `json:"dns,omitzero"`
	DeviceID       string        `json:"deviceID,omitempty"` // such as a PCI address
	InfinibandGUID string        `json:"infinibandGUID,omitempty"`
	CgroupPath     string        `json:"cgroupPath,omitempty"`
	Aliases        []string      `json:"aliases,omitempty"` // more names for its addresses

	// IPs are addresses with prefix length, for the capability ips. Some plugins accept an address
	// without one: netip.PrefixFrom(addr, -1).
	IPs []netip.Prefix `json:"-"`

	// Raw holds arguments without a member here, as JSON by capability name. It is an error to set
	// a capability both in Raw and in its member.
	Raw map[string]json.RawMessage `json:"-"`
}

// PortMapping maps ports of the host to ports of the container.
type PortMapping struct {
	HostPort      uint16   `json:"hostPort"`      // from 1; omit the mapping to map no port
	ContainerPort uint16   `json:"containerPort"` // from 1
	Protocol      Protocol `json:"protocol"`      // zero is TCP

	// HostIP is the address of the host on which the port is forwarded; 0.0.0.0 and :: stand for
	// all addresses of their family. Zero means all addresses of both families.
	HostIP netip.Addr `json:"hostIP,omitzero"`

	// Range is the number of ports to map, starting at HostPort and ContainerPort; zero means 1.
	// Only Tenon's portmap supports more than one: other implementations map the first port without
	// an error.
	Range uint16 `json:"range,omitempty"`
}

// Protocol is a transport protocol with ports. It is case-insensitive, as in Kubernetes; plugins
// receive it in lower case.
type Protocol string

// The protocols.
const (
	TCP  Protocol = "tcp"
	UDP  Protocol = "udp"
	SCTP Protocol = "sctp"
)

// IPRange is a range of addresses in a subnet. The IPAM plugin chooses values for zero fields.
type IPRange struct {
	Subnet     netip.Prefix `json:"subnet"` // without host bits
	RangeStart netip.Addr   `json:"rangeStart,omitzero"`
	RangeEnd   netip.Addr   `json:"rangeEnd,omitzero"` // included
	Gateway    netip.Addr   `json:"gateway,omitzero"`
}

// Resolver is the intended content of /etc/resolv.conf (resolv.conf(5)). It differs from [DNS],
// which is part of results and has other member names.
type Resolver struct {
	Servers  []netip.Addr `json:"servers,omitempty"`
	Searches []string     `json:"searches,omitempty"`
	Options  []string     `json:"options,omitempty"`
}

// Encode returns the arguments by capability name, as network.Parameters and [RequestData] expect
// them. It returns an error for arguments that a plugin would refuse only after earlier plugins
// have run: port 0, a protocol without ports, addresses of a different family than their subnet, a
// burst without a rate, and similar mistakes. The code is [CodeInvalidConfig], or
// [CodeDecodingFailure] for invalid JSON in Raw.
func (c Capabilities) Encode() (map[string]json.RawMessage, error) {
	var err error
	if c.PortMappings, err = portMappings(c.PortMappings); err != nil {
		return nil, err
	}
	ips, err := addresses(c.IPs)
	if err != nil {
		return nil, err
	}
	checks := []func() error{c.checkRanges, c.Bandwidth.check, c.checkMAC, c.DNS.check}
	for _, check := range checks {
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
	// sorted, so that the same error is reported every time
	for _, name := range slices.Sorted(maps.Keys(c.Raw)) {
		if _, twice := all[name]; twice {
			return nil, invalidCapability(name, "it is set both as a field and in Raw")
		}
		if !json.Valid(c.Raw[name]) {
			return nil, Errorf(CodeDecodingFailure,
				"capability %s: the raw argument is not JSON", name)
		}
		all[name] = c.Raw[name]
	}
	return all, nil
}

func invalidCapability(name, format string, args ...any) error {
	return Errorf(CodeInvalidConfig, "capability %s: %s", name, fmt.Sprintf(format, args...))
}

// portMappings returns the mappings in the form that plugins expect.
func portMappings(list []PortMapping) ([]PortMapping, error) {
	list = slices.Clone(list)
	for i := range list {
		m := &list[i]
		m.Protocol = Protocol(strings.ToLower(string(cmp.Or(m.Protocol, TCP))))
		m.HostIP = m.HostIP.Unmap()
		if wrong := m.wrong(); wrong != "" {
			return nil, invalidCapability("portMappings", "host port %d to container port %d: %s",
				m.HostPort, m.ContainerPort, wrong)
		}
	}
	return list, nil
}

func (m *PortMapping) wrong() string {
	switch last := int(max(m.HostPort, m.ContainerPort)) + int(max(m.Range, 1)) - 1; {
	case m.HostPort == 0 || m.ContainerPort == 0:
		return "port 0 is not valid"
	case last > math.MaxUint16:
		return fmt.Sprintf("a range of %d ports exceeds %d", m.Range, math.MaxUint16)
	case m.Protocol != TCP && m.Protocol != UDP && m.Protocol != SCTP:
		return fmt.Sprintf("protocol %q is not tcp, udp or sctp", m.Protocol)
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
				return invalidCapability("ipRanges",
					"subnets %s and %s of one pool are of different families", pool[0].Subnet,
					r.Subnet)
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

// checkMAC accepts the MAC address of a single Ethernet interface.
func (c Capabilities) checkMAC() error {
	if c.MAC == "" {
		return nil
	}
	mac, ok := parseMAC(c.MAC)
	if !ok || mac[0]&1 != 0 || mac == [6]byte{} {
		return invalidCapability("mac",
			"%q is not the MAC address of a single Ethernet interface", c.MAC)
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

// addresses formats prefixes as text, and those without a length as plain addresses.
func addresses(list []netip.Prefix) (texts []string, err error) {
	for _, p := range list {
		switch {
		case !p.Addr().IsValid() || p.Addr().Is4In6():
			return nil, invalidCapability("ips",
				"%v is neither an address nor an address with a valid prefix length", p.Addr())
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
