package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network/config"
)

// portMappings is the capability of plugins that publish ports.
const portMappings = "portMappings"

// published returns the capability argument for --publish.
func (t *attachment) published() (json.RawMessage, error) {
	if given, _ := capabilities("", t.caps); given[portMappings] != nil {
		return nil, usagef("give either --publish or --cap %s", portMappings)
	}
	var c cni.Capabilities
	for _, v := range t.ports {
		m, err := parsePublished(v)
		if err != nil {
			return nil, hint(usagef("--publish %s: %w", v, err),
				"write it as [IP:]HOST:CONTAINER[/PROTOCOL], such as 8080:80, 127.0.0.1:5353:53/udp or 8000-8009:80-89")
		}
		c.PortMappings = append(c.PortMappings, m)
	}
	all, err := c.Encode()
	if err != nil {
		return nil, usageError{err}
	}
	return all[portMappings], nil
}

// parsePublished parses "[IP:]HOST:CONTAINER[/PROTOCOL]", where HOST and CONTAINER are a port or two
// ports with "-" in between, and an IPv6 address is in brackets.
func parsePublished(s string) (m cni.PortMapping, err error) {
	ports, protocol, given := strings.Cut(s, "/")
	if given && protocol == "" {
		return m, errors.New("the protocol is empty")
	}
	m.Protocol = cni.Protocol(protocol)
	i := strings.LastIndexByte(ports, ':')
	if i < 0 {
		return m, errors.New("the port of the host is missing")
	}
	host, container := ports[:i], ports[i+1:]
	if i := strings.LastIndexByte(host, ':'); i >= 0 {
		if m.HostIP, err = parseHostIP(host[:i]); err != nil {
			return m, err
		}
		host = host[i+1:]
	}
	first, count, err := parsePorts(host)
	if err != nil {
		return m, err
	}
	m.HostPort = first
	var more uint16
	if m.ContainerPort, more, err = parsePorts(container); err != nil {
		return m, err
	}
	if count != more {
		return m, fmt.Errorf("%s and %s differ in the number of ports", host, container)
	}
	if count > 1 {
		m.Range = count
	}
	return m, nil
}

// parseHostIP parses an IPv4 address, or an IPv6 address in brackets.
func parseHostIP(s string) (netip.Addr, error) {
	inside, bracket := strings.CutPrefix(s, "[")
	if bracket {
		inside, bracket = strings.CutSuffix(inside, "]")
	}
	a, err := netip.ParseAddr(inside)
	if err != nil || bracket != a.Is6() {
		return a, fmt.Errorf("%q is not an IPv4 address, or an IPv6 address in brackets", s)
	}
	return a, nil
}

// parsePorts parses a port or a range of ports, such as "8000-8009", and returns the first port and
// their number.
func parsePorts(s string) (first, count uint16, err error) {
	from, to, isRange := strings.Cut(s, "-")
	if !isRange {
		to = from
	}
	low, err := strconv.ParseUint(from, 10, 16)
	high, err2 := strconv.ParseUint(to, 10, 16)
	if err != nil || err2 != nil || low == 0 || high < low {
		return 0, 0, fmt.Errorf("%q is not a port from 1 to %d, or a range of ports", s, math.MaxUint16)
	}
	return uint16(low), uint16(high - low + 1), nil
}

// requirePublishing returns an error if no plugin of a network publishes ports.
func requirePublishing(n *config.Network) error {
	for _, p := range n.Plugins {
		if p.Capabilities[portMappings] {
			return nil
		}
	}
	return hint(cni.Errorf(cni.CodeInvalidConfig, "no plugin in network %s publishes ports", n.Name),
		`add {"type": "portmap", "capabilities": {"portMappings": true}} to its plugins`)
}
