// Package linux is for authors of plugins that change the network of Linux. [DefineInterface]
// describes a plugin that makes the container's interface, [DefineChained] a plugin that works on
// the result of the plugins before it. In both, the author writes the difference to other plugins,
// and this package the rest: it opens the namespaces, calls the IPAM plugin, applies addresses and
// routes, rolls a failed ADD back, and implements CHECK, DEL, STATUS and GC.
//
// A plugin reaches the kernel through a [Namespace] and its links ([Link]). Each method that
// changes something registers how to undo it: if ADD fails or is interrupted by a signal, the
// changes are undone, newest first. [Session.Do] does so for changes of the plugin's own.
//
// Each object that a plugin creates carries its owner, [Session.Tag], so that DEL and GC find it
// after a crash too. A process can be killed between any two changes, and GC can come without the
// container's namespace.
//
// docs/writing-plugins.md is a guide with a complete plugin.
package linux

import (
	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// ErrNoLink reports that a link does not exist.
var ErrNoLink = kernel.ErrNoLink

// Session is one call in progress. It is for one goroutine, and ends with the method that got it.
type Session struct {
	*plugin.Call

	Host *Namespace // the namespace of the plugin, which is the host's

	// Sandbox is the container's namespace. On DEL it is nil if the namespace no longer exists, on
	// GC and STATUS it is always nil.
	Sandbox *Namespace

	// Tag names the owner of everything that is made for the attachment; see [cni.Attachment.Tag].
	// It is at most 128 bytes long.
	Tag string

	inner *session.Session
}

func newSession(s *session.Session) *Session {
	return &Session{
		Call: s.Call, Host: namespace(s.Host), Sandbox: namespace(s.Sandbox), Tag: s.Tag, inner: s,
	}
}

// Do makes a change by calling apply, which changes nothing if it fails. op names the change with
// its object; the error is "op: cause". If the call fails later, undo reverts the change. It must
// succeed if something else has reverted the change before. A nil undo keeps the change. Do makes
// no change when the call has been interrupted.
func (s *Session) Do(op string, apply, undo func() error) error {
	return s.inner.Tx.Do(op, apply, undo)
}

// PrevIPs returns the addresses in Prev that the container's interface has. It needs Prev.
func (s *Session) PrevIPs() []cni.IP { return s.inner.PrevIPs() }

// Gone selects attachments that DEL or GC clean up after: the attachment of DEL, or all attachments
// of the network that GC does not list as valid.
type Gone struct{ inner session.Gone }

// Tag reports whether a tag, see [Session.Tag], is of an attachment that is gone.
func (g Gone) Tag(tag string) bool { return g.inner.Tag(tag) }

// Owner reports whether an owner is an attachment that is gone.
func (g Gone) Owner(o cni.Owner) bool { return g.inner.Owner(o) }
