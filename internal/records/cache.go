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
	"github.com/tenon-cni/tenon/internal/statefile"
	"github.com/tenon-cni/tenon/network/config"
)

// Cache is the cache directory of libcni. It has a file for each attachment, named after the parts
// of its key. These names are ambiguous, so the key in the file is authoritative.
type Cache struct{ Dir string }

func (c Cache) results() string { return filepath.Join(c.Dir, "results") }

func (c Cache) path(a cni.Attachment) string {
	return filepath.Join(c.results(), a.Network+"-"+a.Container+"-"+a.IfName)
}

// cacheKind is the format of the files since libcni 0.8. Older releases stored only the result.
const cacheKind = "cniCacheV1"

// clockTick is the maximum lag of file times behind the clock.
const clockTick = 10 * time.Millisecond

type wireCached struct {
	Kind           json.RawMessage            `json:"kind"`
	Container      string                     `json:"containerId"`
	Config         []byte                     `json:"config"` // without plugins from drop-ins
	IfName         string                     `json:"ifName"`
	Network        string                     `json:"networkName"`
	Netns          string                     `json:"netns,omitempty"`
	Args           [][2]string                `json:"cniArgs,omitempty"`
	CapabilityArgs map[string]json.RawMessage `json:"capabilityArgs,omitempty"`
	Result         json.RawMessage            `json:"result,omitempty"`

	CNIVersion string `json:"cniVersion,omitempty"` // set if the file is a bare result
}

// BareResult is the error of a file that holds only the result.
type BareResult struct {
	error
	Result *cni.Result
}

func (e BareResult) Unwrap() error { return e.error }

// decodeCached decodes a file of libcni. The error for a file in the old format is a [BareResult].
// An unreadable result does not affect the rest. The list may have no plugins.
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
		bare := cni.Errorf(cni.CodeDecodingFailure,
			"an old release of libcni stored only the result, without configuration and arguments")
		return nil, BareResult{bare, result}
	}
	if string(w.Kind) != `"`+cacheKind+`"` {
		return nil, cni.Errorf(cni.CodeDecodingFailure,
			"cached attachment: kind is %s, not %q", w.kind(), cacheKind)
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
	r.List.Name = w.Network // a caller may have run the configuration under a different name
	r.Result, r.ResultErr = readResult("cached attachment", w.Result, r.List.Version)
	if r.Netns == "" && r.Result != nil { // older releases do not store the network namespace
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
	path := c.path(a)
	r, err := c.read(path)
	absent := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENAMETOOLONG)
	if absent || err == nil && r.Attachment != a {
		return nil, cni.Errorf(cni.CodeUnknownContainer, "%w", ErrNoRecord)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

func (c Cache) read(path string) (*Record, error) {
	b, err := statefile.ReadFile(path)
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

// Scan reads the attachments of a network, or of all networks if network is empty, in the order of
// file names. It skips files of the old format, which do not name their attachment, unreadable
// files and files with a wrong name.
func (c Cache) Scan(network string) ([]Found, error) {
	entries, err := readDir(c.results(), "attachments of libcni")
	var found []Found
	for _, e := range entries {
		path := filepath.Join(c.results(), e.Name())
		r, err := c.read(path)
		if err == nil && path == c.path(r.Attachment) &&
			(network == "" || network == r.Attachment.Network) {
			found = append(found, Found{Owner: r.Attachment.Owner(), Record: r})
		}
	}
	return found, err
}

// Unreadable returns the keys that unreadable files of a network, and files in the old format, may
// represent: all ways to split the file name into container and interface.
func (c Cache) Unreadable(network string) (keys []cni.Attachment, err error) {
	entries, err := readDir(c.results(), "attachments of libcni")
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), network+"-")
		if !ok {
			continue
		}
		_, err := c.read(filepath.Join(c.results(), e.Name()))
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		for i, char := range rest {
			a := cni.Attachment{Network: network, Container: rest[:i],
				IfName: rest[min(i+1, len(rest)):]}
			if char == '-' && a.Validate() == nil {
				keys = append(keys, a)
			}
		}
	}
	return keys, err
}

// Remove removes the file of an attachment, readable or not, unless it belongs to another
// attachment.
func (c Cache) Remove(a cni.Attachment) error {
	if _, err := c.Get(a); errors.Is(err, ErrNoRecord) {
		return nil
	}
	return ioFailure("remove cached attachment", removeFile(c.path(a)))
}

// Put writes an attachment as libcni does after ADD.
func (c Cache) Put(r *Record) error {
	config, err := r.List.MarshalJSON()
	if err != nil {
		return fmt.Errorf("cached attachment: %w", err)
	}
	w := wireCached{
		Kind: json.RawMessage(`"` + cacheKind + `"`), Config: config,
		Netns: r.Netns, CapabilityArgs: r.Capabilities,
		Network: r.Attachment.Network, Container: r.Attachment.Container,
		IfName: r.Attachment.IfName,
	}
	for _, a := range r.Args {
		w.Args = append(w.Args, [2]string{a.Key, a.Value})
	}
	if r.Result != nil {
		w.Result, err = r.Result.Encode(r.List.Version)
		if err != nil && r.List.Version.PrevResultOnDel() {
			return fmt.Errorf("cached attachment: %w", err)
		}
	}
	b, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("cached attachment: %w", err)
	}
	err = os.MkdirAll(c.results(), 0o700)
	if err == nil {
		err = replaceFile(c.path(r.Attachment), b)
	}
	return ioFailure("store cached attachment", err)
}
