package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

	"github.com/tenon-cni/tenon/internal/ipam"
)

// Held implements [ipam.Reservations].
func (s *Store) Held(ctx context.Context, o ipam.Owner) ([]ipam.Lease, error) {
	records, lost, err := s.held(ctx, o)
	for _, u := range lost {
		s.log.Warn("skipped an address", "err", u.err)
	}
	var leases []ipam.Lease
	for _, r := range records {
		leases = append(leases, s.lease(r))
	}
	return leases, err
}

// held returns, sorted by address, the records of exactly this owner or, if there are none, the
// records of only its container. The files in lost probably belong to the container, too.
func (s *Store) held(
	ctx context.Context, o ipam.Owner,
) (records []record, lost []unread, err error) {
	if err := s.load(ctx); err != nil {
		return nil, nil, err
	}
	addrs, err := s.index.lookup(entryOf(netip.Addr{}, key(o)).hash)
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	byKey := map[string][]record{}
	for _, a := range addrs {
		r, err := s.read(a)
		if err == nil {
			byKey[r.key] = append(byKey[r.key], r)
		} else if unreadable(err) {
			lost = append(lost, unread{a, err})
		}
	}
	if records = byKey[key(o)]; records == nil {
		records = byKey[container(o)]
	}
	return records, lost, nil
}

// NextFree implements [ipam.Reservations].
func (s *Store) NextFree(
	ctx context.Context, r ipam.Range, from, to netip.Addr,
) (netip.Addr, error) {
	if r.Size() > maxBitmap {
		return s.probe(ctx, from, to)
	}
	m, err := s.bitmap(ctx, r)
	if err != nil {
		return netip.Addr{}, err
	}
	at, ok := m.free(r.Offset(from), r.Offset(to))
	if !ok {
		return netip.Addr{}, nil
	}
	a, _ := r.At(at)
	return a, nil
}

// Taken reports whether an address has a file, even one that cannot be read.
func (s *Store) Taken(ctx context.Context, a netip.Addr) (bool, error) {
	free, err := s.probe(ctx, a, a)
	return err == nil && !free.IsValid(), err
}

// probe tests one address after another for a file.
func (s *Store) probe(ctx context.Context, from, to netip.Addr) (netip.Addr, error) {
	if err := s.load(ctx); err != nil {
		return netip.Addr{}, err
	}
	for a := from; a.IsValid() && !to.Less(a); a = a.Next() {
		if ctx.Err() != nil {
			return netip.Addr{}, context.Cause(ctx)
		}
		if _, err := s.dir.stat(a.String()); errors.Is(err, fs.ErrNotExist) {
			return a, nil
		}
	}
	return netip.Addr{}, nil
}

// Reserve implements [ipam.Reservations].
func (s *Store) Reserve(ctx context.Context, set int, a netip.Addr, o ipam.Owner) error {
	if err := s.load(ctx); err != nil {
		return err
	}
	apply := func() error { return s.add(a, o) }
	undo := func() error { return s.drop(a, key(o)) }
	if err := s.change("reserve "+s.dir.name(a.String())+" for "+o.String(), apply,
		undo); err != nil {
		return err
	}
	return s.setLast(set, a)
}

func (s *Store) add(a netip.Addr, o ipam.Owner) error {
	err := s.create(a, content(o))
	if errors.Is(err, fs.ErrExist) {
		r, err := s.read(a)
		if err != nil {
			s.log.Debug("cannot read the holder", "err", err)
		}
		r.addr = a
		return &ipam.InUseError{Holder: s.lease(r)}
	}
	if err == nil {
		s.remember(entryOf(a, key(o)), true)
	}
	return err
}

func (s *Store) drop(a netip.Addr, key string) error {
	if err := s.unlink(a); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.remember(entryOf(a, key), false)
	return nil
}

// Release implements [ipam.Store].
func (s *Store) Release(ctx context.Context, o ipam.Owner) error {
	records, lost, err := s.held(ctx, o)
	errs := []error{err}
	families := map[bool]bool{}
	for _, r := range records {
		errs = append(errs, s.release(r))
		families[r.addr.Is4()] = true
	}
	for _, u := range s.unread {
		if !families[u.addr.Is4()] {
			lost = append(lost, u)
		}
	}
	for _, u := range lost {
		errs = append(errs, u.err)
	}
	return errors.Join(errs...)
}

