package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel"
)

// errGone reports that the namespace or the interface of a lease no longer exists.
var errGone = errors.New("gone")

// host is the prefix of the file system that contains the paths of namespaces.
type host struct{ prefix string }

// find opens the namespace of a place. The error wraps errGone if the namespace no longer exists,
// that is, if no path leads to it and kept is nil.
func (h host) find(p *Place, kept *kernel.Namespace) (*kernel.Namespace, error) {
	path, ok := h.path(p)
	switch {
	case ok:
	case kept != nil:
		path = descriptor(kept.Fd())
	default:
		return nil, fmt.Errorf("network namespace %s: %w", p.Path, errGone)
	}
	ns, err := kernel.NamespaceRef{Path: path, ID: p.NS}.Open()
	if errors.Is(err, kernel.ErrNoNamespace) || errors.Is(err, kernel.ErrNotNamespace) {
		return nil, fmt.Errorf("%w: %w", errGone, err)
	}
	return ns, err
}

func descriptor(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// path returns a path to the namespace of a place: its own, or one below /run/netns or of a
// process. The search takes 0.5 ms with a hundred processes.
func (h host) path(p *Place) (path string, ok bool) {
	own := h.prefix + p.Path
	if identity(own) == p.NS {
		return own, true
	}
	for _, pattern := range []string{h.prefix + "/run/netns/*", "/proc/[0-9]*/ns/net"} {
		candidates, _ := filepath.Glob(pattern) // only a malformed pattern is an error
		for _, path := range candidates {
			if identity(path) == p.NS {
				return path, true
			}
		}
	}
	return "", false
}

// identity returns the identity of the file at a path, or zero if it does not exist.
func identity(path string) (id kernel.NamespaceID) {
	var st unix.Stat_t
	if unix.Stat(path, &st) == nil {
		id = kernel.NamespaceID{Dev: st.Dev, Inode: st.Ino}
	}
	return id
}

// openLink is the interface of a lease in an open network namespace. An open namespace stays alive,
// so the daemon closes it unless it waits for a message.
type openLink struct {
	ns   *kernel.Namespace
	link kernel.Link
}

func (o *openLink) Close() error { return o.ns.Close() }

// open opens the interface of a lease. The error wraps errGone if it no longer exists.
func (h host) open(ctx context.Context, l *Record, kept *kernel.Namespace) (*openLink, error) {
	ns, err := h.find(&l.Place, kept)
	if err != nil {
		return nil, err
	}
	return linkIn(ctx, ns,
		func(space *kernel.Space) (kernel.Link, error) { return theLink(space, l) })
}

// linkIn opens an interface in a namespace, which it closes if it fails.
func linkIn(
	ctx context.Context, ns *kernel.Namespace, link func(*kernel.Space) (kernel.Link, error),
) (*openLink, error) {
	o := &openLink{ns: ns}
	err := o.visit(ctx, func(space *kernel.Space) (err error) {
		o.link, err = link(space)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return o, nil
}

// theLink finds the interface of a lease. The kernel reuses the numbers of namespaces and
// interfaces, so theLink also compares the MAC address and the address.
func theLink(space *kernel.Space, l *Record) (kernel.Link, error) {
	found, err := space.Links.ByIndex(l.Place.Index)
	if errors.Is(err, kernel.ErrNoLink) {
		return found, fmt.Errorf("interface %s: %w", l.IfName, errGone)
	}
	if err != nil || found.MAC.String() == l.Place.MAC {
		return found, err
	}
	have, err := space.Addrs.Of(found)
	if err == nil && (l.Lease == nil || !slices.Contains(have, l.Lease.Address)) {
		err = fmt.Errorf("interface %s with the MAC address %s: %w", l.IfName, l.Place.MAC, errGone)
	}
	if err == nil { // servers know the client by the MAC address in its record
		found.MAC, err = net.ParseMAC(l.Place.MAC)
	}
	return found, err
}

// visit calls fn with the namespace in a transaction, which is rolled back if fn fails.
func (o *openLink) visit(ctx context.Context, fn func(*kernel.Space) error) error {
	tx := kernel.Begin(ctx)
	space, err := tx.Open(o.ns)
	if err != nil {
		return err
	}
	defer space.Close()
	if err := fn(space); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	tx.Keep()
	return nil
}

// enter opens the interface of a new lease by the file descriptor that the client passed, or by the
// path, and records its place.
func (h host) enter(ctx context.Context, l *Record, passed *os.File) (*openLink, error) {
	path := h.prefix + l.Place.Path
	if passed != nil {
		path = descriptor(int(passed.Fd()))
	}
	ns, err := kernel.OpenNamespace(path)
	if err != nil {
		return nil, err
	}
	s, err := linkIn(ctx, ns, func(space *kernel.Space) (kernel.Link, error) {
		link, err := space.Links.ByName(l.IfName)
		if err == nil && len(link.MAC) != 6 {
			err = fmt.Errorf("interface %s has no Ethernet MAC address", l.IfName)
		}
		return link, err
	})
	if err != nil {
		return nil, err
	}
	l.Place.NS, l.Place.Index, l.Place.MAC = ns.ID(), s.link.Index, s.link.MAC.String()
	// Links of an ipvlan share a MAC address, so their addresses distinguish them.
	l.Broadcast = s.link.Kind == "ipvlan"
	return s, nil
}

// reachable reports whether find can find the namespace again.
func (h host) reachable(p *Place) bool {
	_, ok := h.path(p)
	return ok
}
