package network

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
	"github.com/tenon-cni/tenon/network/config"
)

// Record returns what is recorded of an attachment, [ErrNoRecord] if nothing is. A record that cannot be
// read has the code of what is wrong with it.
func (c *Client) Record(a cni.Attachment) (*Record, error) {
	if err := a.Validate(); err != nil {
		return nil, err
	}
	r, err := c.lookUp(a, nil)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", a, err)
	}
	public := publicRecord(r)
	return &public, nil
}

// List returns all records, oldest first. The error joins those of records that cannot be read; the
// others are returned in any case.
func (c *Client) List() ([]Record, error) {
	found, err := c.scan("")
	recorded, damaged := readable(found)
	return publicRecords(recorded), errors.Join(err, damaged)
}

// Recorded returns the networks of records that [Client.List] has returned, each once, as the newest of its attachments was
// run. They are for [Client.GC] where there is no configuration any more.
func Recorded(records []Record) []*config.Network {
	var networks []*config.Network
	for _, r := range slices.Backward(records) {
		if !slices.ContainsFunc(networks, func(n *config.Network) bool { return n.Name == r.Attachment.Network }) {
			networks = append(networks, &config.Network{List: r.List})
		}
	}
	return networks
}

// readable returns the records among what was found, oldest first, and an error about the rest.
func readable(found []records.Found) ([]*records.Record, error) {
	var recorded []*records.Record
	var errs []error
	for _, s := range found {
		if s.Err != nil {
			errs = append(errs, s.Damage())
			continue
		}
		recorded = append(recorded, s.Record)
	}
	sort.SliceStable(recorded, func(i, j int) bool { return recorded[i].Created.Before(recorded[j].Created) })
	return recorded, errors.Join(errs...)
}

// lookUp returns what is recorded of an attachment: by this library, or else by the reference library. n, which may
// be nil, completes what the latter has stored.
func (c *Client) lookUp(a cni.Attachment, n *config.Network) (*records.Record, error) {
	r, err := c.store().Get(a)
	if !errors.Is(err, ErrNoRecord) || c.cacheDir() == "" {
		return r, err
	}
	r, err = c.cache().Get(a)
	if err != nil {
		return nil, err
	}
	return r, r.Complete(n)
}

// scan returns what is recorded of a network, or of all if that is empty.
func (c *Client) scan(network string) ([]records.Found, error) {
	prefix := ""
	if network != "" {
		prefix = cni.NetworkOwner(network)
	}
	found, err := c.store().Scan(prefix)
	return c.withCached(found, err, network)
}

// withCached adds to records what the reference library has of a network, or of all if that is empty, and to their error.
func (c *Client) withCached(found []records.Found, err error, network string) ([]records.Found, error) {
	if c.cacheDir() == "" {
		return found, err
	}
	own := map[cni.Owner]bool{}
	for _, s := range found {
		own[s.Owner] = true
	}
	cached, cacheErr := c.cache().Scan(network)
	for _, s := range cached {
		if !own[s.Owner] {
			found = append(found, s)
		}
	}
	return found, errors.Join(err, cacheErr)
}

// removeRecord removes the record of an attachment, and the file that libcni has of it.
func (c *Client) removeRecord(a cni.Attachment) error {
	err := c.store().Remove(a)
	if c.cacheDir() != "" {
		err = errors.Join(err, c.cache().Remove(a))
	}
	return err
}
