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

// The index and the bitmaps are valid exactly while the mtime of the directory has the value in the
// index. That value lies in the past, so no change to the directory can produce it: any process
// that adds or removes an address file, including this one, breaks the seal, and this package
// restores it when the caches agree with its own changes. A killed process leaves the seal broken.
// The real time of the last change would not work, because another change within the same tick of
// the kernel's clock has the same time. A visible effect is that the directory seems unchanged for
// a long time; its ctime is correct.

// load makes the caches valid and reads the address files if necessary.
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
		s.log.Info("reclaimed unused addresses", "dir", s.dir.path, "count", len(removed))
	}
	if err != nil && s.index != nil {
		s.log.Warn("cannot reclaim some unused addresses", "err", err)
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
	if err != nil || s.boot == "" || x.head.Boot != bootField(s.boot) || sec != x.head.Mtime ||
		nsec != 0 {
		_ = f.Close()
		return nil
	}
	return x
}

// rebuild reads all address files, removes empty ones and those for which drop returns true, and
// builds the caches. It continues after files that it cannot read, which it keeps in s.unread, and
// after failures to remove a file, which it returns joined. After such failures, and if the caches
// cannot be written, the caches serve this operation only, because an index that lacks an address
// would hide the address from Release while the index is valid. If s.index is nil afterwards,
// rebuild failed as a whole.
func (s *Store) rebuild(
	ctx context.Context, drop func(record) bool,
) (removed []ipam.Lease, err error) {
	addrs, err := s.Addrs()
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
			err := s.forgetting(r)
			if err == nil {
				err = s.change("reclaim "+s.dir.name(a.String()), func() error {
					return s.unlink(a)
				}, nil)
			}
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

// keepCaches writes the index from memory to disk, so that it can be sealed.
func (s *Store) keepCaches() {
	s.index.head.Boot = bootField(s.boot)
	s.index.head.Mtime = time.Now().Add(-time.Hour).Unix() &^ 1 // vfat stores only even seconds
	err := s.makeOwners()
	if err == nil {
		err = s.removeMaps()
	}
	if err == nil {
		err = s.writeIndex()
	}
	if err != nil {
		s.log.Debug("cannot store the index of reservations", "err", err)
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

// remember records in the caches that the address has a file with this key, or no file.
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
		s.log.Debug("cannot update the index of reservations", "err", err)
	}
}

// insert adds an entry to the index and doubles the index if it is full.
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
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT},
		unix.NsecToTimespec(s.index.head.Mtime * int64(time.Second))}
	if err := unix.UtimesNanoAt(s.dir.fd, ".", times, 0); err != nil {
		s.log.Debug("cannot seal the index of reservations", "err", err)
	}
}

func bootField(id string) (field [statefile.MaxBootID]byte) {
	copy(field[:], id)
	return field
}
