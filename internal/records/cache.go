package records

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network/cache"
	"github.com/tenon-cni/tenon/network/config"
)

// Cache is a cache directory of libcni. Package cache reads and writes its files.
type Cache struct{ Dir string }

func (c Cache) dir() cache.Dir { return cache.Dir(c.Dir) }

// clockTick is the maximum lag of file times behind the clock.
const clockTick = 10 * time.Millisecond

// BareResult is the error of a file that holds only the result.
type BareResult struct {
	error
	Result *cni.Result
}

func (e BareResult) Unwrap() error { return e.error }

// decodeCached decodes a file of libcni; see recordOf and formatError.
func decodeCached(b []byte) (*Record, error) {
	e, err := cache.Decode(b)
	if err != nil {
		return nil, formatError(err)
	}
	return recordOf(e)
}

// formatError returns a [BareResult] for a [*cache.FormatError] about a file in the old format, and
// otherwise an error with [cni.CodeDecodingFailure].
func formatError(err error) error {
	format := (*cache.FormatError)(nil)
	var header struct {
		CNIVersion string `json:"cniVersion"`
	}
	if errors.As(err, &format) && format.Err == nil && format.Kind == nil &&
		json.Unmarshal(format.Content, &header) == nil && header.CNIVersion != "" {
		result, err := cni.DecodeResult(format.Content, cni.V010)
		if err != nil {
			return cni.DecodeFailure("cached attachment", err)
		}
		bare := cni.Errorf(cni.CodeDecodingFailure,
			"an old release of libcni stored only the result, without configuration and arguments")
		return BareResult{bare, result}
	}
	return cni.DecodeFailure("cached attachment", err)
}

// recordOf returns the record of an entry in the cache of libcni. An unreadable result does not
// affect the rest. The list may have no plugins.
func recordOf(e *cache.Entry) (*Record, error) {
	r := &Record{
		Attachment: e.Attachment,
		State:      Attached,
		Parameters: Parameters{Netns: e.Netns, Args: e.Args, Capabilities: e.CapabilityArgs},
		Runtime:    libcniRuntime,
	}
	if err := errors.Join(r.Attachment.Validate(), r.Parameters.Validate()); err != nil {
		return nil, fmt.Errorf("cached attachment: %w", err)
	}
	n, err := config.LoadBytes(e.Config)
	if err != nil {
		return nil, fmt.Errorf("cached attachment: %w", err)
	}
	r.List = n.List
	r.List.Name = e.Attachment.Network // a caller may have run the configuration under another name
	r.Result, r.ResultErr = readResult("cached attachment", e.Result, r.List.Version)
	if r.Netns == "" && r.Result != nil {
		for _, i := range r.Result.Interfaces {
			if i.Name == e.Attachment.IfName && i.Sandbox != "" {
				r.Netns = i.Sandbox
			}
		}
	}
	return r, nil
}

// Complete adds the plugins from drop-in files, which libcni does not store, to a record of libcni:
// the plugins of n after the recorded ones. n may be nil.
func (r *Record) Complete(n *config.Network) error {
	if r.Source == "" {
		return nil
	}
	l := r.List
	if n != nil && !l.OnlyInlined && len(n.Plugins) > len(l.Plugins) {
		same := true
		for i, p := range l.Plugins {
			same = same && equalConfig(p, n.Plugins[i])
		}
		if same {
			l.Append(n.Plugins[len(l.Plugins):]...)
		}
	}
	return (&config.Network{List: l}).Validate()
}

func equalConfig(a, b *cni.PluginConfig) bool {
	x, err := a.MarshalJSON()
	y, otherErr := b.MarshalJSON()
	return err == nil && otherErr == nil && bytes.Equal(x, y)
}

// Get reads the file of an attachment. It returns an error wrapping [ErrNoRecord] if the file does
// not exist or belongs to another attachment.
func (c Cache) Get(a cni.Attachment) (*Record, error) {
	path, err := c.dir().Path(a)
	if err != nil {
		return nil, err
	}
	e, err := c.dir().Get(a)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cni.Errorf(cni.CodeUnknownContainer, "%w", ErrNoRecord)
	}
	r, err := record(path, e, err)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// record returns the record of the file at a path, given its content or the error from reading it.
func record(path string, e *cache.Entry, err error) (*Record, error) {
	if io := (*fs.PathError)(nil); errors.As(err, &io) {
		return nil, cni.Errorf(cni.CodeIOFailure, "read cached attachment: %w", io.Err)
	}
	if err != nil {
		return nil, unreadable{formatError(err)}
	}
	r, err := recordOf(e)
	if err != nil {
		return nil, unreadable{err}
	}
	r.Source = path
	if info, err := os.Stat(path); err == nil {
		r.Created, r.Done = info.ModTime(), info.ModTime().Add(clockTick)
	}
	return r, nil
}

// each calls f for each file with this prefix, in the order of names. It passes the path and the
// record, or the error from reading it.
func (c Cache) each(prefix string, f func(path string, r *Record, err error)) error {
	paths, err := c.dir().Files()
	for _, path := range paths {
		if strings.HasPrefix(filepath.Base(path), prefix) {
			e, err := cache.ReadFile(path)
			r, err := record(path, e, err)
			f(path, r, err)
		}
	}
	return ioFailure("attachments of libcni", err)
}

// Scan reads the attachments of a network, or of all networks if network is empty, in the order of
// file names. It skips files of the old format, which do not name their attachment, unreadable
// files and files with a wrong name.
func (c Cache) Scan(network string) ([]Found, error) {
	var found []Found
	err := c.each("", func(path string, r *Record, err error) {
		if err != nil || network != "" && network != r.Attachment.Network {
			return
		}
		if own, err := c.dir().Path(r.Attachment); err == nil && own == path {
			found = append(found, Found{Owner: r.Attachment.Owner(), Record: r})
		}
	})
	return found, err
}

// Unreadable returns the keys that unreadable files of a network, and files in the old format, may
// represent: all ways to split the file name into container and interface.
func (c Cache) Unreadable(network string) (keys []cni.Attachment, err error) {
	prefix := network + "-"
	err = c.each(prefix, func(path string, _ *Record, err error) {
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return
		}
		rest := strings.TrimPrefix(filepath.Base(path), prefix)
		for i, char := range rest {
			a := cni.Attachment{Network: network, Container: rest[:i],
				IfName: rest[min(i+1, len(rest)):]}
			if char == '-' && a.Validate() == nil {
				keys = append(keys, a)
			}
		}
	})
	return keys, err
}

// Remove removes the file of an attachment, readable or not, unless it belongs to another
// attachment.
func (c Cache) Remove(a cni.Attachment) error {
	return ioFailure("remove cached attachment", c.dir().Remove(a))
}

// Put writes an attachment as libcni does after ADD.
func (c Cache) Put(r *Record) error {
	config, err := r.List.MarshalJSON()
	if err != nil {
		return fmt.Errorf("cached attachment: %w", err)
	}
	e := &cache.Entry{Attachment: r.Attachment, Config: config, Netns: r.Netns, Args: r.Args,
		CapabilityArgs: r.Capabilities}
	if r.Result != nil {
		e.Result, err = r.Result.Encode(r.List.Version)
		if err != nil && r.List.Version.PrevResultOnDel() {
			return fmt.Errorf("cached attachment: %w", err)
		}
	}
	return ioFailure("store cached attachment", c.dir().Put(e))
}
