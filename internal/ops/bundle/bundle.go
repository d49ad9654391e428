// Package bundle collects what a maintainer needs to find a problem on a host that they cannot
// reach, in one archive. It collects by an allow-list: values of keys that Tenon does not know, and
// arguments of runtimes, never enter a bundle.
package bundle

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// Source is a file of a bundle and the way to read its content.
type Source struct {
	Name  string // "net.d/10-pods.conflist"
	About string // one line for the reader
	// Read returns the content and the number of values that it masked. It must obey ctx.
	Read func(ctx context.Context) (content []byte, masked int, err error)
}

// File is a file of a bundle.
type File struct {
	Name    string `json:"name"`
	About   string `json:"about"`
	Size    int    `json:"size"` // bytes, before compression
	Masked  int    `json:"masked"`
	content []byte
}

// Failure is a source that could not be read.
type Failure struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Bundle is the content of an archive.
type Bundle struct {
	Name     string    `json:"name"` // of the archive without suffix, and of its only directory
	Time     time.Time `json:"time"`
	Files    []File    `json:"files"`
	Failures []Failure `json:"failures,omitzero"`
}

// Deadline limits each source, so that a daemon that hangs costs its own file only.
const Deadline = 10 * time.Second

// MaxFile is the size in bytes at which the content of a file is cut.
const MaxFile = 32 << 20

// Collect reads all sources side by side. It calls done, which may be nil, after each, one call at a
// time. The bundle lists sources that fail, and contains their reasons.
func Collect(ctx context.Context, host string, now time.Time, sources []Source, done func(name string)) *Bundle {
	b := &Bundle{Name: "tenon-" + fileName(host) + "-" + now.UTC().Format("20060102-150405"), Time: now.UTC()}
	files := make([]*File, len(sources))
	failures := make([]*Failure, len(sources))
	var running sync.WaitGroup
	var one sync.Mutex
	for i, s := range sources {
		running.Go(func() {
			f, err := s.collect(ctx)
			one.Lock()
			defer one.Unlock()
			files[i] = f
			if err != nil {
				failures[i] = &Failure{s.Name, err.Error()}
			}
			if done != nil {
				done(s.Name)
			}
		})
	}
	running.Wait()
	for i := range sources {
		if files[i] != nil {
			b.Files = append(b.Files, *files[i])
		}
		if failures[i] != nil {
			b.Failures = append(b.Failures, *failures[i])
		}
	}
	b.Files = append(b.Files, b.log())
	b.Files = slices.Insert(b.Files, 0, b.readme())
	return b
}

// collect reads a source. A source that crashes is a failure like any other.
func (s Source) collect(ctx context.Context) (*File, error) {
	ctx, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	type outcome struct {
		file *File
		err  error
	}
	ended := make(chan outcome, 1)
	go func() {
		defer func() {
			if cause := recover(); cause != nil {
				ended <- outcome{nil, fmt.Errorf("crashed: %v", cause)}
			}
		}()
		content, masked, err := s.Read(ctx)
		if len(content) > MaxFile {
			content = content[:MaxFile]
			err = errors.Join(err, fmt.Errorf("cut after %d bytes", MaxFile))
		}
		if err != nil && len(content) == 0 {
			ended <- outcome{nil, err}
			return
		}
		ended <- outcome{&File{s.Name, s.About, len(content), masked, content}, err}
	}()
	select {
	case o := <-ended:
		return o.file, o.err
	case <-ctx.Done():
		return nil, fmt.Errorf("not finished after %v", Deadline)
	}
}

// log returns the log of the collection as a file.
func (b *Bundle) log() File {
	var text strings.Builder
	fmt.Fprintf(&text, "collected at %s\n", b.Time.Format(time.RFC3339))
	for _, f := range b.Files {
		fmt.Fprintf(&text, "%s: %d bytes, %d values masked\n", f.Name, f.Size, f.Masked)
	}
	for _, f := range b.Failures {
		fmt.Fprintf(&text, "%s: FAILED: %s\n", f.Name, f.Reason)
	}
	return newFile("collector.log", "the files, and failures of the collection", text.String())
}

// readme explains the files to the reader.
func (b *Bundle) readme() File {
	var text strings.Builder
	text.WriteString(`This archive was written by "tenon support-bundle".

Values of configuration keys that Tenon does not know, CNI_ARGS except K8S_POD_*,
and arguments of runtimes are masked. "tenon doctor --from FILE" evaluates the
state on another host.

`)
	for _, f := range b.Files {
		fmt.Fprintf(&text, "%-28s %s\n", f.Name, f.About)
	}
	return newFile("README.txt", "this text", text.String())
}

func newFile(name, about, text string) File {
	return File{Name: name, About: about, Size: len(text), content: []byte(text)}
}

// Masked returns the number of values that were masked.
func (b *Bundle) Masked() (n int) {
	for _, f := range b.Files {
		n += f.Masked
	}
	return n
}

// Size returns the size of all files in bytes.
func (b *Bundle) Size() (n int) {
	for _, f := range b.Files {
		n += f.Size
	}
	return n
}

// Write writes the bundle as a compressed tar archive. Its files belong to root and have mode 0600.
func (b *Bundle) Write(w io.Writer) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, f := range b.Files {
		err := t.WriteHeader(&tar.Header{
			Name: b.Name + "/" + f.Name, Mode: 0o600, Size: int64(len(f.content)), ModTime: b.Time,
			Typeflag: tar.TypeReg, Format: tar.FormatPAX,
		})
		if err != nil {
			return err
		}
		if _, err := t.Write(f.content); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}

// ErrNotInBundle reports that an archive lacks a file.
var ErrNotInBundle = errors.New("no such file in the bundle")

// Open returns the content of one file of an archive that [Bundle.Write] has written.
func Open(r io.Reader, name string) ([]byte, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s: %w", name, ErrNotInBundle)
		}
		if err != nil {
			return nil, err
		}
		if _, rest, _ := strings.Cut(h.Name, "/"); rest == name {
			return io.ReadAll(io.LimitReader(t, MaxFile))
		}
	}
}

// fileName replaces the characters of a host name that do not belong into a file name.
func fileName(host string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		}
		return '-'
	}, host)
	return strings.TrimLeft(clean, ".")
}
