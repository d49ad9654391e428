package linux

import (
	"context"
	"errors"
	"net"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/plugin"
)

// Common is the part of a configuration that every interface plugin has. Configuration types embed
// it.
type Common struct {
	plugin.Common

	// SecondDefaultRoute is the rule for a default route where the container has one of another
	// network with the same metric: "metric" gives it the next free metric, "refuse" fails ADD.
	SecondDefaultRoute string `json:"secondDefaultRoute" enum:"metric,refuse" default:"metric"`

	// DAD defines how the kernel detects duplicates of IPv6 addresses (RFC 4862): "optimistic" lets
	// the container use them meanwhile (RFC 4429), "wait" makes ADD wait one or two seconds and
	// fail if there is a duplicate, "off" detects none.
	DAD string `json:"dad" enum:"optimistic,wait,off" default:"optimistic"`
}

func (c *Common) linuxCommon() *Common { return c }

// Maker is the configuration of an interface plugin: a pointer to a struct that embeds [Common]. It
// may also be a [plugin.Validator], a [plugin.Statuser], a [Finisher], a [Verifier] and a
// [Remover].
type Maker interface {
	plugin.Configuration
	interface{ linuxCommon() *Common }

	// Make creates the container's interface in s.Sandbox with the name CNI_IFNAME, down and
	// without addresses, and returns the interfaces of the result; see [Session.Made]. Afterwards
	// the flow calls the IPAM plugin, assigns addresses, sets the interface up and adds routes.
	Make(ctx context.Context, s *Session) ([]cni.Interface, error)
}

// Finisher is a [Maker] that makes further changes after the container's interface is up and has
// its addresses and routes.
type Finisher interface {
	// Finish makes further changes. r has the interfaces that Make returned, and the addresses and
	// routes of IPAM.
	Finish(ctx context.Context, s *Session, r *cni.Result) error
}

// Verifier is a [Maker] that takes part in CHECK. The flow first compares the kind, MAC address,
// addresses and routes of the interface with Prev.
type Verifier interface {
	// Verify compares the interface with the configuration. It returns an error that names the
	// first difference, and changes nothing.
	Verify(ctx context.Context, s *Session, link Link) error
}

// Remover is a [Maker] that creates objects other than the container's interface.
type Remover interface {
	// Remove removes all objects of attachments that are gone, except their interfaces, which the
	// flow deletes afterwards. It succeeds if none exist. It works without s.Sandbox and s.Prev,
	// and with the part of the configuration that could be decoded. It continues past errors and
	// returns them joined.
	Remove(ctx context.Context, s *Session, gone Gone) error
}

// DefineInterface describes a plugin that creates the container's interface. kind is the kind of
// the interface in rtnetlink, such as "macvlan": CHECK expects it, DEL deletes no other kind, and
// STATUS fails if the kernel lacks it. new returns an empty configuration.
func DefineInterface(i plugin.Info, kind string, new func() Maker) plugin.Definition {
	return plugin.DefineFlow(i, func() (plugin.Configuration, plugin.Plugin) {
		conf := new()
		m := &maker{Maker: conf}
		return conf, &interfaceFlow{&attach.Plugin{Maker: m, Traits: attach.Traits{Kind: kind}}, m}
	})
}

// interfaceFlow is the flow of the interface plugins of Tenon.
type interfaceFlow struct {
	*attach.Plugin
	maker *maker
}

// Validate gives the flow its part of the configuration, which ADD, CHECK and STATUS use.
func (f *interfaceFlow) Validate(c *plugin.Call) error {
	rule := f.maker.Maker.linuxCommon().SecondDefaultRoute
	f.maker.Common.SecondDefaultRoute = attach.SecondDefaultRoute(rule)
	return f.Plugin.Validate(c)
}

// maker is a [Maker] in the terms of the flow.
type maker struct {
	Maker
	attach.Common
}

func (m *maker) Options() attach.Options {
	return (&attach.Segment{DAD: attach.DAD(m.linuxCommon().DAD)}).Options()
}

func (m *maker) Validate(c *plugin.Call) error {
	if v, ok := m.Maker.(plugin.Validator); ok {
		return v.Validate(c)
	}
	return nil
}

func (m *maker) Status(ctx context.Context, c *plugin.Call) error {
	if v, ok := m.Maker.(plugin.Statuser); ok {
		return v.Status(ctx, c)
	}
	return nil
}

