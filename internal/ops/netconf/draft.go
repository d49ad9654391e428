// Package netconf manages the network configurations of a directory: it writes new ones, explains
// how each file is used and how each network runs, and removes networks with their bridges and
// reservations.
package netconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/network/config"
)

// Draft holds the choices for a new network.
type Draft struct {
	Name     string
	Type     string         // of the plugin
	Subnets  []netip.Prefix // a container gets an address from each; none: no addresses
	Gateways []netip.Addr   // at most one in each subnet; by default its first address
	DHCP     bool           // a DHCP server on the link assigns addresses, instead of Subnets
	Master   string         // parent interface on the host, or the bridge of ovs
	Chained  []Chained      // plugins after it
}

// Chained is a chained plugin.
type Chained struct {
	Type         string
	Capabilities []string // that the runtime passes to it
}

type list struct {
	CNIVersion  string       `json:"cniVersion"`
	CNIVersions []string     `json:"cniVersions"`
	Name        string       `json:"name"`
	Plugins     []pluginConf `json:"plugins"`
}

type pluginConf struct {
	Type      string       `json:"type"`
	Bridge    string       `json:"bridge,omitempty"`
	Master    string       `json:"master,omitempty"`
	IsDefault bool         `json:"isDefaultGateway,omitempty"`
	IPMasq    bool         `json:"ipMasq,omitempty"`
	IPAM      *ipamSection `json:"ipam,omitempty"`

	Capabilities map[string]bool `json:"capabilities,omitempty"`
}

type ipamSection struct {
	Type   string          `json:"type"`
	Ranges []ipam.RangeSet `json:"ranges,omitempty"`
	Routes []cni.Route     `json:"routes,omitempty"`
}

// List returns the configuration list, indented. It offers CNI 1.0.0, which every current runtime
// supports, and 1.1.0. A bridge is named after the network and is its gateway; bridge and ptp
// masquerade the network. If a DHCP server assigns the addresses, they do neither, because the
// server names the gateway. Errors have [cni.CodeInvalidConfig].
func (n Draft) List() ([]byte, error) {
	if err := n.Validate(); err != nil {
		return nil, err
	}
	p := pluginConf{Type: n.Type, Master: n.Master, IPAM: n.ipam()}
	if n.Type == "ovs" {
		p.Bridge, p.Master = n.Master, ""
	}
	switch {
	case n.Type == "bridge":
		p.Bridge = bridgeName(n.Name)
		p.IsDefault, p.IPMasq = len(n.Subnets) > 0, len(n.Subnets) > 0
	case len(n.Subnets) > 0:
		p.IPMasq = n.Type == "ptp"
		p.IPAM.Routes = n.defaultRoutes()
	}
	plugins := []pluginConf{p}
	for _, c := range n.Chained {
		plugins = append(plugins, c.plugin())
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetIndent("", "  ")
	err := e.Encode(list{
		CNIVersion: cni.V100.String(), CNIVersions: []string{cni.V100.String(), cni.V110.String()}, Name: n.Name, Plugins: plugins,
	})
	if err != nil {
		return nil, err
	}
	_, err = cni.ParseList(out.Bytes())
	return out.Bytes(), err
}

func (c Chained) plugin() pluginConf {
	p := pluginConf{Type: c.Type, Capabilities: map[string]bool{}}
	for _, name := range c.Capabilities {
		p.Capabilities[name] = true
	}
	return p
}

// Validate returns an error with [cni.CodeInvalidConfig] if options contradict each other.
func (n Draft) Validate() error {
	if err := cni.ValidateNetworkName(n.Name); err != nil {
		return err
	}
	if n.DHCP && len(n.Subnets) > 0 {
		return cni.Errorf(
			cni.CodeInvalidConfig,
			"addresses come from subnets or from a DHCP server, not from both",
		)
	}
	for i, s := range n.Subnets {
		if s != s.Masked() {
			return cni.Errorf(cni.CodeInvalidConfig, "subnet %s has host bits set", s).
				WithDetails(fmt.Sprintf("did you mean %s?", s.Masked()))
		}
		if err := (&ipam.Range{Subnet: s}).Canonicalize(); err != nil {
			return cni.Errorf(cni.CodeInvalidConfig, "subnet %s: %w", s, err)
		}
		for _, other := range n.Subnets[:i] {
			if s.Overlaps(other) {
				return cni.Errorf(cni.CodeInvalidConfig, "subnets %s and %s overlap", other, s)
			}
		}
	}
	used := map[netip.Prefix]netip.Addr{}
	for _, gw := range n.Gateways {
		i := slices.IndexFunc(n.Subnets, func(s netip.Prefix) bool { return s.Contains(gw) })
		if i < 0 {
			return cni.Errorf(cni.CodeInvalidConfig, "gateway %s is in none of the subnets", gw)
		}
		s := n.Subnets[i]
		if other, ok := used[s]; ok {
			return cni.Errorf(
				cni.CodeInvalidConfig,
				"subnet %s has the gateways %s and %s",
				s,
				other,
				gw,
			)
		}
		used[s] = gw
	}
	return nil
}

func (n Draft) ipam() *ipamSection {
	if n.DHCP {
		return &ipamSection{Type: "dhcp"}
	}
	if len(n.Subnets) == 0 {
		return nil
	}
	i := &ipamSection{Type: "host-local"}
	for _, s := range n.Subnets {
		r := ipam.Range{Subnet: s}
		if at := slices.IndexFunc(n.Gateways, s.Contains); at >= 0 {
			r.Gateway = n.Gateways[at]
		}
		i.Ranges = append(i.Ranges, ipam.RangeSet{r})
	}
	return i
}

// defaultRoutes returns a default route for each address family of the subnets.
func (n Draft) defaultRoutes() []cni.Route {
	var routes []cni.Route
	for _, dst := range []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)} {
		if slices.ContainsFunc(
			n.Subnets,
			func(s netip.Prefix) bool { return s.Addr().Is4() == dst.Addr().Is4() },
		) {
			routes = append(routes, cni.Route{Dst: dst})
		}
	}
	return routes
}

// bridgeName returns a name for the bridge of a network that is short enough for an interface.
func bridgeName(network string) string {
	const prefix, longest = "cni-", 15
	if len(prefix)+len(network) <= longest {
		return prefix + network
	}
	return prefix + cni.NetworkOwner(network)[:longest-len(prefix)]
}

// Write writes the configuration of a network to a file in a directory, which it creates if
// necessary, and returns the path. Other processes see the complete file or none. The error wraps
// [fs.ErrExist] if a file of that name, or of the network, exists.
func Write(dir, file, name string, content []byte) (string, error) {
	c, err := config.Discover(dir)
	if err != nil {
		return "", err
	}
	for _, f := range c.Candidates() {
		if f.Name == name {
			return "", fmt.Errorf("network %s: %w: %s", name, fs.ErrExist, f.Path)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	draft, err := os.CreateTemp(dir, ".tenon-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(draft.Name())
	_, err = draft.Write(content)
	if err := errors.Join(err, draft.Chmod(0o644), draft.Sync(), draft.Close()); err != nil {
		return "", err
	}
	path := filepath.Join(dir, file)
	err = os.Link(draft.Name(), path) // unlike rename, replaces no file
	if errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("%s: %w", path, fs.ErrExist)
	}
	return path, err
}
