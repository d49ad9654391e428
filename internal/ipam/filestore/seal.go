package filestore

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// The index and the bitmaps are valid exactly while the mtime of the directory has the value that the index names.
// That value lies in the past, so no change to the directory can produce it: whoever adds or removes an address file,
// we included, breaks the seal, and we put it back when the caches agree with our own changes. A killed process
// leaves it broken. The real time of our last change would not do: another change within the same tick of the
// kernel's clock has the same. What users see of this is a directory that seems unchanged for long; its ctime is
// right.

// load makes the caches valid, from the address files if need be.
func (s *Store) load(ctx context.Context) error {
	if s.index != nil {
		return nil
	}
	if x := s.sealed(); x != nil {
		s.index = x
		return nil
	}
	removed, err := s.rebuild(ctx, func(record) bool { return false })
	if len(removed) > 0 {
		s.log.Info("reclaimed addresses that nobody holds", "dir", s.dir.path, "count", len(removed))
	}
	if err != nil && s.index != nil {
		s.log.Warn("some addresses that nobody holds could not be reclaimed", "err", err)
		err = nil
	}
	return err
}

// sealed opens the index if it is valid in this boot.
func (s *Store) sealed() *index {
	f, err := s.owners.openFile(indexName, unix.O_RDWR, 0)
	if err != nil {
		return nil
	}
	x, err := readIndex(f)
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(s.dir.fd, &st)
	}
	sec, nsec := st.Mtim.Unix()
	if err != nil || s.boot == "" || x.head.Boot != bootField(s.boot) || sec != x.head.Mtime || nsec != 0 {
		_ = f.Close()
		return nil
	}
	return x
}

// rebuild reads all address files, removes empty ones and those for which drop returns true, and
// makes the caches anew. It continues past files that it cannot read, which it keeps in s.unread,
// and past failures to remove one, which it returns joined. After either, and when the caches cannot
// be written, they serve this operation only: an index that lacks an address would hide it from
// Release for as long as the index is valid. Without a new index rebuild failed as a whole.
func (s *Store) rebuild(ctx context.Context, drop func(record) bool) (removed []ipam.Lease, err error) {
	addrs, err := s.reserved()
	if err != nil {
		return nil, err
	}
	s.unread = nil
	var kept []entry
	var errs []error
	for _, a := range addrs {
		if ctx.Err() != nil {
			return removed, context.Cause(ctx)
		}
		r, err := s.read(a)
		if err != nil {
			s.log.Warn("skipped an address", "err", err)
			if unreadable(err) {
				s.unread = append(s.unread, unread{a, err})
			}
			continue
		}
		if r.key == "" || s.earlier(r) || drop(r) {
			err := s.change("reclaim "+s.dir.name(a.String()), func() error { return s.unlink(a) }, nil)
			if err == nil {
				removed = append(removed, s.lease(r))
				continue
			}
			errs = append(errs, err)
		}
		kept = append(kept, entryOf(a, r.key))
	}
	s.setIndex(newIndex(kept))
	if errs == nil && s.unread == nil {
		s.keepCaches()
	}
	return removed, errors.Join(errs...)
}

func (s *Store) unlink(a netip.Addr) error {
	s.dirty = true
	return s.dir.remove(a.String())
}

func (s *Store) setIndex(x *index) {
	if s.index != nil {
		_ = s.index.close()
	}
	s.index = x
}

// keepCaches writes the index in memory to disk, to be sealed.
func (s *Store) keepCaches() {
	s.index.head.Boot = bootField(s.boot)
	s.index.head.Mtime = time.Now().Add(-time.Hour).Unix() &^ 1 // vfat has even seconds only
	err := s.makeOwners()
	if err == nil {
		err = s.removeMaps()
	}
	if err == nil {
		err = s.writeIndex()
	}
	if err != nil {
		s.log.Debug("index of reservations is not kept", "err", err)
	}
}

// writeIndex moves the index from memory to its file.
func (s *Store) writeIndex() error {
	s.dirty = true
	if err := s.index.writeHeader(); err != nil {
		return err
	}
	if err := s.owners.replace(indexName, s.index.table.(memory)); err != nil {
		return err
	}
	f, err := s.owners.openFile(indexName, unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	s.index.table = f
	return nil
}

// remember notes in the caches that the address has a file with this key, or that it has none any more.
func (s *Store) remember(e entry, reserved bool) {
	err := s.mark(e.addr, reserved)
	if err == nil && reserved {
		err = s.insert(e)
	}
	if err == nil && !reserved {
		err = s.index.remove(e)
	}
	if err != nil {
		s.index.broken = true
		s.log.Debug("index of reservations is not kept", "err", err)
	}
}

// insert adds to the index, which doubles when it is full.
func (s *Store) insert(e entry) error {
	err := s.index.insert(e)
	if !errors.Is(err, errFull) {
		return err
	}
	entries, err := s.index.entries()
	if err != nil {
		return err
	}
	_, onDisk := s.index.table.(*os.File)
	larger := newIndex(append(entries, e))
	larger.head.Boot, larger.head.Mtime = s.index.head.Boot, s.index.head.Mtime
	s.setIndex(larger)
	if onDisk {
		return s.writeIndex()
	}
	return nil
}

// seal makes the caches valid for the next operation if they agree with the directory.
func (s *Store) seal() {
	if s.index == nil || s.index.broken || !s.dirty {
		return
	}
	if _, onDisk := s.index.table.(*os.File); !onDisk {
		return
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(s.index.head.Mtime * int64(time.Second))}
	if err := unix.UtimesNanoAt(s.dir.fd, ".", times, 0); err != nil {
		s.log.Debug("index of reservations is not kept", "err", err)
	}
}

func bootField(id string) (field [statefile.MaxBootID]byte) {
	copy(field[:], id)
	return field
}
