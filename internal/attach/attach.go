// Package attach implements the flow that all interface plugins share: namespaces, IPAM, addresses
// and routes, rollback, finding the objects of an attachment, CHECK, STATUS and GC. A plugin
// implements [Maker], which creates the link and defines its special properties.
//
// The package knows no kind of link and allocates no addresses, which is the work of IPAM plugins.
package attach

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// undoBudget limits the rollback of a failed ADD. It is independent of the deadline of the call.
const undoBudget = 10 * time.Second

// Maker is the configuration of an interface plugin, with the part of its work that differs between
// plugins. It embeds [Common], which implements the methods that most plugins do not need. It may
// also implement [plugin.Validator] and [plugin.Statuser].
//
// Status reports other missing prerequisites of ADD, such as a link of the host. An error with
// [cni.CodeInvalidConfig] means that ADD cannot succeed until an administrator changes something;
// STATUS replaces the code by [cni.CodeNotAvailable]. Status ignores prerequisites that the runtime
// or another plugin may still provide.
type Maker interface {
	plugin.Configuration
	interface{ attachCommon() *Common }
	interface{ masq() *Masq } // the Masq that the configuration embeds, if any

	// Options returns how the flow brings the container's interface up.
	Options() Options

	// Make creates the link, down and without addresses, and returns the interfaces of the result.
	// One of them is the container's: its name is CNI_IFNAME and its sandbox CNI_NETNS.
	Make(context.Context, *Session) ([]cni.Interface, error)

	// Amend adds addresses, gateways and routes to what IPAM returned, which is nothing without IPAM,
	// before it is applied.
	Amend(*Session, *cni.Result) error

	// Route makes gateways reachable that are outside the networks of the addresses. The flow calls
	// it when the container's interface is up and has its addresses, before it adds the routes of
	// the result.
	Route(*Session, kernel.Link, *cni.Result) error

	// Finish does the remaining work after the container's interface is up and has its addresses
	// and routes.
	Finish(context.Context, *Session, *cni.Result) error

	// Precheck is the part of CHECK that precedes the examination of the container's interface.
	Precheck(*Session) error

	// Verify compares the special properties of this kind of link with the configuration and Prev.
	// CHECK has already verified the link, its addresses and its routes.
	Verify(context.Context, *Session, kernel.Link) error

	// Remove removes everything that belonged to attachments that no longer exist. It calls
	// deleteLinks at the right moment to delete their links; on DEL it may return the link to the
	// host instead. Like DEL, it needs only the keys of the attachments. If the network has been
	// renamed, the flow calls it a second time for the same link.
	Remove(ctx context.Context, s *Session, gone Gone, deleteLinks func() error) error

	// Repair restores missing elements of rule sets, except masquerading.
	Repair(*Session) error
}

// defaults implements the methods of a [Maker] that most plugins do not need.
type defaults struct{}

func (defaults) masq() *Masq                                         { return &Masq{} }
func (defaults) Options() Options                                    { return Options{} }
func (defaults) Amend(*Session, *cni.Result) error                   { return nil }
func (defaults) Finish(context.Context, *Session, *cni.Result) error { return nil }
func (defaults) Precheck(*Session) error                             { return nil }
func (defaults) Verify(context.Context, *Session, kernel.Link) error { return nil }
func (defaults) Remove(_ context.Context, _ *Session, _ Gone, deleteLinks func() error) error {
	return deleteLinks()
}
func (defaults) Repair(*Session) error { return nil }

// Route makes gateways reachable for addresses that are a network of their own (/32 or /128), as
// hosters assign them: such a gateway is on the link, but in no network of the interface.
func (defaults) Route(s *Session, link kernel.Link, r *cni.Result) error {
	for _, ip := range r.IPs {
		gw := ip.Gateway
		if !gw.IsValid() || !ip.Address.IsSingleIP() || gw.Is4() != ip.Address.Addr().Is4() ||
			gw.IsLinkLocalUnicast() || inNetwork(r.IPs, gw) {
			continue
		}
		if err := s.Sandbox.Routes.Add(link, kernel.Route{
			Dst: netip.PrefixFrom(gw, gw.BitLen()), Scope: kernel.ScopeLink,
		}); err != nil {
			return err
		}
	}
	return nil
}

