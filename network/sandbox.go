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

// SandboxRequest asks [Manager.Setup] for the networks of a container.
type SandboxRequest struct {
	ID string // container ID

	// Parameters are those of every network. Of the capability arguments, portMappings, ips, mac, infinibandGUID and
	// deviceID go to the first network only that has a plugin which declares them: there is one port, one address and one
	// device. What another is to have of them stands in its [Join].
	Parameters

	Networks []Join // in the order of ADD; nil: the first of the directory, as [ManagerOptions] says

	// Replace runs DEL first for what is recorded of one of the keys. Otherwise that is refused with [ErrExists].
	Replace bool
}

// Join is one network that a container is attached to.
type Join struct {
	Name    string          // of the network, which is looked up in the directory
	Network *config.Network // the network, instead of Name
	IfName  string          // in the container; empty: what [ManagerOptions.IfName] says

	// What this network gets beside the parameters of the container, and instead of what has the same name there.
	Args         cni.Args
	Capabilities map[string]json.RawMessage
}

// single are the capabilities of which a container has one.
var single = []string{"portMappings", "ips", "mac", "infinibandGUID", "deviceID"}

// parameters returns what each of the networks gets.
func (r SandboxRequest) parameters(networks []*config.Network, joins []Join) []Parameters {
	granted := map[string]bool{}
	all := make([]Parameters, len(networks))
	for i, n := range networks {
		p := r.Parameters
		p.Capabilities = map[string]json.RawMessage{}
		for name, value := range r.Capabilities {
			declared := slices.ContainsFunc(n.Plugins, func(c *cni.PluginConfig) bool { return c.Capabilities[name] })
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

// parameters returns p with what j has beside it.
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

// Sandbox is a container with what it is attached to.
type Sandbox struct {
	ID          string
	Attachments []AttachmentResult // in the order of ADD
}

// AttachmentResult is an attachment and what came of its ADD.
type AttachmentResult struct {
	Attachment cni.Attachment
	Result     *cni.Result // nil where none is recorded: see [Record.Result]
}

// Primary returns the attachment of the first network, which is that of the default route; nil if there is none but
// loopback.
func (s *Sandbox) Primary() *AttachmentResult {
	for i, a := range s.Attachments {
		if a.Attachment.Network != LoopbackNetwork {
			return &s.Attachments[i]
		}
	}
	return nil
}

// PodIPs returns the addresses by which others know the container, as Kubernetes has them: of the primary network the first
// of each family, in the order of the result.
func (s *Sandbox) PodIPs() []netip.Addr {
	p := s.Primary()
	if p == nil {
		return nil
	}
	var ips []netip.Addr
	for _, prefix := range p.Addresses() {
		if !slices.ContainsFunc(ips, func(ip netip.Addr) bool { return ip.Is4() == prefix.Addr().Is4() }) {
			ips = append(ips, prefix.Addr())
		}
	}
	return ips
}

// Addresses returns the addresses in the container, with the lengths of their networks: those of interfaces that are in a
// sandbox, and those of which the result does not say whose they are. Loopback addresses are left out, and those that a
// result names twice.
func (a AttachmentResult) Addresses() []netip.Prefix {
	var all []netip.Prefix
	if a.Result == nil {
		return nil
	}
	for _, ip := range a.Result.IPs {
		if i, ok := ip.Interface.Get(); ok && i >= 0 && i < len(a.Result.Interfaces) && a.Result.Interfaces[i].Sandbox == "" {
			continue
		}
		if !ip.Address.Addr().IsLoopback() && !slices.Contains(all, ip.Address) {
			all = append(all, ip.Address)
		}
	}
	return all
}

// DNS merges what the networks say of name resolution, in the order of the attachments: all name servers and search domains,
// each once, where it stands first; the first domain; all options, of those with one name ("ndots:2") the first. It cuts
// nothing: resolv.conf(5) has room for three servers.
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
			if !slices.ContainsFunc(all.Options, func(other string) bool { return optionName(other) == optionName(o) }) {
				all.Options = append(all.Options, o)
			}
		}
		if all.Domain == "" {
			all.Domain = d.Domain
		}
	}
	return all
}

// appendNew appends what is not there yet.
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
