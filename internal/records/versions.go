package records

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// Versions is a file of the state directory with the replies of plugins to VERSION. A reply is
// valid while the binary is the same file with the same content. If two processes store
// concurrently, the replies of one are lost, and the next negotiation asks these plugins again.
type Versions struct {
	path    string
	entries map[string]Answer // by path of the binary
	changed bool
}

// Answer is the reply of one binary.
type Answer struct {
	Identity statefile.Identity `json:"identity"`
	Versions []string           `json:"versions"`
}

// Get returns the versions that a binary supports; nil if they are unknown.
func (c *Versions) Get(path string, id statefile.Identity) []string {
	if e, ok := c.entries[path]; ok && e.Identity == id {
		return e.Versions
	}
	return nil
}

// Put adds a reply, unless the identity of the binary is unknown.
func (c *Versions) Put(path string, e Answer) {
	if e.Identity != (statefile.Identity{}) {
		c.entries[path], c.changed = e, true
	}
}

// versionsKind is the format of the file. It never changes; a new format gets a new kind.
const versionsKind = "tenonVersionsV1"

type wireVersions struct {
	Kind        string            `json:"kind"`
	Executables map[string]Answer `json:"executables"`
}

// ReadVersions reads the file in a state directory. It treats a missing or damaged file as empty.
func ReadVersions(stateDir string) *Versions {
	c := &Versions{path: filepath.Join(stateDir, "versions.json")}
	b, err := statefile.ReadFile(c.path)
	if err == nil {
		c.entries, err = decodeVersions(b)
	}
	if err != nil {
		c.entries = map[string]Answer{}
	}
	return c
}

// decodeVersions returns the replies in a file. It refuses a file with a reply that no plugin can
// give.
func decodeVersions(b []byte) (map[string]Answer, error) {
	var w wireVersions
	if err := json.Unmarshal(b, &w); err != nil {
		return nil, cni.DecodeFailure("versions of plugins", err)
	}
	if w.Kind != versionsKind || w.Executables == nil {
		return nil, cni.Errorf(cni.CodeDecodingFailure,
			"versions of plugins: kind is %q, not %q", w.Kind, versionsKind)
	}
	for path, e := range w.Executables {
		invalid := func(s string) bool { return !isVersion(s) }
		if len(e.Versions) == 0 || slices.ContainsFunc(e.Versions, invalid) {
			return nil, cni.Errorf(cni.CodeDecodingFailure,
				"versions of plugins: %s supports %q", path, e.Versions)
		}
	}
	return w.Executables, nil
}

// isVersion reports whether a text is a version, whether or not this library supports it.
func isVersion(s string) bool {
	_, err := cni.ParseVersion(s)
	return s != "" && cni.CodeOf(err) != cni.CodeDecodingFailure
}

// Store writes the file if a reply was added, without binaries that no longer exist.
func (c *Versions) Store() error {
	if !c.changed {
		return nil
	}
	for path := range c.entries {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			delete(c.entries, path)
		}
	}
	b, err := json.Marshal(wireVersions{versionsKind, c.entries})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.path), 0o700); err != nil {
		return err
	}
	return statefile.Replace(c.path, b, 0o600, nil)
}
