package filestore

import (
	"bytes"
	"context"
	"errors"
	"math/bits"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/ipam"
)

// bitmap has a bit for each address of a range, by its offset; a set bit means reserved.
type bitmap []byte

// maxBitmap is the size of the largest range that has a bitmap. A larger range is never nearly
// full, so probing address by address finds a free one at once.
const maxBitmap = 1 << 20

func (m bitmap) set(i uint64) { m[i/8] |= 1 << (i % 8) }

func (m bitmap) count() (n uint64) {
	for _, b := range m {
		n += uint64(bits.OnesCount8(b))
	}
	return n
}

// free returns the lowest offset between from and to with a clear bit.
func (m bitmap) free(from, to uint64) (uint64, bool) {
	for i := from; i <= to; i = i/8*8 + 8 {
		if zeros := ^m[i/8] >> (i % 8); zeros != 0 {
			at := i + uint64(bits.TrailingZeros8(zeros))
			return at, at <= to
		}
	}
	return 0, false
}

// mapMagic begins the file. It ends in a zero byte for the same reason as indexMagic.
var mapMagic = []byte("tenon map v1\n\x00")

func mapName(r ipam.Range) string { return "map." + r.String() }

// mapRange returns the range of a bitmap file name; only Start and End are set.
func mapRange(name string) (r ipam.Range, ok bool) {
	text, ok := strings.CutPrefix(name, "map.")
	start, end, _ := strings.Cut(text, "-")
	var errStart, errEnd error
	r.Start, errStart = netip.ParseAddr(start)
	r.End, errEnd = netip.ParseAddr(end)
	return r, ok && errStart == nil && errEnd == nil
}

// bitmap reads the bitmap of a range of at most maxBitmap addresses, or creates it if it is
// missing.
func (s *Store) bitmap(ctx context.Context, r ipam.Range) (bitmap, error) {
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	size := len(mapMagic) + int(r.Size()+7)/8
	f, err := s.owners.read(mapName(r))
	if err == nil && len(f.content) == size && bytes.HasPrefix(f.content, mapMagic) {
		return f.content[len(mapMagic):], nil
	}
	reserved, err := s.Addrs()
	if err != nil {
		return nil, err
	}
	content := make([]byte, size)
	m := bitmap(content[copy(content, mapMagic):])
	for _, a := range reserved {
		if r.Contains(a) {
			m.set(r.Offset(a))
		}
	}
	if err := s.owners.replace(mapName(r), content); err != nil {
		s.log.Debug("cannot store the bitmap", "err", err)
	}
	return m, nil
}

// mark records in all bitmaps whether an address is reserved. A bitmap that cannot be changed is
// removed.
func (s *Store) mark(a netip.Addr, reserved bool) error {
	return s.eachMap(func(name string, r ipam.Range) error {
		if !r.Contains(a) {
			return nil
		}
		err := s.owners.setBit(name, r.Offset(a), reserved)
		if err != nil {
			return s.owners.remove(name)
		}
		return nil
	})
}

func (s *Store) removeMaps() error {
	return s.eachMap(func(name string, _ ipam.Range) error { return s.owners.remove(name) })
}

func (s *Store) eachMap(do func(name string, r ipam.Range) error) error {
	names, err := s.owners.names()
	errs := []error{err}
	for _, name := range names {
		if r, ok := mapRange(name); ok {
			errs = append(errs, do(name, r))
		}
	}
	return errors.Join(errs...)
}

func (d *dir) setBit(name string, i uint64, to bool) error {
	f, err := d.openFile(name, unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	at := int64(len(mapMagic)) + int64(i/8)
	var b [1]byte
	_, err = f.ReadAt(b[:], at)
	if err == nil {
		b[0] &^= 1 << (i % 8)
		if to {
			b[0] |= 1 << (i % 8)
		}
		_, err = f.WriteAt(b[:], at)
	}
	return errors.Join(err, f.Close())
}
