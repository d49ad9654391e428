package config_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/statefile"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// checksummed is a set of plugins with the version of the network twice in their configurations.
// They fail if the two differ in one plugin, or between the first and the last plugin of a list: no
// writer intended that.
type checksummed struct {
	mu       sync.Mutex
	versions map[string]int // by container, as the first plugin received it
	seen     map[int]bool   // versions that were used
	together bool           // the drop-in is replaced together with the list
}

func (c *checksummed) plugin(check func(container string,
	version int) error) map[cni.Command]invoke.Handler {
	return map[cni.Command]invoke.Handler{cni.Add: func(_ context.Context,
		call invoke.Call) ([]byte, bool) {
		e, stdin := call.Env, call.Stdin
		var conf struct{ V, W int }
		err := json.Unmarshal(stdin, &conf)
		if err == nil && conf.V != conf.W {
			err = fmt.Errorf("half of version %d, half of %d", conf.V, conf.W)
		}
		if err == nil {
			c.mu.Lock()
			err = check(e.ContainerID, conf.V)
			c.mu.Unlock()
		}
		if err != nil {
			return cni.Errorf(cni.CodeInvalidConfig, "%w", err).Encode(cni.Newest), false
		}
		return []byte("{}"), true
	}}
}

func (c *checksummed) plugins() invoke.Fake {
	asBefore := func(container string, version int) error {
		if first := c.versions[container]; first != version {
			return fmt.Errorf("version %d after %d", version, first)
		}
		return nil
	}
	return invoke.Fake{
		"first": c.plugin(func(container string, version int) error {
			c.versions[container], c.seen[version] = version, true
			return nil
		}),
		"last": c.plugin(asBefore),
		"drop": c.plugin(func(container string, version int) error {
			if !c.together {
				return nil
			}
			return asBefore(container, version)
		}),
	}
}

// versioned returns a plugin of a version of the network.
func versioned(typ string, version int) string {
	return fmt.Sprintf(`{"type":%q,"v":%d,"more":"................................","w":%d}`, typ,
		version, version)
}

func versionedList(version int) string {
	return fmt.Sprintf(`{"cniVersion":"1.1.0","name":"red","plugins":[%s,%s]}`,
		versioned("first", version), versioned("last", version))
}

// under attaches and detaches at least atLeast containers until the writer of the directory ends,
// and fails if any operation fails.
func under(t *testing.T, atLeast int, c *checksummed, f *config.Directory, write func()) {
	t.Helper()
	c.versions, c.seen = map[string]int{}, map[int]bool{}
	client := &network.Client{Isolated: true, Caller: c.plugins(), StateDir: t.TempDir(),
		Log: quiet}
	var wrote atomic.Bool
	var running sync.WaitGroup
	running.Go(func() {
		defer wrote.Store(true)
		write()
	})
	const workers = 4
	for w := range workers {
		running.Go(func() {
			for i := 0; i < atLeast/workers || !wrote.Load(); i++ {
				q := request(fmt.Sprintf("c%d-%d", w, i))
				s := f.Snapshot()
				n, err := s.Network("red")
				if err == nil {
					c := *client
					c.Policy = s.Policy
					_, err = c.Add(t.Context(), n, q)
				}
				if err == nil {
					err = client.Del(t.Context(), q.Attachment("red"), network.Fallback{})
				}
				if err != nil {
					t.Errorf("ADD %d: %s\n%s", i, describe(err), inUse(s, s.Dir))
					return
				}
			}
		})
	}
	running.Wait()
	t.Logf("%d snapshots, %d attachments, %d versions", f.Snapshot().Generation, len(c.versions),
		len(c.seen))
	if f.Snapshot().Generation < 20 || len(c.seen) < 10 {
		t.Error("too few reloads")
	}
}

// a configuration directory is rewritten carelessly 1000 times during 1000 ADDs. No ADD
// fails, and none uses a mixture of two versions.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	w := &carelessWriter{t: t, dir: filepath.Join(root, "net.d"), rand: rand.New(rand.NewPCG(1, 2))}
	w.fill(w.dir)
	f := openDirectory(t, config.Options{Dir: w.dir, Linger: time.Minute})
	rounds := 1000
	if testing.Short() {
		rounds = 200
	}
	under(t, rounds, &checksummed{}, f, func() {
		for range rounds {
			w.change()
			if w.rand.IntN(8) == 0 { // pause, so that there are new snapshots
				time.Sleep(15 * time.Millisecond)
			}
			if w.rand.IntN(50) == 0 {
				time.Sleep(40 * time.Millisecond)
			}
		}
		w.fill(w.dir)
	})
	if s := f.Reload(); s.Err() != nil || types(s.Networks[0]) != "first,last,drop" {
		t.Error(inUse(s, w.dir))
	}
}

// carelessWriter changes a directory in ways that real writers do.
type carelessWriter struct {
	t       *testing.T
	dir     string
	rand    *rand.Rand
	version int
}

