package network

import (
	"cmp"
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
func (c *Client) List() ([]Record, error) { return list([]*Client{c}, nil) }

// ListHost returns the records that [Client.List] returns and those in the state directories of
// the other runtimes of the host, which are registered in [RegistryDir]. [Record.StateDir] tells
// them apart. If it cannot read all directories, it returns the rest and an error.
func (c *Client) ListHost() ([]Record, error) { return list(c.runtimes()) }

// For returns a client like c with the state directory of a record that [Client.ListHost] has
// returned, for calls about its attachment.
func (c *Client) For(r Record) *Client {
	other := *c
	other.StateDir = cmp.Or(r.StateDir, c.StateDir) // none: a file of libcni
	return &other
}

// list returns the readable records of clients, oldest first, and err joined with the errors about
// the others.
func list(clients []*Client, err error) ([]Record, error) {
	found, scanErr := scanAll(clients)
	recorded, damaged := readable(found)
	return publicRecords(recorded), errors.Join(err, scanErr, damaged)
}

// scanAll returns the records of clients in all networks.
func scanAll(clients []*Client) (found []records.Found, err error) {
	for _, c := range clients {
		some, scanErr := c.scan("")
		found, err = append(found, some...), errors.Join(err, scanErr)
	}
	return found, err
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

// choose returns the records of the owners for which wanted returns true.
func (c *Client) choose(wanted func(cni.Owner) bool) ([]records.Found, error) {
	found, err := c.store().Select(wanted)
	found, err = c.withCached(found, err, "")
	return slices.DeleteFunc(found, func(f records.Found) bool { return !wanted(f.Owner) }), err
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
