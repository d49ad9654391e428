package kernel

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// A parent and the links on it can be in different namespaces. After a namespace has lost its last
// user, the kernel takes some time to delete its links. Until then they still occupy the parent, or
// a VLAN, a MAC address or an IP address on it, but requests do not find them. The kernel announces
// each of these deletions in the parent's namespace.
//
// A change also waits for links of the same owner that requests still find: the owner has lost that
// namespace, and its last reference may be about to go.

// retryWait limits how long a change waits for the links of a namespace that the kernel is
// deleting.
const retryWait = 10 * time.Second

// Retry makes a change of l, a link in this space with a parent. It repeats the change, for up to
// 10 s, while the change fails with [unix.EADDRINUSE] because of a link that no longer has a
// namespace. host is the space of the parent, unless the parent is in this space.
func (s Links) Retry(l Link, host *Space, change func() error) error {
	err := change()
	if l.Parent == 0 || !errors.Is(err, unix.EADDRINUSE) {
		return err
	}
	if l.ParentNSID == netlink.SameNamespace {
		host = s.space
	}
	sameMAC := func(other Link) bool {
		return l.Kind == "macvlan" && other.Kind == l.Kind && other.Up && slices.Equal(other.MAC, l.MAC) && other.Alias != l.Alias
	}
	return host.retryOn(Link{Index: l.Parent, Name: "of " + l.Name}, func() (bool, error) {
		err := change()
		if !errors.Is(err, unix.EADDRINUSE) {
			return false, err
		}
		_, _, found := host.onParent(l.Parent, sameMAC)
		return !found, err
	})
}

// retryOn makes a change that needs room on a parent in this space. It repeats the change after
// each change of a link here, while change returns again, for up to 10 s.
func (s *Space) retryOn(parent Link, change func() (again bool, err error)) error {
	ctx, cancel := context.WithTimeout(s.tx.ctx, retryWait)
	defer cancel()
	var failed error
	err := s.rt.Links.Await(ctx, parent, func() (bool, error) {
		var again bool
		again, failed = change()
		return !again, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return errors.Join(failed, err)
}

// onParent finds a matching link on a parent in this space. The link may be here, or in an existing
// namespace with an identifier here.
func (s *Space) onParent(parent int, match func(Link) bool) (l Link, here, ok bool) {
	of := func(links []Link, nsid int) bool {
		i := slices.IndexFunc(links, func(l Link) bool { return l.Parent == parent && l.ParentNSID == nsid && match(l) })
		if i >= 0 {
			l = links[i]
		}
		return i >= 0
	}
	if links, err := s.rt.Links.All(); err == nil && of(links, netlink.SameNamespace) {
		return l, true, true
	}
	own, all, _ := s.rt.Namespaces()
	for _, nsid := range all {
		if links, err := s.rt.Links.In(nsid); err == nil && of(links, own) {
			return l, false, true
		}
	}
	return Link{}, false, false
}
