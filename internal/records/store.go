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
	"github.com/tenon-cni/tenon/internal/statefile"
)

// Store is the state directory of a runtime. It has one file for each record, named after the owner
// of the attachment, so that file names are unambiguous and show the network. Writers hold the lock
// of the container; readers need no lock.
type Store struct{ StateDir string }

const (
	recordExt   = ".json"
	deletingExt = ".deleting" // a record since its DEL has begun
	draftPrefix = "."         // [statefile.Replace] uses the same
)

func (s Store) dir() string { return filepath.Join(s.StateDir, "records") }

func (s Store) path(o cni.Owner, ext string) string { return filepath.Join(s.dir(), string(o)+ext) }

// Begin stores a record before the first plugin runs. The record survives the end of this process,
// but not a power cut, which the attachment does not survive either.
func (s Store) Begin(r *Record) error {
	return s.write(r, replaceFile)
}

// replaceFile writes a draft of a file and renames it. A process that is killed meanwhile leaves
// the draft.
func replaceFile(path string, b []byte) error {
	draft := filepath.Join(filepath.Dir(path), draftPrefix+filepath.Base(path))
	f, err := statefile.Open(draft, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	statefile.MarkBoot(int(f.Fd()), BootID())
	_, err = f.Write(b)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(draft, path)
}

// removeFile removes a file if it exists.
func removeFile(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Put stores a record durably and atomically.
func (s Store) Put(r *Record) error {
	return s.write(r, func(path string, b []byte) error {
		return statefile.Replace(path, b, 0o600, func(f *os.File) { statefile.MarkBoot(int(f.Fd()), BootID()) })
	})
}

func (s Store) write(r *Record, replace func(path string, b []byte) error) error {
	b, err := r.encode()
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	err = os.MkdirAll(s.dir(), 0o700)
	if err == nil {
		err = replace(s.path(r.Attachment.Owner(), recordExt), b)
	}
	return ioFailure("store record", err)
}

// ioFailure returns an error with [cni.CodeIOFailure] and the operation in front, nil for nil.
func ioFailure(operation string, err error) error {
	if err == nil {
		return nil
	}
	return cni.Errorf(cni.CodeIOFailure, "%s: %w", operation, err)
}

// readDir returns the entries of a directory, none if it does not exist. what describes the
// entries in an error.
func readDir(dir, what string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, ioFailure(what, err)
	}
	return entries, nil
}

// NoteDel records that DEL of an attachment begins. It renames the record, which keeps the content
// on disk.
func (s Store) NoteDel(a cni.Attachment) error {
	return ioFailure("note DEL", os.Rename(s.path(a.Owner(), recordExt), s.path(a.Owner(), deletingExt)))
}

// Get reads the record of an attachment. It returns an error wrapping [ErrNoRecord] if the record
// does not exist.
func (s Store) Get(a cni.Attachment) (*Record, error) {
	found := s.Read(a.Owner())
	if found.Err == nil && found.Record.Attachment != a {
		return nil, cni.Errorf(cni.CodeInvalidConfig,
			"record of %v is that of %v", a, found.Record.Attachment)
	}
	return found.Record, found.Err
}

// Found is a file of a [Store] or a [Cache]: its record, or the error of reading it.
type Found struct {
	Owner  cni.Owner
	Record *Record
	Err    error
	Key    cni.Attachment // of an unreadable record, zero if unknown
	Debris bool           // unreadable and of an earlier boot: the attachment no longer exists
}

// unreadable wraps an error and [ErrUnreadable].
type unreadable struct{ error }

func (e unreadable) Unwrap() error { return e.error }

func (e unreadable) Is(target error) bool { return target == ErrUnreadable }

// Attachment returns the key of the attachment, zero if unknown.
func (s Found) Attachment() cni.Attachment {
	if s.Record != nil {
		return s.Record.Attachment
	}
	return s.Key
}

// Damage returns Err with the key of the attachment in front, if that is known.
func (s Found) Damage() error {
	if s.Key == (cni.Attachment{}) {
		return s.Err
	}
	return fmt.Errorf("%v: %w", s.Key, s.Err)
}

// Read reads the record of an owner. Read tries the file names in the order in which a record
// changes its state, so it finds a record that another process renames meanwhile.
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
	b, err := statefile.ReadFile(path)
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
		err = unreadable{fmt.Errorf("%s: %w", path, err)}
		found := Found{Owner: o, Err: err, Debris: statefile.EarlierBoot(path)}
		if key, ok := keyOf(b, o); ok {
			found.Key = key
		}
		return found
	}
	return Found{Owner: o, Record: r}
}

