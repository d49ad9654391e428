package network

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/regular"
	"github.com/tenon-cni/tenon/network/config"
)

// cache is the directory in which the reference library keeps what it has attached: a file for each attachment, called
// after the parts of its key. Such a name can stand for several keys, so what counts is the key in the file.
type cache struct{ dir string }

func (c *Client) cache() cache { return cacheAt(c.cacheDir()) }

func cacheAt(dir string) cache { return cache{filepath.Join(dir, "results")} }

func (c cache) path(a cni.Attachment) string {
	return filepath.Join(c.dir, a.Network+"-"+a.Container+"-"+a.IfName)
}

// cacheKind is the format of the files since release 0.8 of the reference library. Before, they held the result alone.
const cacheKind = "cniCacheV1"

// clockTick is how far the times of files may lag behind the clock.
const clockTick = 10 * time.Millisecond

type wireCached struct {
	Kind           json.RawMessage            `json:"kind"`
	Container      string                     `json:"containerId"`
	Config         []byte                     `json:"config"` // of the file, so without the plugins of drop-in files
	IfName         string                     `json:"ifName"`
	Network        string                     `json:"networkName"`
	Netns          string                     `json:"netns,omitempty"`
	Args           [][2]string                `json:"cniArgs,omitempty"`
	CapabilityArgs map[string]json.RawMessage `json:"capabilityArgs,omitempty"`
	Result         json.RawMessage            `json:"result,omitempty"`

	CNIVersion string `json:"cniVersion,omitempty"` // where the file is the result
}

// bareResult is the error of a file that holds no more than the result.
type bareResult struct {
	error
	result *cni.Result
}

func (e bareResult) Unwrap() error { return e.error }

// decodeCached reads a file of the reference library, down to the identity in it. One of its old format is a
// [bareResult]. A result that cannot be read leaves the rest usable. The list may be without plugins.
func decodeCached(b []byte) (*Record, error) {
	var w wireCached
	if err := json.Unmarshal(b, &w); err != nil {
		return nil, cni.DecodeFailure("cached attachment", err)
	}
	if w.Kind == nil && w.CNIVersion != "" {
		result, err := cni.DecodeResult(b, cni.V010)
		if err != nil {
			return nil, cni.DecodeFailure("cached attachment", err)
		}
		bare := cni.Errorf(cni.CodeDecodingFailure, "the reference library has stored the result alone, neither configuration nor arguments")
		return nil, bareResult{bare, result}
	}
	if string(w.Kind) != `"`+cacheKind+`"` {
		return nil, cni.Errorf(cni.CodeDecodingFailure, "cached attachment: kind is %s, not %q", w.kind(), cacheKind)
	}
	r := &Record{
		Attachment: cni.Attachment{Network: w.Network, Container: w.Container, IfName: w.IfName},
		State:      Attached,
		Parameters: Parameters{Netns: w.Netns, Capabilities: w.CapabilityArgs},
		Runtime:    ReferenceRuntime,
	}
	for _, pair := range w.Args {
		r.Args = append(r.Args, cni.Arg{Key: pair[0], Value: pair[1]})
	}
	if err := errors.Join(r.Attachment.Validate(), r.Parameters.validate()); err != nil {
		return nil, fmt.Errorf("cached attachment: %w", err)
	}
	n, err := config.LoadBytes(w.Config)
	if err != nil {
		return nil, fmt.Errorf("cached attachment: %w", err)
	}
	r.List = n.List
	r.List.Name = w.Network // a caller may have run the configuration under a name of its own
	r.Result, r.resultErr = readResult("cached attachment", w.Result, r.List.Version)
	if r.Netns == "" && r.Result != nil { // older releases do not store it
		for _, i := range r.Result.Interfaces {
			if i.Name == w.IfName && i.Sandbox != "" {
				r.Netns = i.Sandbox
			}
		}
	}
	return r, nil
}

func (w wireCached) kind() string {
	if w.Kind == nil {
		return "missing"
	}
	return string(w.Kind)
}

// complete adds the plugins that drop-in files had added, which the reference library does not store: those that n
// has behind the same ones. n may be nil.
func (r *Record) complete(n *config.Network) error {
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

// get reads what is stored of an attachment. The error is ErrNoRecord where there is no file, or one of another
// attachment.
func (c cache) get(a cni.Attachment) (*Record, error) {
	path := c.path(a)
	r, err := c.read(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENAMETOOLONG) || err == nil && r.Attachment != a {
		return nil, cni.Errorf(cni.CodeUnknownContainer, "%w", ErrNoRecord)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

func (c cache) read(path string) (*Record, error) {
	b, err := regular.ReadFile(path)
	if err != nil {
		return nil, cni.Errorf(cni.CodeIOFailure, "read cached attachment: %w", errors.Unwrap(err))
	}
	r, err := decodeCached(b)
	if err != nil {
		return nil, unreadable{err}
	}
	r.Source = path
	if info, err := os.Stat(path); err == nil {
		r.Created, r.Done = info.ModTime(), info.ModTime().Add(clockTick)
	}
	return r, nil
}

// scan reads what is stored of a network, or of all if that is empty, in the order of file names. Files of the old
// format, which do not tell their attachment, and those that are none or not called after it are passed over.
func (c cache) scan(network string) ([]stored, error) {
	entries, err := os.ReadDir(c.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, cni.Errorf(cni.CodeIOFailure, "attachments of the reference library: %w", err)
	}
	var found []stored
	for _, e := range entries {
		path := filepath.Join(c.dir, e.Name())
		r, err := c.read(path)
		if err != nil || path != c.path(r.Attachment) || network != "" && network != r.Attachment.Network {
			continue
		}
		found = append(found, stored{owner: r.Attachment.Owner(), record: r})
	}
	return found, nil
}

// unreadable returns the keys that files of a network may stand for which cannot be read, or are of the old format: all ways in
// which the name of the file divides into container and interface.
func (c cache) unreadable(network string) (keys []cni.Attachment, err error) {
	entries, err := os.ReadDir(c.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, cni.Errorf(cni.CodeIOFailure, "attachments of libcni: %w", err)
	}
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), network+"-")
		if !ok {
			continue
		}
		if _, err := c.read(filepath.Join(c.dir, e.Name())); err == nil || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		for i, char := range rest {
			a := cni.Attachment{Network: network, Container: rest[:i], IfName: rest[min(i+1, len(rest)):]}
			if char == '-' && a.Validate() == nil {
				keys = append(keys, a)
			}
		}
	}
	return keys, nil
}

// remove removes what is stored of an attachment, readable or not, unless it is another's.
func (c cache) remove(a cni.Attachment) error {
	if _, err := c.get(a); errors.Is(err, ErrNoRecord) {
		return nil
	}
	if err := removeFile(c.path(a)); err != nil {
		return cni.Errorf(cni.CodeIOFailure, "remove cached attachment: %w", err)
	}
	return nil
}
