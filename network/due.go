package network

import (
	"context"
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

// due is a file about attachments of one container that come or go together. As long as it is there, and nobody works on
// the container, DEL is due for all of them: a Setup that has made some was cut short before it had made all, or a Remove
// before it had taken all away. So removing it is the moment at which a Setup has happened.
type due struct {
	Container   string          `json:"container"`
	State       State           `json:"state"` // of the attachments, until the file is gone
	Attachments []dueAttachment `json:"attachments"`
}

// dueAttachment names one ADD: what has been attached under the same key since is not due.
type dueAttachment struct {
	Network string    `json:"network"`
	IfName  string    `json:"ifname"`
	Created time.Time `json:"created"` // [Record.Created]
}

// dueKind is the format of the file: an on-disk format, never changed, only succeeded by another.
const dueKind = "tenonDueV1"

func newDue(container string, s State, records []*Record) *due {
	d := &due{Container: container, State: s}
	for _, r := range records {
		d.Attachments = append(d.Attachments, dueAttachment{r.Attachment.Network, r.Attachment.IfName, r.Created})
	}
	return d
}

func (d *due) has(r *Record) bool {
	for _, a := range d.Attachments {
		if a.Network == r.Attachment.Network && a.IfName == r.Attachment.IfName && a.Created.Equal(r.Created) {
			return true
		}
	}
	return false
}

func decodeDue(b []byte) (*due, error) {
	body, err := unseal(dueKind, b)
	if err != nil {
		return nil, err
	}
	d := &due{}
	if err := json.Unmarshal(body, d); err != nil {
		return nil, cni.DecodeFailure("attachments that are due", err)
	}
	if d.State != Adding && d.State != Deleting {
		return nil, cni.Errorf(cni.CodeDecodingFailure, "attachments that are due: state %q is unknown", d.State)
	}
	return d, nil
}

func (s store) dueDir() string { return filepath.Join(filepath.Dir(s.dir), "due") }

// duePath is called after the hash of the container, as its lock is.
func (s store) duePath(container string) string { return filepath.Join(s.dueDir(), hashOf(container)) }

// putDue stores d. A power cut it need not survive, as the attachments do not.
func (s store) putDue(d *due) error {
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

// dueOf returns what is due of a container, nil if nothing is.
func (s store) dueOf(container string) (*due, error) { return s.readDue(s.duePath(container)) }

func (s store) readDue(path string) (*due, error) {
	b, err := regular.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, cni.Errorf(cni.CodeIOFailure, "read what is due: %w", err)
	}
	d, err := decodeDue(b)
	if err == nil && hashOf(d.Container) != filepath.Base(path) {
		err = cni.Errorf(cni.CodeInvalidConfig, "this is about container %s", d.Container)
	}
	if err != nil {
		return nil, unreadable{fmt.Errorf("%s: %w", path, err)}
	}
	return d, nil
}

// removeDue removes the file about unfinished operations of a container.
func (s store) removeDue(container string) error {
	if err := removeFile(s.duePath(container)); err != nil {
		return cni.Errorf(cni.CodeIOFailure, "note that nothing is due any more: %w", err)
	}
	return nil
}

// mark sets the state of what is recorded as attached but due.
func (s store) mark(r *Record) {
	if r.State != Attached {
		return
	}
	if d, _ := s.dueOf(r.Attachment.Container); d != nil && d.has(r) { // what cannot be read [store.dues] reports
		r.State, r.due = d.State, true
	}
}

// dues returns the hashes of the containers of which something is due, or was about to be.
func (s store) dues() ([]string, error) {
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

// sweepDue removes the file of a container, given by its hash, if nothing that it names is recorded any more or if it is
// damaged and of an earlier boot, and a draft of one. The container has to be locked.
func (c *Client) sweepDue(ctx context.Context, hash string) error {
	s := c.store()
	path := filepath.Join(s.dueDir(), hash)
	errs := []error{removeFile(filepath.Join(s.dueDir(), draftPrefix+hash))}
	d, err := s.readDue(path)
	switch {
	case errors.Is(err, ErrUnreadable) && boot.Earlier(path):
		c.warn(ctx, cni.Attachment{}, "removing a damaged file about unfinished operations from before the boot", err)
		return errors.Join(append(errs, removeFile(path))...)
	case errors.Is(err, ErrUnreadable):
		c.warn(ctx, cni.Attachment{}, "file about unfinished operations cannot be read, left alone", err)
		return errors.Join(errs...)
	case err != nil || d == nil:
		return errors.Join(append(errs, err)...)
	}
	for _, a := range d.Attachments {
		r, err := s.get(cni.Attachment{Network: a.Network, Container: d.Container, IfName: a.IfName})
		if err == nil && a.Created.Equal(r.Created) || err != nil && !errors.Is(err, ErrNoRecord) {
			return errors.Join(errs...)
		}
	}
	return errors.Join(append(errs, removeFile(path))...)
}
