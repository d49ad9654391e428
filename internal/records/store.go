package records

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/boot"
	"github.com/tenon-cni/tenon/internal/regular"
)

// Store is the directory of records: one file each, named after the owner, so that names are as unambiguous
// as owners and show the network. Writers hold the lock of the container; readers need none.
type Store struct{ StateDir string }

const (
	recordExt   = ".json"
	deletingExt = ".deleting" // a record since its DEL has begun
	draftPrefix = "."         // of [regular.Replace] too
)

func (s Store) dir() string { return filepath.Join(s.StateDir, "records") }

func (s Store) path(o cni.Owner, ext string) string { return filepath.Join(s.dir(), string(o)+ext) }

// Begin stores a record before the first plugin runs. It survives the end of this process; a power cut it
// need not survive, as the attachment does not.
func (s Store) Begin(r *Record) error {
	return s.write(r, replaceFile)
}

// replaceFile writes a file under another name first, which a process that is killed meanwhile leaves.
func replaceFile(path string, b []byte) error {
	draft := filepath.Join(filepath.Dir(path), draftPrefix+filepath.Base(path))
	f, err := regular.Open(draft, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	boot.Mark(int(f.Fd()), BootID())
	_, err = f.Write(b)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(draft, path)
}

// removeFile removes a file, which need not be there.
func removeFile(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Put stores a record durably and atomically.
func (s Store) Put(r *Record) error {
	return s.write(r, func(path string, b []byte) error {
		return regular.Replace(path, b, 0o600, func(f *os.File) { boot.Mark(int(f.Fd()), BootID()) })
	})
}

func (s Store) write(r *Record, replace func(path string, b []byte) error) error {
	b, err := r.encode()
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	if err := os.MkdirAll(s.dir(), 0o700); err != nil {
		return cni.Errorf(cni.CodeIOFailure, "store record: %w", err)
	}
	if err := replace(s.path(r.Attachment.Owner(), recordExt), b); err != nil {
		return cni.Errorf(cni.CodeIOFailure, "store record: %w", err)
	}
	return nil
}

// NoteDel notes that DEL of an attachment begins. Renaming the record keeps its content, down to the disk.
func (s Store) NoteDel(a cni.Attachment) error {
	if err := os.Rename(s.path(a.Owner(), recordExt), s.path(a.Owner(), deletingExt)); err != nil {
		return cni.Errorf(cni.CodeIOFailure, "note DEL: %w", err)
	}
	return nil
}

// Get reads the record of an attachment. The error is ErrNoRecord where there is none.
func (s Store) Get(a cni.Attachment) (*Record, error) {
	found := s.Read(a.Owner())
	if found.Err == nil && found.Record.Attachment != a {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "record of %v is that of %v", a, found.Record.Attachment)
	}
	return found.Record, found.Err
}

// Found is a file of the store or of the cache: a record, or why there is none to be had from it.
type Found struct {
	Owner  cni.Owner
	Record *Record
	Err    error
	Key    cni.Attachment // of what cannot be read, zero if unknown
	Debris bool           // what cannot be read is from an earlier boot: it stands for nothing in use
}

// unreadable makes an error an [ErrUnreadable].
type unreadable struct{ error }

func (e unreadable) Unwrap() error { return e.error }

func (e unreadable) Is(target error) bool { return target == ErrUnreadable }

// Attachment is what it is about, zero if unknown.
func (s Found) Attachment() cni.Attachment {
	if s.Record != nil {
		return s.Record.Attachment
	}
	return s.Key
}

// Damage is err with the attachment it is about.
func (s Found) Damage() error {
	if s.Key == (cni.Attachment{}) {
		return s.Err
	}
	return fmt.Errorf("%v: %w", s.Key, s.Err)
}

// Read reads the record of an owner. A record can only change from adding over attached to deleting, so looking for
// its names in this order finds it.
func (s Store) Read(o cni.Owner) Found {
	found := s.readFile(o, recordExt)
	if found.Record != nil {
		s.mark(found.Record)
	}
	if !errors.Is(found.Err, ErrNoRecord) {
		return found
	}
	found = s.readFile(o, deletingExt)
	if found.Record != nil {
		found.Record.State = Deleting
	}
	return found
}

func (s Store) readFile(o cni.Owner, ext string) Found {
	path := s.path(o, ext)
	b, err := regular.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Found{Owner: o, Err: cni.Errorf(cni.CodeUnknownContainer, "%w", ErrNoRecord)}
	}
	if err != nil {
		return Found{Owner: o, Err: cni.Errorf(cni.CodeIOFailure, "read record: %w", err)}
	}
	r, err := decodeRecord(b)
	if err == nil && r.Attachment.Owner() != o {
		err = cni.Errorf(cni.CodeInvalidConfig, "this is the record of %v", r.Attachment)
	}
	if err != nil {
		found := Found{Owner: o, Err: unreadable{fmt.Errorf("%s: %w", path, err)}, Debris: boot.Earlier(path)}
		if key, ok := keyOf(b, o); ok {
			found.Key = key
		}
		return found
	}
	return Found{Owner: o, Record: r}
}

