package records

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/boot"
	"github.com/tenon-cni/tenon/internal/regular"
)

// Due is a file about attachments of one container that come or go together. As long as it is there, and nobody works on
// the container, DEL is due for all of them: a Setup that has made some was cut short before it had made all, or a Remove
// before it had taken all away. So removing it is the moment at which a Setup has happened.
type Due struct {
	Container   string          `json:"container"`
	State       State           `json:"state"` // of the attachments, until the file is gone
	Attachments []DueAttachment `json:"attachments"`
}

// DueAttachment names one ADD: what has been attached under the same key since is not due.
type DueAttachment struct {
	Network string    `json:"network"`
	IfName  string    `json:"ifname"`
	Created time.Time `json:"created"` // [Record.Created]
}

// dueKind is the format of the file: an on-disk format, never changed, only succeeded by another.
const dueKind = "tenonDueV1"

// NewDue returns a Due that names records.
func NewDue(container string, s State, records []*Record) *Due {
	d := &Due{Container: container, State: s}
	for _, r := range records {
		d.Attachments = append(d.Attachments, DueAttachment{r.Attachment.Network, r.Attachment.IfName, r.Created})
	}
	return d
}

// Has reports whether d names the ADD of a record.
func (d *Due) Has(r *Record) bool {
	for _, a := range d.Attachments {
		if a.Network == r.Attachment.Network && a.IfName == r.Attachment.IfName && a.Created.Equal(r.Created) {
			return true
		}
	}
	return false
}

func decodeDue(b []byte) (*Due, error) {
	body, err := unseal(dueKind, b)
	if err != nil {
		return nil, err
	}
	d := &Due{}
	if err := json.Unmarshal(body, d); err != nil {
		return nil, cni.DecodeFailure("attachments that are due", err)
	}
	if d.State != Adding && d.State != Deleting {
		return nil, cni.Errorf(cni.CodeDecodingFailure, "attachments that are due: state %q is unknown", d.State)
	}
	return d, nil
}

func (s Store) dueDir() string { return filepath.Join(s.StateDir, "due") }

// duePath is called after the hash of the container, as its lock is.
func (s Store) duePath(container string) string { return filepath.Join(s.dueDir(), Hash(container)) }

// PutDue stores d. A power cut it need not survive, as the attachments do not.
func (s Store) PutDue(d *Due) error {
	body, err := json.Marshal(d)
	if err != nil {
		return err
	}
	err = os.MkdirAll(s.dueDir(), 0o700)
	if err == nil {
		err = replaceFile(s.duePath(d.Container), seal(dueKind, body))
	}
	if err != nil {
		return cni.Errorf(cni.CodeIOFailure, "note what is due: %w", err)
	}
	return nil
}

// DueOf returns what is due of a container, nil if nothing is.
func (s Store) DueOf(container string) (*Due, error) { return s.readDue(s.duePath(container)) }

func (s Store) readDue(path string) (*Due, error) {
	b, err := regular.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, cni.Errorf(cni.CodeIOFailure, "read what is due: %w", err)
	}
	d, err := decodeDue(b)
	if err == nil && Hash(d.Container) != filepath.Base(path) {
		err = cni.Errorf(cni.CodeInvalidConfig, "this is about container %s", d.Container)
	}
	if err != nil {
		return nil, unreadable{fmt.Errorf("%s: %w", path, err)}
	}
	return d, nil
}

// RemoveDue removes the file about unfinished operations of a container.
func (s Store) RemoveDue(container string) error {
	if err := removeFile(s.duePath(container)); err != nil {
		return cni.Errorf(cni.CodeIOFailure, "note that nothing is due any more: %w", err)
	}
	return nil
}

// mark sets the state of what is recorded as attached but due.
func (s Store) mark(r *Record) {
	if r.State != Attached {
		return
	}
	if d, _ := s.DueOf(r.Attachment.Container); d != nil && d.Has(r) { // what cannot be read [Store.Dues] reports
		r.State, r.Due = d.State, true
	}
}

// Dues returns the hashes of the containers of which something is due, or was about to be.
func (s Store) Dues() ([]string, error) {
	entries, err := os.ReadDir(s.dueDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, cni.Errorf(cni.CodeIOFailure, "what is due: %w", err)
	}
	var hashes []string
	for _, e := range entries {
		hashes = append(hashes, strings.TrimPrefix(e.Name(), draftPrefix))
	}
	return hashes, nil
}

// SweepDue removes the file of a container, given by its hash, if nothing that it names is recorded any more or if it is
// damaged and of an earlier boot, and a draft of one. It calls warn if the file is damaged. The container has to be locked.
func (s Store) SweepDue(hash string, warn func(what string, err error)) error {
	path := filepath.Join(s.dueDir(), hash)
	errs := []error{removeFile(filepath.Join(s.dueDir(), draftPrefix+hash))}
	d, err := s.readDue(path)
	switch {
	case errors.Is(err, ErrUnreadable) && boot.Earlier(path):
		warn("removing a damaged file about unfinished operations from before the boot", err)
		return errors.Join(append(errs, removeFile(path))...)
	case errors.Is(err, ErrUnreadable):
		warn("file about unfinished operations cannot be read, left alone", err)
		return errors.Join(errs...)
	case err != nil || d == nil:
		return errors.Join(append(errs, err)...)
	}
	for _, a := range d.Attachments {
		r, err := s.Get(cni.Attachment{Network: a.Network, Container: d.Container, IfName: a.IfName})
		if err == nil && a.Created.Equal(r.Created) || err != nil && !errors.Is(err, ErrNoRecord) {
			return errors.Join(errs...)
		}
	}
	return errors.Join(append(errs, removeFile(path))...)
}
