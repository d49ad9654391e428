package network

import (
	"context"
	"errors"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
)

// HandOver hands the recorded attachments over to libcni and the upstream plugins. do prepares the
// attachments for upstream's CHECK and DEL; it gets the records of all runtimes, oldest first,
// while no ADD, DEL or GC runs on their networks. When do has succeeded, HandOver writes the
// attachments of [Client.Runtime] in StateDir to CacheDir in the format of libcni and removes their
// records, so that a runtime that uses libcni can detach them with the original configuration and
// result. Records of other runtimes, also those in other registered state directories, stay, because
// those runtimes read them.
//
// HandOver returns the attachments that libcni now manages. It changes nothing and returns an error
// if a record cannot be read or a network stays busy for longer than [Client.Timeout]. It returns
// [cni.CodeInvalidConfig] if there are attachments to hand over and CacheDir is [NoCacheDir].
func (c *Client) HandOver(
	ctx context.Context, do func(context.Context, []Record) error,
) ([]cni.Attachment, error) {
	all, err := c.runtimes()
	if err != nil {
		return nil, err
	}
	_, unlock, err := c.lockRecorded(ctx, all, func(cni.Owner) bool { return true })
	defer unlock()
	if err != nil {
		return nil, err
	}
	found, err := scanAll(all)
	recorded, damaged := readable(found)
	if err := errors.Join(err, damaged); err != nil {
		return nil, err
	}
	var own []*records.Record
	for _, r := range recorded {
		if r.StateDir == c.stateDir() && r.Runtime == c.Runtime {
			own = append(own, r)
		}
	}
	if len(own) > 0 && c.cacheDir() == "" {
		return nil, cni.Errorf(cni.CodeInvalidConfig,
			"no cache directory of libcni to hand attachments over to")
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
