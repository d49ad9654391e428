package filestore

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
	"net/netip"
	"os"

	"github.com/tenon-cni/tenon/internal/statefile"
)

// index finds the address files of a container. It is a hash table with linear probing, in a file
// or, if that cannot be written, in memory. It contains the hash of the container ID, not the ID,
// so the caller must check the files that it finds.
type index struct {
	table interface {
		io.ReaderAt
		io.WriterAt
	}
	head   header
	broken bool // a change could not be written
}

// header begins the table and is padded to headerSize. All numbers are little endian.
type header struct {
	Magic [16]byte
	Boot  [statefile.MaxBootID]byte // the boot that wrote the table
	Mtime int64                     // mtime of the directory while the table is valid, in seconds
	Slots uint64                    // a power of two
	Used  uint64                    // slots that are not empty
}

const (
	indexName  = "index"
	headerSize = 128
	slotSize   = 32
	minSlots   = 256
)

// indexMagic ends in a zero byte, because upstream compares all files below the directory with
// container IDs.
var indexMagic = [16]byte([]byte("tenon index v2\n\x00"))

// slot is an entry of the table in memory order: address, hash, state.
type slot struct {
	entry
	state uint64
}

const (
	empty uint64 = iota
	live
	freed // like empty, but a search continues
)

// entry maps a container, by the hash of its ID, to the address of a file that names it.
type entry struct {
	addr netip.Addr
	hash uint64
}

func hashOf(container string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, container)
	return h.Sum64()
}

// memory is a table in memory, temporary or before it is written to a file.
type memory []byte

func (m memory) ReadAt(b []byte, off int64) (int, error)  { return copy(b, m[off:]), nil }
func (m memory) WriteAt(b []byte, off int64) (int, error) { return copy(m[off:], b), nil }

// newIndex returns a table that is at most half full.
func newIndex(entries []entry) *index {
	slots := uint64(minSlots)
	for slots < 2*uint64(len(entries)) {
		slots *= 2
	}
	x := &index{table: make(memory, headerSize+slots*slotSize),
		head: header{Magic: indexMagic, Slots: slots}}
	for _, e := range entries {
		_ = x.insert(e) // memory never fails, and the table has room
	}
	return x
}

// readIndex reads the header of the table in f.
func readIndex(f *os.File) (*index, error) {
	x := &index{table: f}
	var b [headerSize]byte
	if _, err := f.ReadAt(b[:], 0); err != nil {
		return nil, err
	}
	if _, err := binary.Decode(b[:], binary.LittleEndian, &x.head); err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	n := x.head.Slots
	if x.head.Magic != indexMagic || n == 0 || n&(n-1) != 0 ||
		st.Size() != int64(headerSize+n*slotSize) {
		return nil, errors.New("not an index")
	}
	return x, nil
}

func (x *index) close() error {
	if f, ok := x.table.(*os.File); ok {
		return f.Close()
	}
	return nil
}

// lookup returns the addresses that may belong to a key.
func (x *index) lookup(hash uint64) (found []netip.Addr, err error) {
	err = x.search(hash, func(_ uint64, s slot) bool {
		if s.state == live && s.hash == hash {
			found = append(found, s.addr)
		}
		return true
	})
	return found, err
}

// errFull reports that the table must grow first.
var errFull = errors.New("index is full")

func (x *index) insert(e entry) error {
	place, state, present := uint64(0), live, false
	err := x.search(e.hash, func(at uint64, s slot) bool {
		if s.state != live && state == live {
			place, state = at, s.state
		}
		present = s.state == live && s.entry == e
		return !present
	})
	switch {
	case err != nil || present:
		return err
	case state == live || state == empty && (x.head.Used+1)*4 > x.head.Slots*3:
		return errFull
	case state == empty:
		x.head.Used++
		if err := x.writeHeader(); err != nil {
			return err
		}
	}
	return x.write(place, slot{e, live})
}

func (x *index) remove(e entry) error {
	var failed error
	err := x.search(e.hash, func(at uint64, s slot) bool {
		if s.state != live || s.entry != e {
			return true
		}
		failed = x.write(at, slot{e, freed})
		return false
	})
	return errors.Join(err, failed)
}

// search visits the slots that can contain entries with this hash, up to and including the next
// empty one, until visit returns false.
func (x *index) search(hash uint64, visit func(at uint64, s slot) bool) error {
	var b [slotSize]byte
	for i := range x.head.Slots {
		at := (hash + i) & (x.head.Slots - 1)
		if _, err := x.table.ReadAt(b[:], offset(at)); err != nil {
			return err
		}
		s := decodeSlot(b[:])
		if !visit(at, s) || s.state == empty {
			return nil
		}
	}
	return nil
}

// entries returns the entries of the table.
func (x *index) entries() ([]entry, error) {
	b := make([]byte, x.head.Slots*slotSize)
	if _, err := x.table.ReadAt(b, offset(0)); err != nil {
		return nil, err
	}
	var all []entry
	for ; len(b) > 0; b = b[slotSize:] {
		if s := decodeSlot(b); s.state == live {
			all = append(all, s.entry)
		}
	}
	return all, nil
}

func offset(at uint64) int64 { return headerSize + int64(at)*slotSize }

func decodeSlot(b []byte) slot {
	addr := netip.AddrFrom16([16]byte(b)).Unmap()
	return slot{entry{addr, binary.LittleEndian.Uint64(b[16:])}, binary.LittleEndian.Uint64(b[24:])}
}

func (x *index) write(at uint64, s slot) error {
	addr := s.addr.As16()
	b := binary.LittleEndian.AppendUint64(addr[:], s.hash)
	b = binary.LittleEndian.AppendUint64(b, s.state)
	_, err := x.table.WriteAt(b, offset(at))
	return err
}

func (x *index) writeHeader() error {
	b, err := binary.Append(nil, binary.LittleEndian, x.head)
	if err == nil {
		_, err = x.table.WriteAt(b, 0)
	}
	return err
}
