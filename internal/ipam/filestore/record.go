package filestore

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/ipam"
)

// record is the content of an address file.
type record struct {
	addr  netip.Addr
	key   string // the trimmed content without the namespace; an empty one is debris
	space string // the namespace, or ""
	boot  string // the boot of the reservation; empty if not known
	since time.Time
}

const separator = "\r\n"

// key returns the part of the content of a file that identifies the owner. A file written before
// version 0.7 contains no interface.
func key(o ipam.Owner) string {
	switch {
	case o.Network != "":
		return container(o) + separator + o.IfName + separator + o.Network
	case o.IfName != "":
		return container(o) + separator + o.IfName
	}
	return container(o)
}

// content returns the content of a file of the owner.
func content(o ipam.Owner) string {
	if o.Network == "" || o.Namespace == "" {
		return key(o)
	}
	return key(o) + separator + o.Namespace
}

// parse splits the trimmed content of a file into key and namespace.
func parse(content string) (key, namespace string) {
	const lines = 4
	line := strings.SplitN(content, separator, lines)
	if len(line) < lines {
		return content, ""
	}
	return strings.Join(line[:lines-1], separator), line[lines-1]
}

// container returns the container ID of the owner as it appears in files.
func container(o ipam.Owner) string { return strings.TrimSpace(o.Container) }

// entryOf returns the index entry for an address with this content in its file. The entry depends
// on the container alone, so that it stays valid after a file was rewritten in place in the old
// format, which does not change the modification time of the directory.
func entryOf(a netip.Addr, key string) entry {
	container, _, _ := strings.Cut(key, separator)
	return entry{a, hashOf(container)}
}

func trim(content []byte) string { return string(bytes.TrimSpace(content)) }

// addrOf returns the address that a file with this name reserves. Names in another than the
// canonical form reserve none.
func addrOf(name string) (a netip.Addr, ok bool) {
	a, err := netip.ParseAddr(name)
	return a, err == nil && a.Zone() == "" && !a.Is4In6() && a.String() == name
}

// unread is an address file that could not be read, so that its owner is not known.
type unread struct {
	addr netip.Addr
	err  error
}

// unreadable reports whether a failed read may have hidden a reservation.
func unreadable(err error) bool {
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errStrange) &&
		!errors.Is(err, unix.ELOOP)
}

// Addrs returns the addresses that have a file with any content, also one that cannot be read.
func (s *Store) Addrs() ([]netip.Addr, error) {
	names, err := s.dir.names()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []netip.Addr
	for _, name := range names {
		if a, ok := addrOf(name); ok {
			all = append(all, a)
		}
	}
	return all, nil
}

func (s *Store) read(a netip.Addr) (record, error) {
	f, err := s.dir.read(a.String())
	key, namespace := parse(trim(f.content))
	return record{a, key, namespace, f.boot, f.modified}, err
}

func (s *Store) lease(r record) ipam.Lease {
	container, rest, _ := strings.Cut(r.key, separator)
	ifName, network, _ := strings.Cut(rest, separator)
	o := ipam.Owner{Container: container, IfName: ifName, Network: network, Namespace: r.space}
	l := ipam.Lease{Addr: r.addr, Owner: o, Since: r.since, Age: max(0, time.Since(r.since))}
	switch {
	case s.earlier(r):
		l.Boot = ipam.BootEarlier
	case r.boot != "" && s.boot != "":
		l.Boot = ipam.BootCurrent
	case l.Age > uptime():
		l.Boot = ipam.BootForeignEarlier
	}
	return l
}

// uptime returns the time since the last boot, or the longest duration if it is not known.
func uptime() time.Duration {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return math.MaxInt64
	}
	return time.Duration(info.Uptime) * time.Second
}

// earlier reports whether another boot reserved the address.
func (s *Store) earlier(r record) bool { return r.boot != "" && s.boot != "" && r.boot != s.boot }

// create creates a complete address file. The error wraps fs.ErrExist if it exists.
func (s *Store) create(a netip.Addr, content string) error {
	if err := s.makeOwners(); err != nil {
		return err
	}
	const unfinished = "new"
	if err := s.owners.put(unfinished, []byte(content), s.boot); err != nil {
		return err
	}
	s.dirty = true
	err := unix.Linkat(s.owners.fd, unfinished, s.dir.fd, a.String(), 0)
	_ = s.owners.remove(unfinished) // if this fails, the next put removes the file
	if linksUnsupported(err) {
		return s.dir.create(a.String(), []byte(content), s.boot)
	}
	return s.dir.fail("create", a.String(), err)
}

// linksUnsupported reports whether link(2) failed because the file system has no hard links, such
// as vfat and some network file systems. On these, an address file is created under its final name
// and then written. A process killed in between leaves an empty file and a broken seal, so the next
// operation reads all files and reclaims it.
func linksUnsupported(err error) bool {
	return err == unix.EPERM || err == unix.EOPNOTSUPP || err == unix.ENOSYS
}

// makeOwners creates the hidden directory if it is missing.
func (s *Store) makeOwners() (err error) {
	if s.owners.fd != missing || s.dir.fd == missing {
		return nil
	}
	s.dirty = true
	if err := unix.Mkdirat(s.dir.fd, ownersDir, 0o700); err != nil && err != unix.EEXIST {
		return s.dir.fail("mkdir", ownersDir, err)
	}
	s.owners, err = s.dir.sub(ownersDir)
	return err
}
