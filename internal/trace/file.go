package trace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// maxFile is the size in bytes above which the file gets no more spans.
const maxFile = 64 << 20

// Open makes calls with the returned context record their spans at the end of a file, which it
// creates with mode 0600. The file must have an absolute path and be a regular file of this user
// with no other name, not a symbolic link, and must contain nothing but spans. parent is the
// traceparent of the span that the calls belong to, or "". warn is called with the first error of a
// later write; spans that cannot be written are lost. The caller must call done.
func Open(
	ctx context.Context, path, parent string, warn func(error),
) (traced context.Context, done func(), err error) {
	if !filepath.IsAbs(path) {
		return ctx, nil, fmt.Errorf("%s %q: the path must be absolute", Variable, path)
	}
	f, err := open(path)
	var size int64
	if err == nil {
		if size, err = usable(f); err != nil {
			f.Close()
		}
	}
	if err != nil {
		return ctx, nil, fmt.Errorf("%s: %w", Variable, err)
	}
	to := &recorder{file: f, size: size, warn: warn, start: time.Now(), mono: monotonic(),
		flags: "01"}
	root := &Span{to: to}
	if len(parent) >= len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01") {
		root.record.Trace, root.record.ID, to.flags = parent[3:35], parent[36:52], parent[53:55]
	}
	return with(ctx, root), func() { f.Close() }, nil
}

// errFull returns the error for a file that gets no more spans.
func errFull() error { return fmt.Errorf("it has reached %d MiB", maxFile>>20) }

// usable returns the size of f, and an error unless f is the file of a trace.
func usable(f *os.File) (size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if err := private(info); err != nil {
		return 0, refused(f, err)
	}
	begin := make([]byte, len(Beginning))
	n, err := f.ReadAt(begin, 0)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return 0, err
	case n > 0 && string(begin) != Beginning:
		return 0, refused(f, errors.New("it is not the file of a trace"))
	case info.Size() > maxFile:
		return 0, refused(f, errFull())
	}
	if info.Mode().Perm()&0o077 == 0 {
		return info.Size(), nil
	}
	return info.Size(), f.Chmod(0o600)
}

func refused(f *os.File, reason error) error {
	return &os.PathError{Op: "append to", Path: f.Name(), Err: reason}
}

// write appends a record with one write, so that lines of concurrent processes do not mix.
func (to *recorder) write(r Record) {
	if to.failed {
		return
	}
	n, err := to.file.Write(r.encode(to.hidden))
	if to.size += int64(n); err == nil && to.size > maxFile {
		err = refused(to.file, errFull())
	}
	if err != nil {
		to.failed = true
		to.warn(fmt.Errorf("%s: %w", Variable, err))
	}
}
