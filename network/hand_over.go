package network

import (
	"context"
	"errors"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
)

// HandOver hands the recorded attachments to libcni and the upstream plugins. do prepares the attachments for their CHECK
// and DEL; it gets the records of all runtimes, oldest first, while no ADD, DEL or GC runs on their
// networks. When do has succeeded, the attachments of [Client.Runtime] are written to CacheDir, in the format of libcni,
// and their records are removed: a runtime that uses libcni detaches them with what ADD was given and returned. Records
// of other runtimes stay, because those read them.
//
// HandOver returns the attachments that are libcni's now. It changes nothing and returns an error if a record cannot be
// read or a network stays busy for longer than [Client.Timeout], and one with [cni.CodeInvalidConfig] if CacheDir is
// [NoCacheDir] and it would be needed.
func (c *Client) HandOver(ctx context.Context, do func(context.Context, []Record) error) ([]cni.Attachment, error) {
	_, unlock, err := c.lockRecorded(ctx, func(cni.Owner) bool { return true })
	defer unlock()
	if err != nil {
		return nil, err
	}
	found, err := c.scan("")
	recorded, damaged := readable(found)
	if err := errors.Join(err, damaged); err != nil {
		return nil, err
	}
	var own []*records.Record
	for _, r := range recorded {
		if r.Source == "" && r.Runtime == c.Runtime {
			own = append(own, r)
		}
	}
	if len(own) > 0 && c.cacheDir() == "" {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "there is no cache directory of libcni to hand attachments over to")
	}
	if err := do(ctx, publicRecords(recorded)); err != nil {
		return nil, err
	}
	var handed []cni.Attachment
	for _, r := range own {
		err := c.cache().Put(r)
		if err == nil {
			err = c.store().Remove(r.Attachment)
		}
		if err != nil {
			return handed, of(r.Attachment, err)
		}
		handed = append(handed, r.Attachment)
	}
	return handed, nil
}
