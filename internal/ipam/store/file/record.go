package file

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

// record is what an address file says.
type record struct {
	addr  netip.Addr
	key   string // the trimmed content; empty: debris
	boot  string // which boot reserved the address; empty: not known
	since time.Time
}

const separator = "\r\n"

// key is what a file of the owner holds. Without an interface it is that of a file written before 0.7.
func key(o ipam.Owner) string {
	container := strings.TrimSpace(o.Container)
	if o.IfName == "" {
		return container
	}
	return container + separator + o.IfName
}

func trim(content []byte) string { return string(bytes.TrimSpace(content)) }

// addrOf is the address that a file with this name reserves. Names in another form than the canonical one reserve none.
func addrOf(name string) (a netip.Addr, ok bool) {
	a, err := netip.ParseAddr(name)
	return a, err == nil && a.Zone() == "" && !a.Is4In6() && a.String() == name
}

// reserved lists the addresses that have a file, whatever it holds.
func (s *Store) reserved() ([]netip.Addr, error) {
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
	return record{a, trim(f.content), f.boot, f.modified}, err
}

func (s *Store) lease(r record) ipam.Lease {
	container, ifName, _ := strings.Cut(r.key, separator)
	l := ipam.Lease{Addr: r.addr, Owner: ipam.Owner{Container: container, IfName: ifName}, Since: r.since, Age: max(0, time.Since(r.since))}
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

// uptime is the time since the system started, as far as it can be told.
func uptime() time.Duration {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return math.MaxInt64
	}
	return time.Duration(info.Uptime) * time.Second
}

// earlier reports whether another boot reserved the address.
func (s *Store) earlier(r record) bool { return r.boot != "" && s.boot != "" && r.boot != s.boot }

// create makes an address file, complete. The error matches fs.ErrExist if there is one.
func (s *Store) create(a netip.Addr, key string) error {
	if err := s.makeOwners(); err != nil {
		return err
	}
	const unfinished = "new"
	if err := s.owners.put(unfinished, []byte(key), s.boot); err != nil {
		return err
	}
	s.dirty = true
	err := unix.Linkat(s.owners.fd, unfinished, s.dir.fd, a.String(), 0)
	_ = s.owners.remove(unfinished) // if it stays, the next put removes it
	return s.dir.fail("create", a.String(), err)
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
