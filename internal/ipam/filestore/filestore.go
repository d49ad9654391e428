// Package filestore keeps reservations as files, in the layout of the upstream host-local plugin:
// both implementations can work in one directory at the same time, and each can take over from the
// other. It does not decide which address to reserve.
//
//	DIR/NETWORK/
//	    ADDRESS              container ID CR LF interface name [CR LF network [CR LF namespace]]
//	    last_reserved_ip.N   the address that was last reserved for range set N
//	    lock                 flock(2) target
//	    .owners/             read only by this package
//	        index            hash of the container ID in an address file → address
//	        map.START-END    one bit per address of a range, set if the address is reserved
//	        new              the next address file, until it is complete
//
// Only plugins other than host-local write the lines of network and namespace; see [ipam.Owner].
//
// Only the address files count. They are created complete, so an empty one is left from a killed
// process or a full disk, and is removed. The extended attribute user.tenon.boot names the boot in
// which the address was reserved; reservations of another boot are removed, because no network
// namespace survives a boot. The directory therefore belongs to one host.
//
// The index and the bitmaps are caches that make the cost of an operation independent of the number
// of reservations; seal.go explains when they are valid. Nothing is synced to disk: after a power
// failure the boot differs and all files are read again.
package filestore

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/ipam"
)

// Options selects a store and how it is opened.
type Options struct {
	Dir     string // contains the directories of all networks
	Network string // a valid network name
	Create  bool   // create a missing directory, which otherwise is an empty store
	Peek    bool   // read without waiting for the lock; see Open
	// ID of the running boot, at most 64 bytes; without it no reservation is outdated
	BootID string
	Change ipam.Change  // makes the changes to reservations; nil makes them at once and permanently
	Log    *slog.Logger // receives warnings and the number of reclaimed addresses; may be nil
	// Forget is called before a complete reservation is removed permanently: by Release, Free and
	// Collect, and as outdated. If it returns an error, the reservation stays. It may be nil.
	Forget func(ipam.Lease) error
}

// ownersDir is hidden so that listings of a network's directory equal upstream's.
const ownersDir = ".owners"

// Store implements [ipam.Store].
type Store struct {
	dir    *dir     // the directory of the network
	lock   *os.File // nil if dir is missing
	owners *dir     // the hidden directory in dir
	index  *index   // nil until load
	unread []unread // after a rebuild: files with an unknown owner
	dirty  bool     // this process has changed dir
	closed bool
	boot   string
	change ipam.Change
	forget func(ipam.Lease) error
	log    *slog.Logger
}

var _ ipam.Store = (*Store)(nil)

// Open locks the directory of the network and waits for other processes as long as ctx allows. With
// Peek it never waits, and does not create the lock: if another process has the lock, or there is
// none, the store shows the current address files, including reservations of an earlier boot, and
// cannot be changed. Errors contain the path.
func Open(ctx context.Context, o Options) (*Store, error) {
	s := &Store{boot: o.BootID, change: o.Change, forget: o.Forget, log: o.Log}
	if s.change == nil {
		s.change = func(_ string, apply, _ func() error) error { return apply() }
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	path := filepath.Join(o.Dir, o.Network)
	flags, wait := unix.O_CREAT, func(f *os.File) error { return await(ctx, f) }
	if o.Peek {
		flags, wait = 0, giveUp
	}
	var err error
	s.dir, s.lock, err = openLocked(path, flags, wait)
	for o.Create && errors.Is(err, fs.ErrNotExist) {
		if err := s.change("create "+path, func() error {
			return os.MkdirAll(path, 0o755)
		}, nil); err != nil {
			return nil, err
		}
		s.dir, s.lock, err = openLocked(path, flags, wait)
	}
	// A directory with a name of more than 255 bytes cannot exist.
	if errors.Is(err, fs.ErrNotExist) || !o.Create && errors.Is(err, unix.ENAMETOOLONG) {
		s.dir, err = &dir{missing, path}, nil
	}
	if errors.Is(err, errBusy) {
		s.change = func(string, func() error, func() error) error { return err }
		// another process may be changing the caches
		s.owners, s.index = &dir{missing, path}, newIndex(nil)
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	if s.owners, err = s.dir.sub(ownersDir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("cannot use the index of reservations", "err", err)
	}
	return s, nil
}

// Close makes the caches valid and unlocks the directory. Closing again does nothing.
func (s *Store) Close() error {
	if !s.closed {
		s.seal()
	}
	return s.Abandon()
}

// Abandon unlocks the directory like the end of the process: the caches are not valid afterwards.
// It does nothing after Close, so that it can be deferred for the case of a panic.
func (s *Store) Abandon() error {
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	if s.index != nil {
		errs = append(errs, s.index.close())
	}
	s.owners.close()
	s.dir.close()
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}