// Remove forgets an attachment, known or not.
func (s Store) Remove(a cni.Attachment) error { return s.RemoveOwner(a.Owner()) }

func (s Store) RemoveOwner(o cni.Owner) error {
	for _, ext := range []string{recordExt, deletingExt} {
		if err := removeFile(s.path(o, ext)); err != nil {
			return cni.Errorf(cni.CodeIOFailure, "remove record: %w", err)
		}
	}
	return nil
}

// Scan reads the records whose owners begin with prefix, in the order of owners. Those that come and go
// meanwhile may be among them or not.
func (s Store) Scan(prefix string) ([]Found, error) {
	return s.collect(prefix, func(cni.Owner, string) bool { return true })
}

// ScanContainer reads the records of a container, those that cannot be read too if they still tell that. Others it does not
// decode: a machine has hundreds.
func (s Store) ScanContainer(container string) ([]Found, error) {
	member := []byte(`"container":"` + container + `"`) // an ID has no character that JSON writes otherwise
	return s.collect("", func(o cni.Owner, name string) bool {
		b, _ := regular.ReadFile(filepath.Join(s.dir(), name))
		if !bytes.Contains(b, member) {
			return false
		}
		key, ok := keyOf(b, o)
		return ok && key.Container == container
	})
}

// collect reads the records whose owners begin with prefix and of whose files wanted says so, in the order of owners.
func (s Store) collect(prefix string, wanted func(o cni.Owner, name string) bool) ([]Found, error) {
	var found []Found
	err := s.each(prefix, func(name string) error {
		ext := filepath.Ext(name)
		o := cni.Owner(strings.TrimSuffix(name, ext))
		if ext != recordExt && ext != deletingExt || !o.Valid() || !wanted(o, name) {
			return nil
		}
		if n := len(found); n > 0 && found[n-1].Owner == o { // renamed meanwhile
			return nil
		}
		if f := s.Read(o); !errors.Is(f.Err, ErrNoRecord) {
			found = append(found, f)
		}
		return nil
	})
	return found, err
}

// Drafts returns the networks of which there are unfinished records, as the first halves of their owners.
func (s Store) Drafts() ([]string, error) {
	var networks []string
	err := s.each(draftPrefix, func(name string) error {
		if n := cni.Owner(strings.TrimPrefix(name, draftPrefix)).Network(); !slices.Contains(networks, n) {
			networks = append(networks, n)
		}
		return nil
	})
	return networks, err
}

// Sweep removes drafts of records of a network, given as the first half of its owners, that a process has left which
// was killed while it wrote one. The network has to be locked, so that nobody is writing.
func (s Store) Sweep(network string) error {
	return s.each(draftPrefix+network, func(name string) error { return os.Remove(filepath.Join(s.dir(), name)) })
}

// each calls f with the names of files that begin with prefix, sorted, up to its first error.
func (s Store) each(prefix string, f func(name string) error) error {
	entries, err := os.ReadDir(s.dir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cni.Errorf(cni.CodeIOFailure, "records: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		if err := f(e.Name()); err != nil {
			return cni.Errorf(cni.CodeIOFailure, "records: %w", err)
		}
	}
	return nil
}