func (w *carelessWriter) must(errs ...error) {
	for _, err := range errs {
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			w.t.Error(err)
		}
	}
}

// content returns a new version of one of the files.
func (w *carelessWriter) content(file string) string {
	w.version++
	switch file {
	case "red/drop.conf":
		return versioned("drop", w.version)
	case config.PolicyName:
		return `{"requiredPlugins":{"red":["last","first"],"other":[]}}`
	}
	return versionedList(w.version)
}

var careless = []string{"10-red.conflist", "10-red.conflist", "red/drop.conf", config.PolicyName}

// fill writes all files into a directory.
func (w *carelessWriter) fill(dir string) {
	w.must(os.MkdirAll(filepath.Join(dir, "red"), 0o700))
	for _, file := range careless[1:] {
		w.must(os.WriteFile(filepath.Join(dir, file), []byte(w.content(file)), 0o600))
	}
}

// change makes one change.
func (w *carelessWriter) change() {
	file := careless[w.rand.IntN(len(careless))]
	path, content := filepath.Join(w.dir, file), []byte(w.content(file))
	switch w.rand.IntN(8) {
	case 0: // the correct way
		w.must(os.WriteFile(path+".tmp", content, 0o600), os.Rename(path+".tmp", path))
	case 1, 2: // in place, in pieces
		w.inPlace(path, content)
	case 3: // truncated
		w.must(os.Truncate(path, int64(w.rand.IntN(len(content)))))
	case 4: // removed
		w.must(os.Remove(path))
	case 5: // all removed, and restored file by file
		w.must(os.RemoveAll(w.dir))
		w.fill(w.dir)
	case 6: // the directory replaced
		w.fill(w.dir + ".new")
		w.must(unix.Renameat2(unix.AT_FDCWD, w.dir+".new", unix.AT_FDCWD, w.dir,
			unix.RENAME_EXCHANGE), os.RemoveAll(w.dir+".new"))
	case 7: // an irrelevant file, and a later broken file with the same name
		w.must(os.WriteFile(filepath.Join(w.dir, ".x.swp"), content, 0o600),
			os.WriteFile(filepath.Join(w.dir, "90-red.conf"), content[:len(content)/2], 0o600))
		w.must(os.Remove(filepath.Join(w.dir, "90-red.conf")))
	}
}

func (w *carelessWriter) inPlace(path string, content []byte) {
	f, err := os.Create(path)
	if w.must(err); err != nil {
		return
	}
	cut := w.rand.IntN(len(content))
	_, err = f.Write(content[:cut])
	w.must(err)
	if w.rand.IntN(8) == 0 {
		time.Sleep(time.Duration(w.rand.IntN(40)) * time.Millisecond)
	}
	_, err = f.Write(content[cut:])
	w.must(err, f.Close())
}

// Two writes to a file within one clock tick leave the same times, so a file is used only after
// that time.
func TestReloadWaitsForTick(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"10.conflist": versionedList(0)})
	f := openDirectory(t, config.Options{Dir: dir, NoWatch: true})
	path := filepath.Join(dir, "10.conflist")
	for version := range 10 {
		put(t, versionedList(version+1), path)
		if s := f.Reload(); s.Generation != uint64(version+2) {
			t.Fatalf("generation %d", s.Generation)
		}
		settles := statefile.Identify(path).Settles(time.Now())
		if settles > 0 && settles < 2*config.Tick { // a tick of a second is too long to wait for
			t.Errorf("used %v too early", settles)
		}
	}
}

// If all files are replaced at once, as Kubernetes does, the list and its drop-in always have the
// same version.
func TestReloadTogether(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.Symlink("..data/10.conflist", filepath.Join(dir, "10.conflist")),
		os.Symlink("..data/red", filepath.Join(dir, "red")))
	swap := func(version int) {
		name := fmt.Sprintf("..%d", version%3)
		must(t, os.RemoveAll(filepath.Join(dir, name)))
		put(t, versionedList(version), dir, name, "10.conflist")
		put(t, versioned("drop", version), dir, name, "red", "drop.conf")
		must(t, os.Symlink(name, filepath.Join(dir, "..tmp")),
			os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
	}
	swap(0)
	f := openDirectory(t, config.Options{Dir: dir, Linger: time.Minute})
	under(t, 200, &checksummed{together: true}, f, func() {
		done := make(chan struct{})
		var reading sync.WaitGroup
		reading.Go(func() { // reload during each replacement
			for {
				select {
				case <-done:
					return
				default:
					f.Reload()
				}
			}
		})
		for version := range 300 {
			swap(version + 1)
			if version%5 == 0 {
				time.Sleep(20 * time.Millisecond)
			}
		}
		close(done)
		reading.Wait()
	})
	b, err := json.Marshal(f.Reload().Networks[0].List)
	if err != nil || strings.Count(string(b), `"v":300`) != 3 {
		t.Errorf("%s, %v", b, err)
	}
}
