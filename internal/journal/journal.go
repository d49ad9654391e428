// Package journal keeps the last operations of a host on disk: a record for each ADD, DEL, CHECK and
// GC with its time, outcome and objects. Many processes append at the same time without a lock, each
// record with one write. The journal has a fixed number of segments, so its size is bounded, and it
// survives a process or a host that ends at any point: a reader skips incomplete records.
//
// The package knows the format, not its meaning: packages internal/ops/logs and internal/ops/history
// evaluate records. Writers ignore errors, because no operation fails for want of a journal.
package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/internal/statefile"
)

const (
	// DefaultLimit is the default of [Journal.Limit].
	DefaultLimit = 2 << 20
	// Segments is the number of files of a journal.
	Segments = 4
	// MaxRecord is the size of the largest record in bytes.
	MaxRecord = 64 << 10
)

// DefaultDir is the journal of the default state directory. Plugins that another runtime starts
// write there if the directory exists.
const DefaultDir = "/var/lib/cni/tenon/journal"

// Env names the environment variable with the directory of the journal; its value Off means none.
const (
	Env = "TENON_JOURNAL"
	Off = "off"
)

// ErrFull reports that a segment is full and could not be rotated.
var ErrFull = errors.New("journal is full and cannot be rotated")

// Journal is a directory with segments: "journal", to which writers append, and "journal.1" to
// "journal.3", each older than the one before.
type Journal struct {
	Dir    string
	Limit  int64 // of a segment in bytes; zero is DefaultLimit
	Create bool  // Append creates the directory; otherwise it fails without it
}

func (j Journal) limit() int64 {
	if j.Limit == 0 {
		return DefaultLimit
	}
	return j.Limit
}

// path returns the path of a segment; 0 is the current one.
func (j Journal) path(segment int) string {
	if segment == 0 {
		return filepath.Join(j.Dir, "journal")
	}
	return filepath.Join(j.Dir, fmt.Sprintf("journal.%d", segment))
}

// Exists reports whether there is a directory. It spares the work for a record that [Journal.Append]
// cannot write.
func (j Journal) Exists() bool {
	info, err := os.Stat(j.Dir)
	return err == nil && info.IsDir()
}

// Append appends a record. It returns an error wrapping [fs.ErrNotExist] if there is no directory and
// Create is not set.
func (j Journal) Append(r Record) error {
	b, err := r.encode()
	if err != nil {
		return err
	}
	f, err := j.open()
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// open opens the current segment for a write. It rotates a full segment first, unless another
// process does; that process may need some time, so a segment can grow beyond the limit, but not
// beyond twice the limit.
func (j Journal) open() (*os.File, error) {
	f, size, err := j.current()
	if err != nil || size < j.limit() {
		return f, err
	}
	j.rotate(f)
	_ = f.Close() // nothing was written
	f, size, err = j.current()
	if err == nil && size >= 2*j.limit() {
		_ = f.Close()
		return nil, ErrFull
	}
	return f, err
}

// current opens the current segment and returns its size.
func (j Journal) current() (*os.File, int64, error) {
	const flags = os.O_WRONLY | os.O_APPEND | os.O_CREATE
	f, err := statefile.Open(j.path(0), flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) && j.Create {
		if err := os.MkdirAll(j.Dir, 0o700); err != nil {
			return nil, 0, err
		}
		f, err = statefile.Open(j.path(0), flags, 0o600)
	}
	if err != nil {
		return nil, 0, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, size, nil
}

// rotate makes the full segment the second one and removes the oldest. It does nothing if another
// process rotates or has rotated. If the process ends between two renames, one number is unused
// until the next rotation.
func (j Journal) rotate(full *os.File) {
	ended, end := context.WithCancel(context.Background())
	end() // TakeLock takes a free lock even so, and does not wait
	lock, err := statefile.TakeLock(ended, filepath.Join(j.Dir, "lock"), statefile.Exclusive)
	if err != nil {
		return
	}
	defer lock.Release()
	was, err := full.Stat()
	if err != nil {
		return
	}
	if now, err := os.Stat(j.path(0)); err != nil || !os.SameFile(was, now) {
		return
	}
	for i := Segments - 1; i > 0; i-- {
		_ = os.Rename(j.path(i-1), j.path(i)) // fails for a number that is unused
	}
}

// Content is what a journal holds.
type Content struct {
	Records []Record // in the order in which they were written
	Damaged int      // pieces that are not whole records
}

// Begins returns the time of the oldest record, zero without any.
func (c Content) Begins() time.Time {
	if len(c.Records) == 0 {
		return time.Time{}
	}
	return c.Records[0].Time
}

// Read reads all records. A journal that does not exist is empty. If a segment cannot be read, Read
// returns the records of the others and an error.
func (j Journal) Read() (Content, error) {
	var c Content
	files, err := j.segments()
	for _, f := range files {
		b, more, readErr := j.bytes(f, 0)
		err = errors.Join(err, readErr, f.Close())
		found, damaged, rest := decodeAll(b)
		c.Records = append(c.Records, found...)
		c.Damaged += damaged
		if len(rest) > 0 || more {
			c.Damaged++
		}
	}
	return c, err
}

// bytes reads a segment from an offset on. It ignores and reports bytes beyond the size that writers
// respect.
func (j Journal) bytes(f *os.File, offset int64) (b []byte, more bool, err error) {
	most := 3 * j.limit()
	b, err = io.ReadAll(io.NewSectionReader(f, offset, most+1))
	if int64(len(b)) > most {
		return b[:most], true, err
	}
	return b, false, err
}

// segments opens the segments that can be opened, the oldest first. It opens the current one first:
// if a writer rotates the journal meanwhile, one segment appears twice, but none is missed.
func (j Journal) segments() (files []*os.File, err error) {
	var infos []fs.FileInfo
	for i := range Segments {
		f, openErr := statefile.Open(j.path(i), os.O_RDONLY, 0)
		if errors.Is(openErr, fs.ErrNotExist) {
			continue
		}
		if openErr != nil {
			err = errors.Join(err, openErr)
			continue
		}
		info, statErr := f.Stat()
		if statErr != nil || contains(infos, info) {
			err = errors.Join(err, statErr)
			_ = f.Close() // nothing was written
			continue
		}
		infos, files = append(infos, info), append([]*os.File{f}, files...)
	}
	return files, err
}

func contains(infos []fs.FileInfo, info fs.FileInfo) bool {
	return slices.ContainsFunc(infos, func(other fs.FileInfo) bool { return os.SameFile(other, info) })
}
