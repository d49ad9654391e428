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

	// Backend is what forwards: "nftables" with table inet tenon, or "iptables" with the chains CNI-… of table nat that the
	// upstream plugin makes, for which iptables-restore and ip6tables-restore must be in PATH. "auto" is the one that other
	// keys need: iptables for externalSetMarkChain, markMasqBit and conditions in its syntax. Where none does, it is nftables
	// unless the host asks for iptables: see [Choice of the backend](../nat-backend.md).
	Backend Backend `json:"backend" enum:"auto,nftables,iptables" default:"auto"`
	// SNAT makes connections come from an address of the host where the container could not answer otherwise: those from its
	// own network, and from 127.0.0.1 of the host. Without it these do not work.
	SNAT *bool `json:"snat" default:"true"`
	// MasqAll makes all connections come from an address of the host. It needs snat.
	MasqAll bool `json:"masqAll"`
	// MarkMasqBit is the bit of the packet mark by which iptables tells what to masquerade.
	MarkMasqBit *int `json:"markMasqBit" default:"13" min:"0" max:"31"`
	// ExternalSetMarkChain is an existing chain of table nat that marks what to masquerade, instead of one of this plugin;
	// somebody else masquerades it then. Only iptables has it.
	ExternalSetMarkChain string `json:"externalSetMarkChain"`
	// ConditionsV4 has to be met by what is forwarded over IPv4: words of a rule of the backend.
	ConditionsV4 []string `json:"conditionsV4"`
	// ConditionsV6 has to be met by what is forwarded over IPv6, in the same way.
	ConditionsV6 []string `json:"conditionsV6"`

	// NerdctlID marks a network of nerdctl. The runtime takes it from the list.
	NerdctlID json.RawMessage `json:"nerdctlID"`

	// RuntimeConfig holds what the runtime passes on.
	RuntimeConfig struct {
		PortMappings []PortMapping `json:"portMappings"` // capability portMappings
	} `json:"runtimeConfig"`

	// Derived from the call by [Config.prepare].
	forwards []forward
	addrs    []netip.Prefix // of the container
	maps     []kernel.PortMapping
	chosen   Backend // where the configuration demands none; "" as long as that is not known
}

// PortMapping is one entry of the capability portMappings.
type PortMapping struct {
	// HostPort is the port of the host, the first one if there are several.
	HostPort int `json:"hostPort" min:"1" max:"65535"`
	// ContainerPort is the port of the container that it leads to.
	ContainerPort int `json:"containerPort" min:"1" max:"65535"`
	// Protocol is that of the port, in any case.
	Protocol string `json:"protocol" enum:"tcp,udp,sctp"`
	// HostIP is the address of the host that is forwarded, of its family only; 0.0.0.0 and :: are all of the family. Without
	// it all addresses of both families are.
	HostIP string `json:"hostIP"`
	// Range is how many ports are forwarded, from hostPort and containerPort on; 0 is 1.
	Range int `json:"range" min:"0" max:"65535"`
}

// Backend is a subsystem of the kernel with its tool.
type Backend string

const (
	autoBackend     Backend = "auto" // see [backendOf]
	nftablesBackend Backend = "nftables"
	iptablesBackend Backend = "iptables"
)

// backend is the one that the configuration demands, auto if the host decides.
func (c *Config) backend() Backend {
	switch {
	case c.Backend != "" && c.Backend != autoBackend:
		return c.Backend
	case c.ExternalSetMarkChain != "", c.MarkMasqBit != nil, syntax(c.ConditionsV4) == iptablesBackend, syntax(c.ConditionsV6) == iptablesBackend:
		return iptablesBackend
	case syntax(c.ConditionsV4) == nftablesBackend, syntax(c.ConditionsV6) == nftablesBackend:
		return nftablesBackend
	}
	return autoBackend
}

// syntax is the backend whose words conditions are, "" if that cannot be told.
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
	case autoBackend: // then there is nothing that only one of them has
		backend = nftablesBackend
	case nftablesBackend, iptablesBackend:
	default:
		return cni.Errorf(cni.CodeInvalidConfig, "unrecognized backend %q", backend).
			WithDetails(`it can be "auto", "nftables" or "iptables"`)
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
	if len(foreign) > 0 { // in the words of the reference plugin
		return cni.Errorf(cni.CodeInvalidConfig, "%s backend was requested but configuration contains %s-specific options %v", backend, other, foreign)
	}
	if bit := c.markBit(); bit < 0 || bit > 31 {
		return cni.Errorf(cni.CodeInvalidConfig, "MasqMarkBit must be between 0 and 31").
			WithDetails(fmt.Sprintf("markMasqBit is %d", bit))
	}
	if c.MarkMasqBit != nil && c.ExternalSetMarkChain != "" {
		return cni.Errorf(cni.CodeInvalidConfig, "Cannot specify externalSetMarkChain and markMasqBit")
	}
	if words := slices.Concat(c.ConditionsV4, c.ConditionsV6); backend == iptablesBackend && slices.Contains(words, "") {
		return cni.Errorf(cni.CodeInvalidConfig, "conditionsV4 and conditionsV6: %q has an empty word", words)
	}
	if backend == nftablesBackend {
		if _, _, err := c.conditions(); err != nil {
			return err
		}
	}
	return c.parseForwards()
}

// conditions are those of nftables.
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
		WithDetails("understood are ip, ip6, iifname, oifname, tcp, udp, sctp, th and mark, each with a value or a set; backend iptables takes all that iptables has")
}

// parseForwards reads the mappings that were asked for.
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

const portHint = "each of portMappings has a hostPort and a containerPort, from 1 to 65535"

func (m PortMapping) forward() (f forward, err error) {
	count := max(m.Range, 1)
	switch {
	case m.ContainerPort <= 0 || m.ContainerPort > maxPort:
		return f, cni.Errorf(cni.CodeInvalidConfig, "Invalid container port number: %d", m.ContainerPort).WithDetails(portHint)
	case m.HostPort <= 0 || m.HostPort > maxPort:
		return f, cni.Errorf(cni.CodeInvalidConfig, "Invalid host port number: %d", m.HostPort).WithDetails(portHint)
	case m.Range < 0 || max(m.HostPort, m.ContainerPort) > maxPort-count+1:
		return f, cni.Errorf(cni.CodeInvalidConfig, "range of %d ports from host port %d and container port %d: beyond %d", m.Range, m.HostPort, m.ContainerPort, maxPort)
	}
	f = forward{
		protocol: strings.ToLower(m.Protocol),
		hostPort: uint16(m.HostPort), containerPort: uint16(m.ContainerPort), count: uint16(count),
	}
	if protocol(f.protocol) == 0 {
		return f, cni.Errorf(cni.CodeInvalidConfig, "protocol %q of host port %d is none of tcp, udp and sctp", m.Protocol, m.HostPort)
	}
	if m.HostIP == "" {
		return f, nil
	}
	if f.hostIP, err = netip.ParseAddr(m.HostIP); err != nil || f.hostIP.Zone() != "" {
		return f, cni.Errorf(cni.CodeInvalidConfig, "hostIP %q of host port %d is not an IP address", m.HostIP, m.HostPort)
	}
	f.hostIP = f.hostIP.Unmap()
	return f, nil
}

const udp, sctp = unix.IPPROTO_UDP, unix.IPPROTO_SCTP

// protocol is the number of a protocol that has ports, else 0.
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

// mappings are the forwards to the addresses of a container.
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

// hairpins say who sees the container's answers come from elsewhere than from where it has asked.
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
