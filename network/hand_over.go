package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/tenon-cni/tenon/cni"
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
	records, damaged := readable(found)
	if err := errors.Join(err, damaged); err != nil {
		return nil, err
	}
	var own []Record
	for _, r := range records {
		if r.Source == "" && r.Runtime == c.Runtime {
			own = append(own, r)
		}
	}
	if len(own) > 0 && c.cacheDir() == "" {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "there is no cache directory of libcni to hand attachments over to")
	}
	if err := do(ctx, records); err != nil {
		return nil, err
	}
	var handed []cni.Attachment
	for _, r := range own {
		err := c.cache().put(&r)
		if err == nil {
			err = c.store().remove(r.Attachment)
		}
		if err != nil {
			return handed, fmt.Errorf("%v: %w", r.Attachment, err)
		}
		handed = append(handed, r.Attachment)
	}
	return handed, nil
}

// put writes an attachment as libcni does after ADD.
func (c cache) put(r *Record) error {
	config, err := r.List.MarshalJSON()
	if err != nil {
		return fmt.Errorf("cached attachment: %w", err)
	}
	w := wireCached{
		Kind: json.RawMessage(`"` + cacheKind + `"`), Config: config, Netns: r.Netns, CapabilityArgs: r.Capabilities,
		Network: r.Attachment.Network, Container: r.Attachment.Container, IfName: r.Attachment.IfName,
	}
	for _, a := range r.Args {
		w.Args = append(w.Args, [2]string{a.Key, a.Value})
	}
	if r.Result != nil {
		if w.Result, err = r.Result.Encode(r.List.Version); err != nil && r.List.Version.PrevResultOnDel() {
			return fmt.Errorf("cached attachment: %w", err)
		}
	}
	b, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("cached attachment: %w", err)
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return cni.Errorf(cni.CodeIOFailure, "store cached attachment: %w", err)
	}
	if err := replaceFile(c.path(r.Attachment), b); err != nil {
		return cni.Errorf(cni.CodeIOFailure, "store cached attachment: %w", err)
	}
	return nil
}
