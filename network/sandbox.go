package network

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network/config"
)

// SandboxRequest describes the networks of a container for [Manager.Setup].
type SandboxRequest struct {
	ID string // container ID

	// Parameters are the arguments for all networks. A container has one set of ports, one address
	// and one device, so the capability arguments portMappings, ips, mac, infinibandGUID and
	// deviceID go only to the first network that has a plugin with the capability. [Join] sets them
	// for other networks.
	Parameters

	Networks []Join // in the order of ADD; nil: see [ManagerOptions.Max]

	// Replace runs DEL first if an attachment with one of the keys exists. Otherwise Setup fails
	// with [ErrExists].
	Replace bool
}

// Join is one network of a container.
type Join struct {
	Name    string          // of a network in the directory
	Network *config.Network // the network, instead of Name
	IfName  string          // in the container; empty: see [ManagerOptions.IfName]

	// Arguments for this network. They extend and override the parameters of the container.
	Args         cni.Args
	Capabilities map[string]json.RawMessage
}

// single are the capability arguments that only one network of a container can get.
var single = []string{"portMappings", "ips", "mac", "infinibandGUID", "deviceID"}

// parameters returns the parameters of each network.
func (r SandboxRequest) parameters(networks []*config.Network, joins []Join) []Parameters {
	granted := map[string]bool{}
	all := make([]Parameters, len(networks))
	for i, n := range networks {
		p := r.Parameters
		p.Capabilities = map[string]json.RawMessage{}
		for name, value := range r.Capabilities {
			declared := slices.ContainsFunc(n.Plugins,
				func(c *cni.PluginConfig) bool { return c.Capabilities[name] })
			if !slices.Contains(single, name) {
				p.Capabilities[name] = value
			} else if declared && !granted[name] {
				granted[name] = true
				p.Capabilities[name] = value
			}
		}
		all[i] = joins[i].parameters(p)
	}
	return all
}

// parameters returns p extended and overridden by the arguments of j.
func (j Join) parameters(p Parameters) Parameters {
	p.Args = slices.DeleteFunc(slices.Clone(p.Args), func(a cni.Arg) bool {
		return slices.ContainsFunc(j.Args, func(own cni.Arg) bool { return own.Key == a.Key })
	})
	p.Args = append(p.Args, j.Args...)
	merged := map[string]json.RawMessage{}
	maps.Copy(merged, p.Capabilities)
	maps.Copy(merged, j.Capabilities)
	p.Capabilities = merged
	return p
}

// Sandbox describes a container and its attachments.
type Sandbox struct {
	ID          string
	Attachments []AttachmentResult // in the order of ADD
}

// AttachmentResult is an attachment and the result of its ADD.
type AttachmentResult struct {
	Attachment cni.Attachment
	Result     *cni.Result // may be nil: see [Record.Result]
}

// Primary returns the attachment of the first network, which has the default route, or nil if the
// container has only loopback.
func (s *Sandbox) Primary() *AttachmentResult {
	for i, a := range s.Attachments {
		if a.Attachment.Network != LoopbackNetwork {
			return &s.Attachments[i]
		}
	}
	return nil
}

// PodIPs returns the addresses of the container as Kubernetes defines them: the first address of
// each family in the result of the primary network.
func (s *Sandbox) PodIPs() []netip.Addr {
	p := s.Primary()
	if p == nil {
		return nil
	}
	var ips []netip.Addr
	for _, prefix := range p.Addresses() {
		if !slices.ContainsFunc(ips,
			func(ip netip.Addr) bool { return ip.Is4() == prefix.Addr().Is4() }) {
			ips = append(ips, prefix.Addr())
		}
	}
	return ips
}

// Addresses returns the addresses in the container with their prefix lengths: addresses of
// interfaces with a sandbox, and addresses without an interface. It leaves out loopback addresses
// and duplicates.
func (a AttachmentResult) Addresses() []netip.Prefix {
	var all []netip.Prefix
	if a.Result == nil {
		return nil
	}
	for _, ip := range a.Result.IPs {
		if i, ok := ip.Interface.Get(); ok && i >= 0 && i < len(a.Result.Interfaces) &&
			a.Result.Interfaces[i].Sandbox == "" {
			continue
		}
		if !ip.Address.Addr().IsLoopback() && !slices.Contains(all, ip.Address) {
			all = append(all, ip.Address)
		}
	}
	return all
}

// DNS merges the DNS settings of all networks in the order of the attachments: all name servers and
// search domains without duplicates, the first domain, and the first of all options with the same
// name ("ndots:2"). The result can exceed the limits of resolv.conf(5), which has room for three
// servers.
func (s *Sandbox) DNS() cni.DNS {
	var all cni.DNS
	for _, a := range s.Attachments {
		if a.Result == nil {
			continue
		}
		d := a.Result.DNS
		all.Nameservers = appendNew(all.Nameservers, d.Nameservers)
		all.Search = appendNew(all.Search, d.Search)
		for _, o := range d.Options {
			if !slices.ContainsFunc(all.Options,
				func(other string) bool { return optionName(other) == optionName(o) }) {
				all.Options = append(all.Options, o)
			}
		}
		if all.Domain == "" {
			all.Domain = d.Domain
		}
	}
	return all
}

// appendNew appends the strings of from that to does not contain.
func appendNew(to, from []string) []string {
	for _, s := range from {
		if !slices.Contains(to, s) {
			to = append(to, s)
		}
	}
	return to
}

func optionName(option string) string {
	name, _, _ := strings.Cut(option, ":")
	return name
}
