package network

import (
	"errors"
	"slices"
	"sort"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
	"github.com/tenon-cni/tenon/network/config"
)

// Record returns the record of an attachment, or [ErrNoRecord] if it does not exist. The error
// about an unreadable record has the code of its cause.
func (c *Client) Record(a cni.Attachment) (*Record, error) {
	if err := a.Validate(); err != nil {
		return nil, err
	}
	r, err := c.lookUp(a, nil)
	if err != nil {
		return nil, of(a, err)
	}
	public := publicRecord(r)
	return &public, nil
}

// List returns all readable records, oldest first, and the joined errors of unreadable records.
func (c *Client) List() ([]Record, error) {
	found, err := c.scan("")
	recorded, damaged := readable(found)
	return publicRecords(recorded), errors.Join(err, damaged)
}

// Recorded returns the networks of records that [Client.List] has returned, each once, with the
// configuration of its newest attachment. [Client.GC] takes them where the configuration no longer
// exists.
func Recorded(records []Record) []*config.Network {
	var networks []*config.Network
	for _, r := range slices.Backward(records) {
		if !slices.ContainsFunc(networks,
			func(n *config.Network) bool { return n.Name == r.Attachment.Network }) {
			networks = append(networks, &config.Network{List: r.List})
		}
	}
	return networks
}

// readable returns the readable records, oldest first, and an error about the others.
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
	sort.SliceStable(recorded,
		func(i, j int) bool { return recorded[i].Created.Before(recorded[j].Created) })
	return recorded, errors.Join(errs...)
}

// lookUp returns the record of an attachment, or else the attachment of libcni, completed from n,
// which may be nil.
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

// scan returns the records of a network, or of all networks if network is empty.
func (c *Client) scan(network string) ([]records.Found, error) {
	prefix := ""
	if network != "" {
		prefix = cni.NetworkOwner(network)
	}
	found, err := c.store().Scan(prefix)
	return c.withCached(found, err, network)
}

// withCached adds the attachments of libcni in a network, or in all networks if network is empty,
// to records, and its error to theirs.
func (c *Client) withCached(
	found []records.Found, err error, network string,
) ([]records.Found, error) {
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

// removeRecord removes the record of an attachment and the file of libcni about it.
func (c *Client) removeRecord(a cni.Attachment) error {
	err := c.store().Remove(a)
	if c.cacheDir() != "" {
		err = errors.Join(err, c.cache().Remove(a))
	}
	return err
}
