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
	"github.com/tenon-cni/tenon/internal/statefile"
)

// Due is a file that names attachments of one container that are set up or removed together. While
// the file exists and no operation on the container is in progress, DEL is due for all of them,
// because a Setup or a Remove was interrupted. A Setup succeeds by removing the file.
type Due struct {
	Container   string          `json:"container"`
	State       State           `json:"state"` // of the attachments, while the file exists
	Attachments []DueAttachment `json:"attachments"`
}

// DueAttachment names one ADD. An attachment that a later ADD created under the same key is not
// due.
type DueAttachment struct {
	Network string    `json:"network"`
	IfName  string    `json:"ifname"`
	Created time.Time `json:"created"` // [Record.Created]
}

// dueKind is the format of the file. It never changes; a new format gets a new kind.
const dueKind = "tenonDueV1"

// NewDue returns a Due that names the records.
func NewDue(container string, s State, records []*Record) *Due {
	d := &Due{Container: container, State: s}
	for _, r := range records {
		a := DueAttachment{r.Attachment.Network, r.Attachment.IfName, r.Created}
		d.Attachments = append(d.Attachments, a)
	}
	return d
}

// Has reports whether d names the ADD of a record.
func (d *Due) Has(r *Record) bool {
	for _, a := range d.Attachments {
		same := a.Network == r.Attachment.Network && a.IfName == r.Attachment.IfName
		if same && a.Created.Equal(r.Created) {
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
		return nil, cni.DecodeFailure("attachments due for DEL", err)
	}
	if d.State != Adding && d.State != Deleting {
		return nil, cni.Errorf(cni.CodeDecodingFailure,
			"attachments due for DEL: unknown state %q", d.State)
	}
	return d, nil
}

func (s Store) dueDir() string { return filepath.Join(s.StateDir, "due") }

// duePath returns the path of the file of a container. Its name is the same hash as in the name of
// the container's lock.
func (s Store) duePath(container string) string {
	return filepath.Join(s.dueDir(), Hash(container))
}

// PutDue stores d. Neither d nor the attachments survive a power failure.
func (s Store) PutDue(d *Due) error {
	body, err := json.Marshal(d)
	if err != nil {
		return err
	}
	err = os.MkdirAll(s.dueDir(), 0o700)
	if err == nil {
		err = replaceFile(s.duePath(d.Container), seal(dueKind, body))
	}
	return ioFailure("store attachments due for DEL", err)
}

// DueOf returns the file about unfinished operations of a container, or nil if it does not exist.
func (s Store) DueOf(container string) (*Due, error) { return s.readDue(s.duePath(container)) }

func (s Store) readDue(path string) (*Due, error) {
	b, err := statefile.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, cni.Errorf(cni.CodeIOFailure, "read attachments due for DEL: %w", err)
	}
	d, err := decodeDue(b)
	if err == nil && Hash(d.Container) != filepath.Base(path) {
		err = cni.Errorf(cni.CodeInvalidConfig, "the file belongs to container %s", d.Container)
	}
	if err != nil {
		return nil, unreadable{fmt.Errorf("%s: %w", path, err)}
	}
	return d, nil
}

// RemoveDue removes the file about unfinished operations of a container.
func (s Store) RemoveDue(container string) error {
	return ioFailure("remove the list of attachments due for DEL", removeFile(s.duePath(container)))
}

// mark sets the state of a record if a Due file names its attachment.
func (s Store) mark(r *Record) {
	if r.State != Attached {
		return
	}
	d, _ := s.DueOf(r.Attachment.Container) // SweepDue reports a damaged file
	if d != nil && d.Has(r) {
		r.State, r.Due = d.State, true
	}
}

// Dues returns the hashes of the containers that have a file about unfinished operations, or a
// draft of one.
func (s Store) Dues() ([]string, error) {
	names, err := namesIn(s.dueDir(), "attachments due for DEL")
	var hashes []string
	for _, name := range names {
		hashes = append(hashes, strings.TrimPrefix(name, draftPrefix))
	}
	return hashes, err
}

// SweepDue removes the file of a container, given by its hash, if none of its attachments is still
// recorded, or if the file is damaged and from an earlier boot. It also removes a draft of the
// file. SweepDue calls warn if the file is damaged. The caller must hold the lock of the container.
func (s Store) SweepDue(hash string, warn func(what string, err error)) error {
	path := filepath.Join(s.dueDir(), hash)
	errs := []error{removeFile(filepath.Join(s.dueDir(), draftPrefix+hash))}
	d, err := s.readDue(path)
	switch {
	case errors.Is(err, ErrUnreadable) && statefile.EarlierBoot(path):
		warn("removing a damaged file about unfinished operations from an earlier boot", err)
		return errors.Join(append(errs, removeFile(path))...)
	case errors.Is(err, ErrUnreadable):
		warn("cannot read the file about unfinished operations; keeping it", err)
		return errors.Join(errs...)
	case err != nil || d == nil:
		return errors.Join(append(errs, err)...)
	}
	for _, a := range d.Attachments {
		r, err := s.Get(cni.Attachment{Network: a.Network, Container: d.Container,
			IfName: a.IfName})
		if err == nil && a.Created.Equal(r.Created) || err != nil && !errors.Is(err, ErrNoRecord) {
			return errors.Join(errs...)
		}
	}
	return errors.Join(append(errs, removeFile(path))...)
}
