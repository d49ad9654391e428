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

// Maker is the part of an interface plugin that differs from one to the next. Its configuration C embeds [Common].
type Maker[C any] interface {
	// Make creates the link, down and without addresses, and returns the interfaces of the result. One of them is the
	// container's: its name is CNI_IFNAME and its sandbox CNI_NETNS.
	Make(context.Context, *Session[C]) ([]cni.Interface, error)

	// Verify compares what is special to this kind with the configuration and Prev. The link, its addresses and
	// routes have been checked.
	Verify(context.Context, *Session[C], kernel.Link) error
}

// Amender is a Maker that adds to what IPAM returned before it is applied: gateways, routes.
type Amender[C any] interface {
	Amend(*Session[C], *cni.Result) error
}

// Router is a Maker whose gateways cannot be reached by the networks of the addresses alone. Route is called when the
// container's interface is up and has its addresses, before it gets the routes of the result.
type Router[C any] interface {
	Route(*Session[C], kernel.Link, *cni.Result) error
}

// Finisher is a Maker with work left once the container's interface is up and has its addresses and routes.
type Finisher[C any] interface {
	Finish(context.Context, *Session[C], *cni.Result) error
}

// Remover is a Maker that has made more than its link, which DEL and GC have to take away when the link is gone. As DEL
// does, it needs nothing but the key of the attachment.
type Remover[C any] interface {
	Remove(*Session[C], Gone) error
}

// Validator is a Maker that checks its configuration; see [plugin.Validator].
type Validator[C any] interface {
	Validate(*plugin.Call[C]) error
}

// Statuser is a Maker that knows what else ADD needs, such as a link of the host. An error with
// [cni.CodeInvalidConfig] says that no ADD can succeed before an administrator has changed something; STATUS answers it
// with [cni.CodeNotAvailable]. Status ignores whatever the runtime or another plugin may still provide. Sandbox is nil.
type Statuser[C any] interface {
	Status(*Session[C]) error
}

// Prechecker is a Maker that CHECK asks before it looks at the container's interface.
type Prechecker[C any] interface {
	Precheck(*Session[C]) error
}

// Options tell how the container's interface is brought up.
type Options struct {
	KeepDown bool // leave it down; only without IPAM
	DAD      DAD  // the zero value: [DADOff]
	Announce bool // let the kernel tell neighbours the addresses whenever the link comes up or is given a MAC

	// NoLink says that the container has no interface in the kernel (a device that user space drives): what IPAM returns
	// is reported, not applied.
	NoLink bool
}

// Returner is a Maker whose link is not deleted by DEL but given back.
type Returner[C any] interface {
	Return(*Session[C]) error
}

// Session is one call in progress, with the configuration of its plugin.
type Session[C any] struct {
	*Core
	Conf *C
}

// Core is a session of any plugin. On DEL the container's namespace may be gone: Sandbox is nil then.
type Core struct {
	*session.Core
}

// Gone tells what DEL and GC have to remove.
type Gone = session.Gone

// open starts a session in the plugin's own namespace.
func open(ctx context.Context, c *plugin.AnyCall) (*Core, error) {
	s, err := session.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	return &Core{s}, nil
}

// Made returns the interfaces of the result of a plugin that has made one link, the container's.
func (s *Core) Made(link kernel.Link) []cni.Interface {
	return []cni.Interface{{Name: link.Name, MAC: link.MAC.String(), Sandbox: s.Netns}}
}

// HostName returns the name of the host's end of a pair made for this attachment. It follows from the attachment, so
// that DEL and GC find the link when everything else is lost, even where the process died before it could mark it.
func (s *Core) HostName() string { return HostName(s.Attachment()) }

// The name is "veth", 3 digits of base 32 that name the network and 8 that name the attachment in it: 15 bytes, all
// that Linux allows.
const hostPrefix = "veth"

// HostName returns the name of the host-side veth of an attachment; see [Core.HostName].
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
