package portmap

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/plugin"
)

// Config is the configuration of the plugin.
type Config struct {
	plugin.Common

	// Backend selects the forwarding mechanism: "nftables" with table inet tenon, or "iptables"
	// with the upstream plugin's chains CNI-… of table nat, which requires iptables-restore and
	// ip6tables-restore in PATH. "auto" selects iptables if externalSetMarkChain, markMasqBit or
	// conditions in its syntax are set, or if the host needs it; otherwise nftables. See [Choice of
	// the backend](../nat-backend.md).
	Backend Backend `json:"backend" enum:"auto,nftables,iptables" default:"auto"`
	// SNAT replaces the source of connections that the container could not answer otherwise by an
	// address of the node: connections from the container's own network, and from 127.0.0.1 of the
	// node. Without it these connections fail.
	SNAT *bool `json:"snat" default:"true"`
	// MasqAll replaces the source of all connections by an address of the node. It requires the key
	// snat.
	MasqAll bool `json:"masqAll"`
	// MarkMasqBit is the bit of the packet mark that selects packets for masquerading with
	// iptables.
	MarkMasqBit *int `json:"markMasqBit" default:"13" min:"0" max:"31"`
	// ExternalSetMarkChain is an existing chain of table nat that marks packets for masquerading in
	// place of the plugin's own chain. The owner of that chain must masquerade them. It requires
	// iptables.
	ExternalSetMarkChain string `json:"externalSetMarkChain"`
	// ConditionsV4 is a condition for IPv4 packets that the plugin forwards: words of a rule in the
	// syntax of the backend.
	ConditionsV4 []string `json:"conditionsV4"`
	// ConditionsV6 is the same condition for IPv6 packets.
	ConditionsV6 []string `json:"conditionsV6"`

	// NerdctlID marks a network of nerdctl. The runtime copies it from the list.
	NerdctlID json.RawMessage `json:"nerdctlID"`

	// RuntimeConfig holds the capability arguments.
	RuntimeConfig struct {
		PortMappings []PortMapping `json:"portMappings"` // capability portMappings
	} `json:"runtimeConfig"`

	// Derived from the call by [Config.prepare].
	forwards []forward
	addrs    []netip.Prefix // of the container
	maps     []kernel.PortMapping
	chosen   Backend // used if the configuration demands no backend; "" until it is known
}

// PortMapping is one entry of the capability portMappings.
type PortMapping struct {
	// HostPort is the port of the node, or the first port of a range.
	HostPort int `json:"hostPort" min:"1" max:"65535"`
	// ContainerPort is the port of the container, or the first port of a range.
	ContainerPort int `json:"containerPort" min:"1" max:"65535"`
	// Protocol is the protocol of the port, in upper or lower case.
	Protocol string `json:"protocol" enum:"tcp,udp,sctp"`
	// HostIP limits forwarding to one address of the node. 0.0.0.0 and :: stand for all addresses
	// of their family. Without it all addresses of both families are forwarded.
	HostIP string `json:"hostIP"`
	// Range is the number of ports to forward, starting at HostPort and ContainerPort. 0 means 1.
	Range int `json:"range" min:"0" max:"65535"`
}

// Backend is a kernel subsystem with its tool.
type Backend string

const (
	autoBackend     Backend = "auto" // see [backendOf]
	nftablesBackend Backend = "nftables"
	iptablesBackend Backend = "iptables"
)

// backend returns the backend that the configuration demands, or auto if the state of the host
// decides.
func (c *Config) backend() Backend {
	switch {
	case c.Backend != "" && c.Backend != autoBackend:
		return c.Backend
	case c.ExternalSetMarkChain != "", c.MarkMasqBit != nil,
		syntax(c.ConditionsV4) == iptablesBackend, syntax(c.ConditionsV6) == iptablesBackend:
		return iptablesBackend
	case syntax(c.ConditionsV4) == nftablesBackend, syntax(c.ConditionsV6) == nftablesBackend:
		return nftablesBackend
	}
	return autoBackend
}

// syntax returns the backend with the syntax of the conditions, or "" if there are none.
func syntax(conditions []string) Backend {
	switch {
	case len(conditions) == 0 || conditions[0] == "":
		return ""
	case strings.ContainsRune("-!", rune(conditions[0][0])):
		return iptablesBackend
	}
	return nftablesBackend
}

func (c *Config) snat() bool { return c.SNAT == nil || *c.SNAT }

func (c *Config) markBit() int {
	if c.MarkMasqBit == nil {
		return 13
	}
	return *c.MarkMasqBit
}

func (c *Config) validate() error {
	backend := c.backend()
	switch backend {
	case autoBackend: // no key needs a particular backend
		backend = nftablesBackend
	case nftablesBackend, iptablesBackend:
	default:
		return cni.Errorf(cni.CodeInvalidConfig, "unrecognized backend %q", backend).
			WithDetails(`use "auto", "nftables" or "iptables"`)
	}
	other := nftablesBackend
	var foreign []string
	if backend == nftablesBackend {
		other = iptablesBackend
		if c.ExternalSetMarkChain != "" {
			foreign = append(foreign, "externalSetMarkChain")
		}
	}
	for _, conditions := range []struct {
		key   string
		words []string
	}{{"conditionsV4", c.ConditionsV4}, {"conditionsV6", c.ConditionsV6}} {
		if syntax(conditions.words) == other {
			foreign = append(foreign, conditions.key)
		}
	}
	if len(foreign) > 0 { // upstream's text
		return cni.Errorf(cni.CodeInvalidConfig,
			"%s backend was requested but configuration contains %s-specific options %v", backend,
			other, foreign)
	}
	if bit := c.markBit(); bit < 0 || bit > 31 {
		return cni.Errorf(cni.CodeInvalidConfig, "MasqMarkBit must be between 0 and 31").
			WithDetails(fmt.Sprintf("markMasqBit is %d", bit))
	}
	if c.MarkMasqBit != nil && c.ExternalSetMarkChain != "" {
		return cni.Errorf(cni.CodeInvalidConfig,
			"Cannot specify externalSetMarkChain and markMasqBit")
	}
	if words := slices.Concat(c.ConditionsV4, c.ConditionsV6); backend == iptablesBackend &&
		slices.Contains(words, "") {
		return cni.Errorf(cni.CodeInvalidConfig,
			"conditionsV4 and conditionsV6: %q has an empty word", words)
	}
	if backend == nftablesBackend {
		if _, _, err := c.conditions(); err != nil {
			return err
		}
	}
	return c.parseForwards()
}

