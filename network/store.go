package network

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/tenon-cni/tenon/cni"
)

// store is the folder of records: one file each, named after the owner, so that names are as unambiguous
// as owners and show the network. Writers hold the lock of the container; readers need none.
type store struct{ dir string }

const (
	recordExt   = ".json"
	draftPrefix = "." // renameio's too
)

func (c *Client) store() store { return store{filepath.Join(c.stateDir(), "records")} }

func (s store) path(o cni.Owner) string { return filepath.Join(s.dir, string(o)+recordExt) }

// begin stores a record before the first plugin runs. It survives the end of this process; a power cut it
// need not survive, as the attachment does not.
func (s store) begin(r *Record) error {
	return s.write(r, func(path string, b []byte) error {
		draft := filepath.Join(s.dir, draftPrefix+filepath.Base(path))
		if err := os.WriteFile(draft, b, 0o600); err != nil {
			return err
		}
		return os.Rename(draft, path)
	})
}

// put stores a record durably and atomically.
func (s store) put(r *Record) error {
	return s.write(r, func(path string, b []byte) error {
		return renameio.WriteFile(path, b, 0o600, renameio.WithTempDir(s.dir))
	})
}

func (s store) write(r *Record, replace func(path string, b []byte) error) error {
	b, err := r.encode()
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return cni.Errorf(cni.CodeIOFailure, "store record: %w", err)
	}
	if err := replace(s.path(r.Attachment.Owner()), b); err != nil {
		return cni.Errorf(cni.CodeIOFailure, "store record: %w", err)
	}
	return nil
}

// get reads the record of an attachment. The error is ErrNoRecord where there is none.
func (s store) get(a cni.Attachment) (*Record, error) {
	r, err := s.read(a.Owner())
	if err != nil {
		return nil, err
	}
	if r.Attachment != a {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "record %s is that of %v", s.path(a.Owner()), r.Attachment)
	}
	return r, nil
}

func (s store) read(o cni.Owner) (*Record, error) {
	path := s.path(o)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cni.Errorf(cni.CodeUnknownContainer, "%w", ErrNoRecord)
	}
	if err != nil {
		return nil, cni.Errorf(cni.CodeIOFailure, "read record: %w", err)
	}
	r, err := decodeRecord(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if r.Attachment.Owner() != o {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "record %s is that of %v", path, r.Attachment)
	}
	return r, nil
}

// remove forgets an attachment, known or not.
func (s store) remove(a cni.Attachment) error { return s.removeOwner(a.Owner()) }

func (s store) removeOwner(o cni.Owner) error {
	if err := os.Remove(s.path(o)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cni.Errorf(cni.CodeIOFailure, "remove record: %w", err)
	}
	return nil
}

// stored is one file of the store: a record, or why there is none to be had from it.
type stored struct {
	owner  cni.Owner
	record *Record
	err    error
}

// scan reads the records whose owners begin with prefix, in the order of owners. Those that come and go
// meanwhile may be among them or not.
func (s store) scan(prefix string) ([]stored, error) {
	var found []stored
	err := s.each(prefix, func(name string) error {
		base, ok := strings.CutSuffix(name, recordExt)
		o := cni.Owner(base)
		if !ok || !o.Valid() {
			return nil
		}
		r, err := s.read(o)
		if !errors.Is(err, ErrNoRecord) {
			found = append(found, stored{o, r, err})
		}
		return nil
	})
	return found, err
}

// sweep removes drafts of records of a network, left by a process that was killed while it wrote one. The
// network has to be locked, so that nobody is writing.
func (s store) sweep(network string) error {
	return s.each(draftPrefix+cni.NetworkOwner(network), func(name string) error {
		return os.Remove(filepath.Join(s.dir, name))
	})
}

// each calls f with the names of files that begin with prefix, sorted, up to its first error.
func (s store) each(prefix string, f func(name string) error) error {
	entries, err := os.ReadDir(s.dir)
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