// forgetting calls the function of the options before the reservation in r is removed permanently.
func (s *Store) forgetting(r record) error {
	if s.forget == nil || r.key == "" {
		return nil
	}
	return s.forget(s.lease(r))
}

// release frees the address of r permanently.
func (s *Store) release(r record) error {
	if err := s.forgetting(r); err != nil {
		return err
	}
	op := "release " + s.dir.name(r.addr.String()) + " held by " + s.lease(r).Owner.String()
	return s.change(op, func() error { return s.drop(r.addr, r.key) }, nil)
}

// Free frees the address of a lease unless another owner holds it now. It succeeds if the address
// is already free.
func (s *Store) Free(ctx context.Context, l ipam.Lease) error {
	if err := s.load(ctx); err != nil {
		return err
	}
	r, err := s.read(l.Addr)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if holder := s.lease(r); !holder.Owner.Is(l.Owner) {
		return fmt.Errorf("not released: %s", holder)
	}
	return s.release(r)
}

// Collect implements [ipam.Store].
func (s *Store) Collect(ctx context.Context, keep []ipam.Owner) ([]ipam.Lease, error) {
	kept := map[string]bool{}
	for _, o := range keep {
		kept[key(o)] = true
		kept[key(ipam.Owner{Container: o.Container})] = true
	}
	freed, err := s.rebuild(ctx, func(r record) bool { return !kept[r.key] })
	errs := []error{err}
	for _, u := range s.unread {
		errs = append(errs, u.err)
	}
	return freed, errors.Join(errs...)
}

// Leases implements [ipam.Store].
func (s *Store) Leases(ctx context.Context) ([]ipam.Lease, error) {
	addrs, err := s.Addrs()
	if err != nil {
		return nil, err
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	var leases []ipam.Lease
	for _, a := range addrs {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		r, err := s.read(a)
		if err != nil {
			s.log.Warn("skipped an address", "err", err)
			continue
		}
		leases = append(leases, s.lease(r))
	}
	return leases, nil
}

// Survey implements [ipam.Reservations].
func (s *Store) Survey(
	ctx context.Context, set ipam.RangeSet, n int,
) (used uint64, oldest []ipam.Lease, err error) {
	addrs, err := s.Addrs()
	if err != nil {
		return 0, nil, err
	}
	addrs = slices.DeleteFunc(addrs, func(a netip.Addr) bool { return !set.Usable(a) })
	if uint64(len(addrs)) < set.Capacity() {
		if err := s.removeMaps(); err != nil {
			s.log.Debug("cannot remove outdated bitmaps", "err", err)
		}
	}
	used = uint64(len(addrs))
	s.sortByAge(addrs)
	for _, a := range addrs[:min(n, len(addrs))] {
		if r, err := s.read(a); err == nil {
			oldest = append(oldest, s.lease(r))
		}
	}
	return used, oldest, nil
}

// sortByAge sorts by modification time. Files written within one tick of the kernel's clock have
// the same time and are sorted by address.
func (s *Store) sortByAge(addrs []netip.Addr) {
	modified := make(map[netip.Addr]int64, len(addrs))
	for _, a := range addrs {
		if st, err := s.dir.stat(a.String()); err == nil {
			modified[a] = st.Mtim.Nano()
		}
	}
	slices.SortFunc(addrs, func(a, b netip.Addr) int {
		return cmp.Or(cmp.Compare(modified[a], modified[b]), a.Compare(b))
	})
}

// Used implements [ipam.Store].
func (s *Store) Used(ctx context.Context, r ipam.Range) (uint64, error) {
	if r.Size() <= maxBitmap {
		m, err := s.bitmap(ctx, r)
		return m.count(), err
	}
	addrs, err := s.Addrs()
	addrs = slices.DeleteFunc(addrs, func(a netip.Addr) bool { return !r.Contains(a) })
	return uint64(len(addrs)), err
}