// inNetwork reports whether an address is in the network of one of the addresses.
func inNetwork(ips []cni.IP, a netip.Addr) bool {
	return slices.ContainsFunc(ips, func(ip cni.IP) bool { return ip.Address.Contains(a) })
}

// Options defines how the flow brings the container's interface up.
type Options struct {
	KeepDown bool // leave it down; only without IPAM
	DAD      DAD  // the zero value: [DADOff]
	Announce bool // announce addresses to neighbours when the link comes up or its MAC changes

	// NoAddresses means that IPAM may return no addresses, because Amend adds some.
	NoAddresses bool

	// NoLink means that the container has no interface in the kernel, because user space drives the
	// device. The flow then reports the result of IPAM without applying it.
	NoLink bool
}

// Session is one call in progress. On DEL the container's namespace may no longer exist; Sandbox is
// nil then.
type Session struct {
	*session.Session
	masq          *Masq // of the configuration
	secondDefault SecondDefaultRoute
}

// Gone selects attachments that no longer exist, for DEL and GC.
type Gone = session.Gone

// open starts a session in the plugin's own namespace.
func (p *Plugin) open(ctx context.Context, c *plugin.Call) (*Session, error) {
	s, err := session.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	return &Session{s, p.masq(), p.attachCommon().SecondDefaultRoute}, nil
}

// Made is the end of a Make that creates one link, the container's. It returns err, if not nil, or
// the interfaces of the result.
func (s *Session) Made(link kernel.Link, err error) ([]cni.Interface, error) {
	if err != nil {
		return nil, err
	}
	return []cni.Interface{{Name: link.Name, MAC: link.MAC.String(), Sandbox: s.Netns}}, nil
}

// HostName returns the name of the host-side veth of this attachment. The name is derived from the
// attachment, so that DEL and GC find the link without any other state, even if the process died
// before it could tag the link.
func (s *Session) HostName() string { return HostName(s.Attachment()) }

// hostPrefix is followed by 3 digits of base 32 that name the network and 8 that name the
// attachment in it: 15 bytes, the maximum on Linux.
const hostPrefix = "veth"

// HostName returns the name of the host-side veth of an attachment; see [Session.HostName].
func HostName(a cni.Attachment) string {
	o := string(a.Owner())
	return hostNetworkPrefix(a.Network) + digits(strings.TrimPrefix(o, cni.NetworkOwner(a.Network)), 8)
}

func hostNetworkPrefix(network string) string {
	return hostPrefix + digits(cni.NetworkOwner(network), 3)
}

// digits returns the first n digits, at most 12, of a 64-bit number in base 32.
func digits(hexadecimal string, n int) string {
	v, _ := strconv.ParseUint(hexadecimal, 16, 64)
	text := strconv.FormatUint(v>>(64-5*n), 32)
	return strings.Repeat("0", n-len(text)) + text
}

// owned reports whether a link of the host belongs to an attachment: either its alias is the
// attachment's tag, or it has no alias yet and the name that HostName returns.
func owned(l kernel.Link, a cni.Attachment) bool {
	if o, ok := cni.ParseTag(l.Alias); ok {
		return o == a.Owner()
	}
	return l.Alias == "" && l.Kind == "veth" && l.Name == HostName(a)
}

// unmarked reports whether a link without alias has a name with the network's prefix.
func unmarked(l kernel.Link, network string) bool {
	return l.Alias == "" && l.Kind == "veth" && len(l.Name) == 15 && strings.HasPrefix(l.Name, hostNetworkPrefix(network))
}
