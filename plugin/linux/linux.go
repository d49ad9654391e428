// Package linux is for authors of plugins that change the network of Linux. [DefineInterface]
// describes a plugin that creates the container's interface, [DefineChained] a plugin that changes
// the result of the plugins before it. The author writes only the parts that are specific to the
// plugin. The package does the rest: it opens the namespaces, calls the IPAM plugin, applies
// addresses and routes, rolls a failed ADD back, and implements CHECK, DEL, STATUS and GC.
//
// A plugin changes the kernel through a [Namespace] and its links ([Link]). Each method that makes
// a change registers how to undo it: if ADD fails or is interrupted by a signal, the changes are
// undone, newest first. [Session.Do] does so for the plugin's own changes.
//
// Each object that a plugin creates carries its owner, [Session.Tag], so that DEL and GC find it
// after a crash too. A process can be killed between any two changes, and GC can run after the
// container's namespace is gone.
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

// Session is one call in progress. Only one goroutine may use it, and only until the method that
// received it returns.
type Session struct {
	*plugin.Call

	Host *Namespace // the namespace of the plugin, which is the host's

	// Sandbox is the container's namespace. On DEL it is nil if the namespace no longer exists, on
	// GC and STATUS it is always nil.
	Sandbox *Namespace

	// Tag names the owner of all objects of the attachment; see [cni.Attachment.Tag].
	// It is at most 128 bytes long.
	Tag string

	inner *session.Session
}

func newSession(s *session.Session) *Session {
	return &Session{
		Call: s.Call, Host: namespace(s.Host), Sandbox: namespace(s.Sandbox), Tag: s.Tag, inner: s,
	}
}

// Do makes a change by calling apply, which must change nothing if it fails. op describes the
// change and its object; the error is "op: cause". If the call fails later, undo reverts the
// change. undo must succeed if the change has already been reverted by another program. If undo is
// nil, the change stays. Do makes no change after the call was interrupted.
func (s *Session) Do(op string, apply, undo func() error) error {
	return s.inner.Tx.Do(op, apply, undo)
}

// PrevIPs returns the addresses in Prev that the container's interface has. It needs Prev.
func (s *Session) PrevIPs() []cni.IP { return s.inner.PrevIPs() }

// Gone selects attachments that DEL or GC clean up after: the attachment of DEL, or all attachments
// of the network that GC does not list as valid.
type Gone struct{ inner session.Gone }

// Tag reports whether a tag, see [Session.Tag], belongs to an attachment that is gone.
func (g Gone) Tag(tag string) bool { return g.inner.Tag(tag) }

// Owner reports whether an owner belongs to an attachment that is gone.
func (g Gone) Owner(o cni.Owner) bool { return g.inner.Owner(o) }