func (m *maker) Make(ctx context.Context, s *attach.Session) ([]cni.Interface, error) {
	return m.Maker.Make(ctx, newSession(s.Session))
}

func (m *maker) Finish(ctx context.Context, s *attach.Session, r *cni.Result) error {
	if f, ok := m.Maker.(Finisher); ok {
		return f.Finish(ctx, newSession(s.Session), r)
	}
	return nil
}

func (m *maker) Verify(ctx context.Context, s *attach.Session, l kernel.Link) error {
	if v, ok := m.Maker.(Verifier); ok {
		outer := newSession(s.Session)
		return v.Verify(ctx, outer, outer.Sandbox.link(l))
	}
	return nil
}

func (m *maker) Remove(
	ctx context.Context, s *attach.Session, gone attach.Gone, deleteLinks func() error,
) error {
	var err error
	if r, ok := m.Maker.(Remover); ok {
		err = r.Remove(ctx, newSession(s.Session), Gone{gone})
	}
	return errors.Join(err, deleteLinks())
}

// RequestedMAC returns the MAC address for the container's interface: the capability mac, else MAC
// in CNI_ARGS, else conf. It is nil if there is none. The code of the error is
// [cni.CodeInvalidConfig].
func RequestedMAC(c *plugin.Call, conf string) (net.HardwareAddr, error) {
	return attach.AskedMAC(c, conf)
}

// CheckMTU returns an error with [cni.CodeInvalidConfig] if a link on parent cannot have an MTU, in
// bytes. 0 stands for the MTU of the parent.
func CheckMTU(mtu int, parent Link) error { return attach.CheckMTU(mtu, parent.inner) }

// ParentStatus is for a [plugin.Statuser]: it returns the error of [Session.Parent].
func ParentStatus(ctx context.Context, c *plugin.Call, name string) error {
	return attach.ParentStatus(ctx, c, name, false)
}

// Parent returns the link on which to create the container's interface. Without a name, it is the
// link of the default route, of IPv4 before IPv6. If there is none, the code of the error is
// [cni.CodeInvalidConfig].
func (s *Session) Parent(name string) (Link, error) {
	l, _, err := (&attach.Session{Session: s.inner}).Parent(name, false)
	return s.Host.link(l), err
}

// AddLink creates the container's interface: CNI_IFNAME in s.Sandbox, with s.Tag as its alias. Name
// and Alias of l are ignored. See [Namespace.AddLink] for errors and undo.
func (s *Session) AddLink(l NewLink) (Link, error) {
	made, err := (&attach.Session{Session: s.inner}).AddLink(l.inner())
	return s.Sandbox.link(made), err
}

// Veth describes the veth pair of a container (veth(4)).
type Veth struct {
	MAC net.HardwareAddr // of the container's interface; nil lets the kernel choose
	MTU int              // bytes, of both ends; 0 is the kernel's default
}

// AddVeth creates the container's interface as one end of a veth pair, and returns it with its peer
// on the host, both down. The name of the peer is derived from the attachment, so that DEL and GC
// find the pair. See [Namespace.AddLink] for errors and undo.
func (s *Session) AddVeth(v Veth) (inside, host Link, err error) {
	a := &attach.Session{Session: s.inner}
	in, out, err := a.AddVeth(kernel.Veth{
		Name: s.IfName, MAC: v.MAC, MTU: v.MTU, Host: s.inner.Host, HostName: a.HostName(),
		Alias: s.Tag,
	})
	return s.Sandbox.link(in), s.Host.link(out), err
}

// Peer returns the host-side veth of the container's interface. The error wraps [ErrNoLink] if
// there is none.
func (s *Session) Peer(inside Link) (Link, error) {
	l, err := s.inner.Host.Links.Peer(inside.inner)
	return s.Host.link(l), err
}

// Made returns the interfaces of a result: the container's interface, and the links of the host
// that were created with it.
func (s *Session) Made(inside Link, host ...Link) []cni.Interface {
	var list []cni.Interface
	for _, l := range host {
		list = append(list, cni.Interface{Name: l.Name, MAC: l.MAC.String()})
	}
	return append(list, cni.Interface{Name: inside.Name, MAC: inside.MAC.String(),
		Sandbox: s.Netns})
}
