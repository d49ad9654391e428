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
	"syscall"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/regular"
	"github.com/tenon-cni/tenon/network/config"
)

// Cache is the directory in which the reference library keeps what it has attached: a file for each attachment, called
// after the parts of its key. Such a name can stand for several keys, so what counts is the key in the file.
type Cache struct{ Dir string } // the cache directory of libcni

func (c Cache) results() string { return filepath.Join(c.Dir, "results") }

func (c Cache) path(a cni.Attachment) string {
	return filepath.Join(c.results(), a.Network+"-"+a.Container+"-"+a.IfName)
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

// BareResult is the error of a file that holds no more than the result.
type BareResult struct {
	error
	Result *cni.Result
}

func (e BareResult) Unwrap() error { return e.error }

// decodeCached reads a file of the reference library, down to the identity in it. One of its old format is a
// [BareResult]. A result that cannot be read leaves the rest usable. The list may be without plugins.
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
		return nil, BareResult{bare, result}
	}
	if string(w.Kind) != `"`+cacheKind+`"` {
		return nil, cni.Errorf(cni.CodeDecodingFailure, "cached attachment: kind is %s, not %q", w.kind(), cacheKind)
	}
	r := &Record{
		Attachment: cni.Attachment{Network: w.Network, Container: w.Container, IfName: w.IfName},
		State:      Attached,
		Parameters: Parameters{Netns: w.Netns, Capabilities: w.CapabilityArgs},
		Runtime:    libcniRuntime,
	}
	for _, pair := range w.Args {
		r.Args = append(r.Args, cni.Arg{Key: pair[0], Value: pair[1]})
	}
	if err := errors.Join(r.Attachment.Validate(), r.Parameters.Validate()); err != nil {
		return nil, fmt.Errorf("cached attachment: %w", err)
	}
	n, err := config.LoadBytes(w.Config)
	if err != nil {
		return nil, fmt.Errorf("cached attachment: %w", err)
	}
	r.List = n.List
	r.List.Name = w.Network // a caller may have run the configuration under a name of its own
	r.Result, r.ResultErr = readResult("cached attachment", w.Result, r.List.Version)
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

// Complete adds the plugins that drop-in files had added, which the reference library does not store: those that n
// has behind the same ones. n may be nil.
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

// Get reads what is stored of an attachment. The error is ErrNoRecord where there is no file, or one of another
// attachment.
func (c Cache) Get(a cni.Attachment) (*Record, error) {
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

func (c Cache) read(path string) (*Record, error) {
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

// Scan reads what is stored of a network, or of all if that is empty, in the order of file names. Files of the old
// format, which do not tell their attachment, and those that are none or not called after it are passed over.
func (c Cache) Scan(network string) ([]Found, error) {
	entries, err := os.ReadDir(c.results())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, cni.Errorf(cni.CodeIOFailure, "attachments of the reference library: %w", err)
	}
	var found []Found
	for _, e := range entries {
		path := filepath.Join(c.results(), e.Name())
		r, err := c.read(path)
		if err != nil || path != c.path(r.Attachment) || network != "" && network != r.Attachment.Network {
			continue
		}
		found = append(found, Found{Owner: r.Attachment.Owner(), Record: r})
	}
	return found, nil
}

// Unreadable returns the keys that files of a network may stand for which cannot be read, or are of the old format: all ways in
// which the name of the file divides into container and interface.
func (c Cache) Unreadable(network string) (keys []cni.Attachment, err error) {
	entries, err := os.ReadDir(c.results())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, cni.Errorf(cni.CodeIOFailure, "attachments of libcni: %w", err)
	}
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), network+"-")
		if !ok {
			continue
		}
		if _, err := c.read(filepath.Join(c.results(), e.Name())); err == nil || errors.Is(err, fs.ErrNotExist) {
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

// Remove removes what is stored of an attachment, readable or not, unless it is another's.
func (c Cache) Remove(a cni.Attachment) error {
	if _, err := c.Get(a); errors.Is(err, ErrNoRecord) {
		return nil
	}
	if err := removeFile(c.path(a)); err != nil {
		return cni.Errorf(cni.CodeIOFailure, "remove cached attachment: %w", err)
	}
	return nil
}

// Put writes an attachment as libcni does after ADD.
func (c Cache) Put(r *Record) error {
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
	if err := os.MkdirAll(c.results(), 0o700); err != nil {
		return cni.Errorf(cni.CodeIOFailure, "store cached attachment: %w", err)
	}
	if err := replaceFile(c.path(r.Attachment), b); err != nil {
		return cni.Errorf(cni.CodeIOFailure, "store cached attachment: %w", err)
	}
	return nil
}