// conditions parses the conditions for nftables.
func (c *Config) conditions() (when4, when6 kernel.PortCondition, err error) {
	if when4, err = kernel.ParsePortCondition(kernel.IPv4, c.ConditionsV4); err != nil {
		return when4, when6, unsupported("conditionsV4", err)
	}
	if when6, err = kernel.ParsePortCondition(kernel.IPv6, c.ConditionsV6); err != nil {
		return when4, when6, unsupported("conditionsV6", err)
	}
	return when4, when6, nil
}

func unsupported(key string, err error) error {
	return cni.Errorf(cni.CodeUnsupportedField, "%s: %w", key, err).
		WithDetails("use ip, ip6, iifname, oifname, tcp, udp, sctp, th or mark, each with a value or a set; " +
			"or use backend iptables with its own conditions")
}

// parseForwards parses the requested mappings.
func (c *Config) parseForwards() error {
	list := make([]forward, 0, len(c.RuntimeConfig.PortMappings))
	for _, m := range c.RuntimeConfig.PortMappings {
		f, err := m.forward()
		if err != nil {
			return err
		}
		list = append(list, f)
	}
	c.forwards = list
	return nil
}

const maxPort = 65535

const portHint = "set hostPort and containerPort of each mapping to a port from 1 to 65535"

func (m PortMapping) forward() (f forward, err error) {
	count := max(m.Range, 1)
	switch {
	case m.ContainerPort <= 0 || m.ContainerPort > maxPort:
		return f, cni.Errorf(cni.CodeInvalidConfig, "Invalid container port number: %d",
			m.ContainerPort).WithDetails(portHint)
	case m.HostPort <= 0 || m.HostPort > maxPort:
		return f, cni.Errorf(cni.CodeInvalidConfig, "Invalid host port number: %d", m.HostPort).
			WithDetails(portHint)
	case m.Range < 0 || max(m.HostPort, m.ContainerPort) > maxPort-count+1:
		return f, cni.Errorf(cni.CodeInvalidConfig,
			"range of %d ports from host port %d and container port %d: exceeds port %d", m.Range,
			m.HostPort, m.ContainerPort, maxPort)
	}
	f = forward{
		protocol: strings.ToLower(m.Protocol),
		hostPort: uint16(m.HostPort), containerPort: uint16(m.ContainerPort), count: uint16(count),
	}
	if protocol(f.protocol) == 0 {
		return f, cni.Errorf(cni.CodeInvalidConfig,
			"protocol %q of host port %d is not tcp, udp or sctp", m.Protocol, m.HostPort)
	}
	if m.HostIP == "" {
		return f, nil
	}
	if f.hostIP, err = netip.ParseAddr(m.HostIP); err != nil || f.hostIP.Zone() != "" {
		return f, cni.Errorf(cni.CodeInvalidConfig,
			"hostIP %q of host port %d is not an IP address", m.HostIP, m.HostPort)
	}
	f.hostIP = f.hostIP.Unmap()
	return f, nil
}

const udp, sctp = unix.IPPROTO_UDP, unix.IPPROTO_SCTP

// protocol returns the number of a protocol that has ports, or 0 for all others.
func protocol(name string) byte {
	switch name {
	case "tcp":
		return unix.IPPROTO_TCP
	case "udp":
		return udp
	case "sctp":
		return sctp
	}
	return 0
}

// mappings returns the forwards for the addresses of a container.
func mappings(forwards []forward, addrs []netip.Prefix) ([]kernel.PortMapping, error) {
	var list []kernel.PortMapping
	for _, a := range addrs {
		for _, f := range forwards {
			if !f.to(familyOf(a.Addr())) {
				continue
			}
			m := kernel.PortMapping{
				Protocol: protocol(f.protocol), Host: f.hostIP, First: f.hostPort, Last: f.last(f.hostPort),
				To: netip.AddrPortFrom(a.Addr(), f.containerPort),
			}
			if m.Host.IsUnspecified() {
				m.Host = netip.Addr{}
			}
			list = append(list, m)
		}
	}
	list, err := kernel.DistinctMappings(list)
	if err != nil {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "port mappings: %w", err)
	}
	return list, nil
}

// hairpins returns the sources of connections to the container that must be masqueraded, because
// the client would otherwise receive replies from another address than the one it connected to.
func (c *Config) hairpins() (list []kernel.Hairpin) {
	if !c.snat() {
		return nil
	}
	loopback := netip.MustParsePrefix("127.0.0.0/8")
	for _, a := range c.addrs {
		from := []netip.Prefix{a.Masked()}
		if c.MasqAll {
			from[0] = netip.PrefixFrom(a.Addr(), 0).Masked()
		} else if a.Addr().Is4() && !a.Overlaps(loopback) {
			from = append(from, loopback)
		}
		for _, n := range from {
			list = append(list, kernel.Hairpin{To: a.Addr(), From: n})
		}
	}
	return list
}
