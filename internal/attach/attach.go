// Package attach is what all plugins that make an interface for a container have in common: namespaces, address
// management, addresses and routes, roll-back, finding again what belongs to an attachment, CHECK, STATUS and GC. A
// plugin says how its link is made and what is special about it ([Maker]); everything else happens here, once.
//
// It does not know any kind of link, and it allocates no addresses: that is an IPAM plugin's work.
package attach

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// undoBudget is how long taking back a failed ADD may last, whatever became of the call's own deadline.
const undoBudget = 10 * time.Second

// Maker is the configuration of an interface plugin, with the part of its work that differs from
// one plugin to the next. It embeds [Common], which has the methods that a plugin does not need: they
// do nothing special. It may also be a [plugin.Validator] and a [plugin.Statuser].
//
// Status reports what else ADD needs, such as a link of the host. An error with
// [cni.CodeInvalidConfig] says that no ADD can succeed before an administrator has changed
// something; STATUS answers it with [cni.CodeNotAvailable]. Status ignores whatever the runtime or
// another plugin may still provide.
type Maker interface {
	plugin.Configuration
	interface{ attachCommon() *Common }
	interface{ masq() *Masq } // of a configuration that embeds one

	// Options returns how the flow brings the container's interface up.
	Options() Options

	// Make creates the link, down and without addresses, and returns the interfaces of the result.
	// One of them is the container's: its name is CNI_IFNAME and its sandbox CNI_NETNS.
	Make(context.Context, *Session) ([]cni.Interface, error)

	// Amend adds gateways and routes to what IPAM returned, before it is applied.
	Amend(*Session, *cni.Result) error

	// Route makes gateways reachable that the networks of the addresses do not contain. The flow
	// calls it when the container's interface is up and has its addresses, before the interface
	// gets the routes of the result.
	Route(*Session, kernel.Link, *cni.Result) error

	// Finish does the work that is left once the container's interface is up and has its addresses
	// and routes.
	Finish(context.Context, *Session, *cni.Result) error

	// Precheck is the part of CHECK that comes before the container's interface is examined.
	Precheck(*Session) error

	// Verify compares what is special to this kind with the configuration and Prev. The link, its
	// addresses and routes have been checked.
	Verify(context.Context, *Session, kernel.Link) error

	// Remove removes everything that attachments had which no longer exist. It calls deleteLinks at
	// the right moment to delete their links, or on DEL returns the link to the host instead. As
	// DEL does, it needs nothing but the keys of the attachments. The flow calls it a second time,
	// for the same link, if the network has been renamed.
	Remove(ctx context.Context, s *Session, gone Gone, deleteLinks func() error) error

	// Repair claims the entries of the rule set again, except those of masquerading.
	Repair(*Session) error
}

// defaults are the methods of a [Maker] that most plugins do not need.
type defaults struct{}

func (defaults) masq() *Masq                                         { return &Masq{} }
func (defaults) Options() Options                                    { return Options{} }
func (defaults) Amend(*Session, *cni.Result) error                   { return nil }
func (defaults) Route(*Session, kernel.Link, *cni.Result) error      { return nil }
func (defaults) Finish(context.Context, *Session, *cni.Result) error { return nil }
func (defaults) Precheck(*Session) error                             { return nil }
func (defaults) Verify(context.Context, *Session, kernel.Link) error { return nil }
func (defaults) Remove(_ context.Context, _ *Session, _ Gone, deleteLinks func() error) error {
	return deleteLinks()
}
func (defaults) Repair(*Session) error { return nil }

// Options define how the flow brings the container's interface up.
type Options struct {
	KeepDown bool // leave it down; only without IPAM
	DAD      DAD  // the zero value: [DADOff]
	Announce bool // let the kernel tell neighbours the addresses whenever the link comes up or is given a MAC

	// NoLink says that the container has no interface in the kernel (a device that user space drives): what IPAM returns
	// is reported, not applied.
	NoLink bool
}

// Session is one call in progress. On DEL the container's namespace may be gone: Sandbox is nil
// then.
type Session struct {
	*session.Session
	masq          *Masq // of the configuration
	secondDefault SecondDefaultRoute
}

// Gone tells what DEL and GC have to remove.
type Gone = session.Gone

// open starts a session in the plugin's own namespace.
func (p *Plugin) open(ctx context.Context, c *plugin.Call) (*Session, error) {
	s, err := session.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	return &Session{s, p.masq(), p.attachCommon().SecondDefaultRoute}, nil
}

// Made is the end of a Make that makes one link, the container's. It returns err, if there is one, or
// the interfaces of the result.
func (s *Session) Made(link kernel.Link, err error) ([]cni.Interface, error) {
	if err != nil {
		return nil, err
	}
	return []cni.Interface{{Name: link.Name, MAC: link.MAC.String(), Sandbox: s.Netns}}, nil
}

// HostName returns the name of the host's end of a pair made for this attachment. It follows from the attachment, so
// that DEL and GC find the link when everything else is lost, even where the process died before it could mark it.
func (s *Session) HostName() string { return HostName(s.Attachment()) }

// The name is "veth", 3 digits of base 32 that name the network and 8 that name the attachment in it: 15 bytes, all
// that Linux allows.
const hostPrefix = "veth"

// HostName returns the name of the host-side veth of an attachment; see [Session.HostName].
func HostName(a cni.Attachment) string {
	o := string(a.Owner())
	return hostNetworkPrefix(a.Network) + digits(strings.TrimPrefix(o, cni.NetworkOwner(a.Network)), 8)
}

func hostNetworkPrefix(network string) string {
	return hostPrefix + digits(cni.NetworkOwner(network), 3)
}

// digits returns the first n digits of base 32, up to 12, of a number of 64 bits.
func digits(hexadecimal string, n int) string {
	v, _ := strconv.ParseUint(hexadecimal, 16, 64)
	text := strconv.FormatUint(v>>(64-5*n), 32)
	return strings.Repeat("0", n-len(text)) + text
}

// owned reports whether a link of the host belongs to an attachment: its alias says so, or it has none yet and the
// name that such a link would have.
func owned(l kernel.Link, a cni.Attachment) bool {
	if o, ok := cni.ParseTag(l.Alias); ok {
		return o == a.Owner()
	}
	return l.Alias == "" && l.Kind == "veth" && l.Name == HostName(a)
}

// unmarked reports whether a link without alias has a name that those of a network have.
func unmarked(l kernel.Link, network string) bool {
	return l.Alias == "" && l.Kind == "veth" && len(l.Name) == 15 && strings.HasPrefix(l.Name, hostNetworkPrefix(network))
}