// Remove removes the record of an attachment, if it exists.
func (s Store) Remove(a cni.Attachment) error { return s.RemoveOwner(a.Owner()) }

// RemoveOwner removes the record of an owner, if it exists.
func (s Store) RemoveOwner(o cni.Owner) error {
	err := removeFile(s.path(o, recordExt))
	if err == nil {
		err = removeFile(s.path(o, deletingExt))
	}
	return ioFailure("remove record", err)
}

// Scan reads the records whose owners begin with prefix, in the order of owners. It may miss
// records that another process creates or removes meanwhile.
func (s Store) Scan(prefix string) ([]Found, error) {
	return s.collect(prefix, func(cni.Owner, string) bool { return true })
}

// ScanContainer reads the records of a container, including damaged ones that still name it. It
// does not decode the records of other containers, because a host has hundreds.
func (s Store) ScanContainer(container string) ([]Found, error) {
	member := []byte(`"container":"` + container + `"`) // JSON escapes no character of a valid ID
	return s.collect("", func(o cni.Owner, name string) bool {
		b, _ := statefile.ReadFile(filepath.Join(s.dir(), name))
		if !bytes.Contains(b, member) {
			return false
		}
		key, ok := keyOf(b, o)
		return ok && key.Container == container
	})
}

// collect reads the records whose owners begin with prefix and for which wanted returns true, in
// the order of owners.
func (s Store) collect(prefix string, wanted func(o cni.Owner, name string) bool) ([]Found, error) {
	var found []Found
	err := s.each(prefix, func(name string) error {
		ext := filepath.Ext(name)
		o := cni.Owner(strings.TrimSuffix(name, ext))
		if ext != recordExt && ext != deletingExt || !o.Valid() || !wanted(o, name) {
			return nil
		}
		if n := len(found); n > 0 && found[n-1].Owner == o { // another process has renamed it meanwhile
			return nil
		}
		if f := s.Read(o); !errors.Is(f.Err, ErrNoRecord) {
			found = append(found, f)
		}
		return nil
	})
	return found, err
}

// Drafts returns the networks that have drafts of records, each as the first half of its owners.
func (s Store) Drafts() ([]string, error) {
	var networks []string
	err := s.each(draftPrefix, func(name string) error {
		n := cni.Owner(strings.TrimPrefix(name, draftPrefix)).Network()
		if !slices.Contains(networks, n) {
			networks = append(networks, n)
		}
		return nil
	})
	return networks, err
}

// Sweep removes the drafts that killed processes left of records of a network, given as the first
// half of its owners. The caller holds the lock of the network, so that no process is writing a
// draft.
func (s Store) Sweep(network string) error {
	return s.each(draftPrefix+network, func(name string) error {
		return os.Remove(filepath.Join(s.dir(), name))
	})
}

// each calls f with the names of files that begin with prefix, sorted, up to its first error.
func (s Store) each(prefix string, f func(name string) error) error {
	entries, err := readDir(s.dir(), "records")
	for _, e := range entries {
		if err == nil && strings.HasPrefix(e.Name(), prefix) {
			err = ioFailure("records", f(e.Name()))
		}
	}
	return err
}
