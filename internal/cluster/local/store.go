package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// Clock reads the two clocks of a [Deadline]. The wall time has no monotonic reading.
type Clock func() (boot time.Duration, wall time.Time)

// Options select a store. Zero fields stand for the values of the running system.
type Options struct {
	Dir    string // DefaultDir
	BootID string
	Clock  Clock
	Change ipam.Change // makes the changes to reservations; see filestore.Options
	Log    *slog.Logger
	// Existing makes Open create no directory, for callers that neither allocate nor save.
	Existing bool
}

// Store is the state of a node. It is safe for concurrent use.
type Store struct {
	o    Options
	boot func() (string, error)
}

// New returns the store of a directory. It does no I/O.
func New(o Options) *Store {
	if o.Dir == "" {
		o.Dir = DefaultDir
	}
	if o.Clock == nil {
		o.Clock = clock
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	boot := sync.OnceValues(statefile.BootID)
	if o.BootID != "" {
		boot = func() (string, error) { return o.BootID, nil }
	}
	return &Store{o, boot}
}

// clock reads the clocks of the system.
func clock() (boot time.Duration, wall time.Time) {
	var up unix.Timespec
	// CLOCK_BOOTTIME exists since Linux 2.6.39, so reading it cannot fail.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &up)
	return time.Duration(up.Nano()), time.Now().Round(0)
}

// Clock returns the clocks of the store.
func (s *Store) Clock() Clock { return s.o.Clock }

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.o.Dir}, parts...)...)
}

const (
	poolsDir     = "pools"
	addressesDir = "addresses"
	notesDir     = "notes"
	auditDir     = "audit"
	suffix       = ".json"
)

func (s *Store) statePath(pool string) string { return s.path(poolsDir, pool+suffix) }

// Dirs returns the directories in which the states and reservations of pools change, for programs
// that watch them. Some of them may not exist yet.
func (s *Store) Dirs(pools []string) []string {
	dirs := []string{s.path(poolsDir)}
	for _, pool := range pools {
		dirs = append(dirs, s.path(addressesDir, pool))
	}
	return dirs
}

// Pools returns the names of the pools that have a state or reservations, sorted.
func (s *Store) Pools() ([]string, error) {
	var all []string
	for dir, end := range map[string]string{poolsDir: suffix, addressesDir: ""} {
		files, err := statefile.NamesIn(s.path(dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, file := range files {
			name, ok := strings.CutSuffix(file, end)
			info, err := os.Lstat(s.path(dir, file))
			if ok && err == nil && info.IsDir() == (end == "") && cluster.ValidateName(name) == nil {
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// Node reads node.json. The error wraps fs.ErrNotExist if no agent has run.
func (s *Store) Node() (Node, error) {
	path := s.path("node.json")
	b, err := statefile.ReadFile(path)
	if err != nil {
		return Node{}, err
	}
	return decode[Node](path, b)
}

// SetNode writes node.json atomically and durably.
func (s *Store) SetNode(n Node) error {
	n.Schema = cluster.Schema
	return save(s.path("node.json"), n)
}

// Contact returns the time of the last contact with the store. The error wraps fs.ErrNotExist if
// there was none.
func (s *Store) Contact() (time.Time, error) {
	info, err := os.Stat(s.path("contact"))
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// SetContact sets the time of the last contact to now.
func (s *Store) SetContact() error {
	path := s.path("contact")
	_, now := s.o.Clock()
	err := os.Chtimes(path, now, now)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(s.o.Dir, 0o755); err != nil {
		return err
	}
	if err := statefile.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	return os.Chtimes(path, now, now)
}

// ErrSchema reports that a newer program has written the file. Use errors.Is.
var ErrSchema = errors.New("a newer version of Tenon has written this file; update this program")

// ErrDamaged reports that a file cannot be decoded. The agent writes a damaged state again. Use
// errors.Is.
var ErrDamaged = errors.New("the file is damaged")

// versioned is a document with a schema.
type versioned interface{ schema() int }

func (n Node) schema() int { return n.Schema }

func (s State) schema() int { return s.Schema }

func (n Note) schema() int { return n.Schema }

// decode decodes a file. The error wraps ErrSchema or ErrDamaged and names the path.
func decode[T versioned](path string, b []byte) (v T, err error) {
	schema := 0
	if err = json.Unmarshal(b, &v); err == nil {
		schema = v.schema()
	} else {
		var head struct {
			Schema int `json:"schema"`
		}
		if json.Unmarshal(b, &head) == nil { // the newer schema has other types
			schema = head.Schema
		}
	}
	switch {
	case schema > cluster.Schema:
		return *new(T), fmt.Errorf("%s: %w", path, ErrSchema)
	case err != nil:
		return *new(T), fmt.Errorf("%s: %w: %w", path, ErrDamaged, err)
	case schema < 1:
		return *new(T), fmt.Errorf("%s: %w: it has no schema", path, ErrDamaged)
	}
	return v, nil
}

// save writes a file atomically and durably.
func save(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return replace(path, append(b, '\n'))
}

// replace writes the content of a file atomically and durably.
func replace(path string, content []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := statefile.Replace(path, content, 0o600, nil); err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir makes changes to a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
