package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// Release frees the addresses of an attachment. For a shared address it first writes a note for the
// agent; noted reports that. It works without a state, and then writes a note for every address.
func (p *Pool) Release(ctx context.Context, o ipam.Owner) (noted bool, err error) {
	p.noted = false
	err = p.files.Release(ctx, o)
	return p.noted, err
}

// Collect frees the addresses of a network's attachments that are not in keep, like Release.
func (p *Pool) Collect(
	ctx context.Context, network string, keep []ipam.Owner,
) (freed []ipam.Lease, noted bool, err error) {
	p.noted = false
	leases, err := p.files.Leases(ctx)
	if err != nil {
		return nil, false, err
	}
	keep = slices.Clone(keep)
	for i := range keep {
		keep[i].Network = network
	}
	for _, l := range leases {
		if l.Owner.Network != network {
			keep = append(keep, l.Owner)
		}
	}
	freed, err = p.files.Collect(ctx, keep)
	return freed, p.noted, err
}

// forget writes a note before a shared address is released.
func (p *Pool) forget(l ipam.Lease) error {
	if p.State.BlockOf(l.Addr) == nil {
		if err := p.note(l); err != nil {
			return fmt.Errorf("note for the agent: %w", err)
		}
		p.noted = true
	}
	return nil
}

// Note is a shared address that the plugin has released and the store still shows.
type Note struct {
	Schema    int        `json:"schema"`
	Pool      string     `json:"pool"`
	Addr      netip.Addr `json:"addr"`
	Network   string     `json:"network"`
	Container string     `json:"container"` // that held it; see cluster.Holder
	IfName    string     `json:"ifname"`

	id string // of the file
}

// note writes a note durably.
func (p *Pool) note(l ipam.Lease) error {
	n := Note{Schema: cluster.Schema, Pool: p.name, Addr: l.Addr, Network: l.Owner.Network,
		Container: l.Owner.Container, IfName: l.Owner.IfName}
	// Each release has a note of its own, so that Done for one keeps the note of a later one.
	return save(p.store.path(notesDir, p.name, l.Addr.String()+"-"+rand.Text()+suffix), n)
}

// Notes reads the notes, sorted by pool and address. It skips damaged files and returns an error
// for them beside the notes.
func (s *Store) Notes() ([]Note, error) {
	paths, err := filepath.Glob(s.path(notesDir, "*", "*"+suffix))
	if err != nil {
		return nil, err
	}
	var notes []Note
	var errs []error
	for _, path := range paths {
		b, err := statefile.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var n Note
		if err == nil {
			n, err = decode[Note](path, b)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		n.id = strings.TrimSuffix(filepath.Base(path), suffix)
		notes = append(notes, n)
	}
	return notes, errors.Join(errs...)
}

// Done removes a note that Notes has returned. It succeeds if the note no longer exists.
func (s *Store) Done(n Note) error {
	if n.id == "" {
		return errors.New("the note was not read from a file")
	}
	return remove(s.path(notesDir, n.Pool, n.id+suffix))
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
