package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"

	"golang.org/x/sys/unix"
)

func cursorName(set int) string { return fmt.Sprintf("last_reserved_ip.%d", set) }

// Last implements [ipam.Reservations]. As upstream, it treats a file without an address as unknown.
func (s *Store) Last(_ context.Context, set int) (netip.Addr, error) {
	f, err := s.dir.read(cursorName(set))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("cannot read the last reserved address", "err", err)
	}
	a, err := netip.ParseAddr(string(f.content))
	if err != nil {
		return netip.Addr{}, nil
	}
	return a.Unmap(), nil
}

func (s *Store) setLast(set int, a netip.Addr) error {
	name := cursorName(set)
	old, err := s.dir.read(name)
	undo := func() error { return s.dir.overwrite(name, old.content) }
	if errors.Is(err, fs.ErrNotExist) {
		undo = func() error { return s.dir.remove(name) }
	}
	apply := func() error {
		err := s.dir.overwrite(name, []byte(a.String()))
		if err != nil {
			_ = undo()
		}
		return err
	}
	return s.change("write "+s.dir.name(name), apply, undo)
}

// overwrite writes in place: a new file would cost an inode per reservation, and a mixture of two
// addresses that a killed process leaves only makes the next search begin elsewhere.
func (d *dir) overwrite(name string, content []byte) error {
	f, err := d.openFile(name, unix.O_WRONLY|unix.O_CREAT, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(content, 0)
	return errors.Join(err, f.Truncate(int64(len(content))), f.Close())
}
