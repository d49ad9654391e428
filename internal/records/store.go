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
	deletingExt = ".deleting" // a record after its DEL has started
	draftPrefix = "."         // must match [statefile.Replace]
)

// Dir returns the directory with the records.
func (s Store) Dir() string { return filepath.Join(s.StateDir, "records") }

func (s Store) path(o cni.Owner, ext string) string { return filepath.Join(s.Dir(), string(o)+ext) }

// Begin stores a record before the first plugin runs. The record survives the end of this process,
// but not a power failure, which the attachment does not survive either.
func (s Store) Begin(r *Record) error {
	return s.write(r, replaceFile)
}

// replaceFile writes a draft of a file and renames it. If the process is killed before the rename,
// the draft remains.
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
		return statefile.Replace(path, b, 0o600,
			func(f *os.File) { statefile.MarkBoot(int(f.Fd()), BootID()) })
	})
}

func (s Store) write(r *Record, replace func(path string, b []byte) error) error {
	b, err := r.encode()
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	err = os.MkdirAll(s.Dir(), 0o700)
	if err == nil {
		err = replace(s.path(r.Attachment.Owner(), recordExt), b)
	}
	return ioFailure("store record", err)
}

// ioFailure returns an error with [cni.CodeIOFailure] that starts with the operation, or nil for
// nil.
func ioFailure(operation string, err error) error {
	if err == nil {
		return nil
	}
	return cni.Errorf(cni.CodeIOFailure, "%s: %w", operation, err)
}

// namesIn returns the sorted names of the files in a directory, or none if it does not exist. It
// misses no file that exists during the call. what describes the files in errors.
func namesIn(dir, what string) ([]string, error) {
	names, err := statefile.NamesIn(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	slices.Sort(names)
	return names, ioFailure(what, err)
}

// NoteDel records the start of DEL of an attachment. It renames the record, which keeps its content
// on disk.
func (s Store) NoteDel(a cni.Attachment) error {
	return ioFailure("note DEL",
		os.Rename(s.path(a.Owner(), recordExt), s.path(a.Owner(), deletingExt)))
}

// Get reads the record of an attachment. It returns an error wrapping [ErrNoRecord] if the record
// does not exist.
func (s Store) Get(a cni.Attachment) (*Record, error) {
	found := s.Read(a.Owner())
	if found.Err == nil && found.Record.Attachment != a {
		return nil, cni.Errorf(cni.CodeInvalidConfig,
			"record of %v belongs to %v", a, found.Record.Attachment)
	}
	return found.Record, found.Err
}

// Found is a file of a [Store] or a [Cache]: its record, or the error from reading it.
type Found struct {
	Owner  cni.Owner
	Record *Record
	Err    error
	Key    cni.Attachment // of an unreadable record; zero if unknown
	Debris bool           // unreadable and from an earlier boot: the attachment no longer exists
}

// unreadable wraps an error and [ErrUnreadable].
type unreadable struct{ error }

func (e unreadable) Unwrap() error { return e.error }

func (e unreadable) Is(target error) bool { return target == ErrUnreadable }

// Attachment returns the key of the attachment; zero if unknown.
func (s Found) Attachment() cni.Attachment {
	if s.Record != nil {
		return s.Record.Attachment
	}
	return s.Key
}

// Damage returns Err, preceded by the key of the attachment if known.
func (s Found) Damage() error {
	if s.Key == (cni.Attachment{}) {
		return s.Err
	}
	return fmt.Errorf("%v: %w", s.Key, s.Err)
}

// Read reads the record of an owner. It tries the file names in the order of state changes, so it
// finds a record that another process renames concurrently.
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
		err = cni.Errorf(cni.CodeInvalidConfig, "the file is the record of %v", r.Attachment)
	}
	if err != nil {
		err = unreadable{fmt.Errorf("%s: %w", path, err)}
		found := Found{Owner: o, Err: err, Debris: statefile.EarlierBoot(path)}
		if key, ok := keyOf(b, o); ok {
			found.Key = key
		}
		return found
	}
	r.StateDir = s.StateDir
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

// Scan reads the records with an owner that starts with prefix, in the order of owners. It may miss
// records that another process creates or removes concurrently.
func (s Store) Scan(prefix string) ([]Found, error) {
	return s.collect(prefix, func(cni.Owner, string) bool { return true })
}

// Select reads the records of the owners for which wanted returns true, like [Store.Scan]. It does
// not decode the others.
func (s Store) Select(wanted func(cni.Owner) bool) ([]Found, error) {
	return s.collect("", func(o cni.Owner, _ string) bool { return wanted(o) })
}

// ScanContainer reads the records of a container, including damaged ones that still name it. It
// does not decode the records of other containers, because a host has hundreds.
func (s Store) ScanContainer(container string) ([]Found, error) {
	member := []byte(`"container":"` + container + `"`) // JSON escapes no character of a valid ID
	return s.collect("", func(o cni.Owner, name string) bool {
		b, _ := statefile.ReadFile(filepath.Join(s.Dir(), name))
		if !bytes.Contains(b, member) {
			return false
		}
		key, ok := keyOf(b, o)
		return ok && key.Container == container
	})
}

// collect reads the records with an owner that starts with prefix and for which wanted returns
// true, in the order of owners.
func (s Store) collect(prefix string, wanted func(o cni.Owner, name string) bool) ([]Found, error) {
	var found []Found
	err := s.each(prefix, func(name string) error {
		ext := filepath.Ext(name)
		o := cni.Owner(strings.TrimSuffix(name, ext))
		if ext != recordExt && ext != deletingExt || !o.Valid() || !wanted(o, name) {
			return nil
		}
		// another process has renamed it in the meantime
		if n := len(found); n > 0 && found[n-1].Owner == o {
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

// Sweep removes the drafts of records that killed processes left in a network, given as the first
// half of its owners. The caller must hold the lock of the network, so that no process is writing a
// draft.
func (s Store) Sweep(network string) error {
	return s.each(draftPrefix+network, func(name string) error {
		return os.Remove(filepath.Join(s.Dir(), name))
	})
}

// each calls f with the sorted names of files that start with prefix, until f returns an error.
func (s Store) each(prefix string, f func(name string) error) error {
	names, err := namesIn(s.Dir(), "records")
	for _, name := range names {
		if err == nil && strings.HasPrefix(name, prefix) {
			err = ioFailure("records", f(name))
		}
	}
	return err
}
