package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Follow calls f with the records of the journal, and then with new ones whenever they are written,
// until ctx ends or f returns an error. It returns nil when ctx ends, and an error wrapping
// [fs.ErrNotExist] if there is no journal.
func (j Journal) Follow(ctx context.Context, f func([]Record) error) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("inotify: %w", err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer events.Close()
	const mask = unix.IN_MODIFY | unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_ONLYDIR
	if _, err := unix.InotifyAddWatch(fd, j.Dir, mask); err != nil {
		return &fs.PathError{Op: "watch", Path: j.Dir, Err: err}
	}
	defer context.AfterFunc(ctx, func() { events.Close() })() // ends a Read in progress
	c := cursor{journal: j}
	buf := make([]byte, 4<<10)
	for first := true; ; first = false {
		found, err := c.next()
		if err != nil {
			return err
		}
		if len(found) > 0 || first {
			if err := f(found); err != nil {
				return err
			}
		}
		if _, err := events.Read(buf); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("inotify: %w", err)
		}
	}
}

// cursor is a position in a journal.
type cursor struct {
	journal Journal
	segment fs.FileInfo // that contains the position; nil before the first segment
	offset  int64
}

// next returns the records after the position, also of segments that a rotation has added, and moves
// the position behind the last whole one. It returns all records if the segment with the position no
// longer exists.
func (c *cursor) next() (found []Record, err error) {
	files, err := c.journal.segments()
	for i, file := range files {
		info, statErr := file.Stat()
		err = errors.Join(err, statErr)
		if statErr == nil && c.at(info) { // read the segments before it earlier
			closeAll(files[:i])
			files = files[i:]
			break
		}
	}
	defer closeAll(files)
	for _, file := range files {
		if err != nil {
			return nil, err
		}
		var more []Record
		more, err = c.read(file)
		found = append(found, more...)
	}
	return found, err
}

// at reports whether the position is in a segment.
func (c *cursor) at(segment fs.FileInfo) bool {
	return c.segment != nil && os.SameFile(segment, c.segment) && c.offset <= segment.Size()
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // only read
	}
}

// read reads the records of one segment after the position, or all if the position is elsewhere.
func (c *cursor) read(file *os.File) ([]Record, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !c.at(info) {
		c.offset = 0
	}
	c.segment = info
	b, _, err := c.journal.bytes(file, c.offset)
	found, _, rest := decodeAll(b)
	c.offset += int64(len(b) - len(rest))
	return found, err
}
