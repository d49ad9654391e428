package config_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// openDirectory opens a directory that is read only when the kernel reports a change.
func openDirectory(t *testing.T, o config.Options) *config.Directory {
	t.Helper()
	if o.Rescan == 0 {
		o.Rescan = -1
	}
	if o.Log == nil {
		o.Log = quiet
	}
	f, err := config.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// eventually waits for the configuration in use to equal want.
func eventually(t *testing.T, f *config.Directory, want string) {
	t.Helper()
	testnet.Eventually(t, func() error {
		s := f.Snapshot()
		lines := strings.Split(inUse(s, s.Dir), "\n")
		for i, line := range lines {
			lines[i], _, _ = strings.Cut(line, " since ")
		}
		if got := strings.Join(lines, "\n"); got != want {
			return fmt.Errorf("in use:\n%s\nwanted:\n%s", got, want)
		}
		return nil
	})
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// put replaces a file atomically.
func put(t *testing.T, content string, path ...string) {
	t.Helper()
	to := filepath.Join(path...)
	must(t, os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to+".tmp", []byte(content), 0o600),
		os.Rename(to+".tmp", to))
}

// A Directory notices every change, regardless of how it is made.
func TestDirectoryFollows(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"10.conflist": conf("red", "a"), "mesh": `{"type":"x"}`})
	f := openDirectory(t, config.Options{Dir: dir, Linger: -1})
	in := func(name string) string { return filepath.Join(dir, name) }
	eventually(t, f, "red (a)")

	put(t, conf("red", "b"), in("10.conflist"))
	eventually(t, f, "red (b)")
	must(t, os.WriteFile(in("10.conflist"), []byte(conf("red", "c")), 0o600))
	eventually(t, f, "red (c)")
	must(t, os.Mkdir(in("red"), 0o700))
	must(t, os.Link(in("mesh"), in("red/x.conf")))
	eventually(t, f, "red (c,x)")
	must(t, os.WriteFile(in("mesh"), []byte(`{"type":"y"}`), 0o600),
		os.Chtimes(in("red/x.conf"), time.Now(), time.Now()))
	eventually(t, f, "red (c,y)")
	must(t, os.RemoveAll(in("red")))
	eventually(t, f, "red (c)")
	put(t, needs("c"), in("tenon.policy"))
	eventually(t, f, "red (c)\npolicy c")
	must(t, os.Remove(in("tenon.policy")))
	eventually(t, f, "red (c)")
	must(t, os.Symlink("mesh", in("20.conf")))
	eventually(t, f, "red (c)\n! DIR/20.conf: network name is missing")
	must(t, os.Remove(in("20.conf")))
	eventually(t, f, "red (c)")
	put(t, conf("blue", "d"), in("05.conflist"))
	eventually(t, f, "blue (d)\nred (c)")
	must(t, os.Rename(in("05.conflist"), in("15.conflist")))
	eventually(t, f, "red (c)\nblue (d)")
	must(t, os.Remove(in("10.conflist")))
	eventually(t, f, "blue (d)")
}

// a broken file does not remove its network, and the snapshot and the log report the problem.
func TestDirectoryKeepsLastGood(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"10.conflist": conf("red", "a")})
	var log bytes.Buffer
	f := openDirectory(t, config.Options{Dir: dir, NoWatch: true,
		Log: slog.New(slog.NewTextHandler(&log, nil))})
	put(t, `{"name":"red"`, dir, "10.conflist")
	put(t, conf("blue", "b"), dir, "20.conflist")
	s := f.Reload()
	if n, err := s.Network("red"); err != nil || types(n) != "a" {
		t.Error(describe(err))
	}
	if _, err := s.Network("blue"); err != nil {
		t.Error(describe(err))
	}
	if err := s.Err(); cni.CodeOf(err) != cni.CodeNotAvailable ||
		!errors.As(err, new(*config.FileError)) {
		t.Error(describe(err))
	}
	put(t, conf("red", "c"), dir, "10.conflist")
	if s := f.Reload(); s.Err() != nil || inUse(s, dir) != "red (c)\nblue (b)" {
		t.Error(inUse(s, dir))
	}
	for _, want := range []string{"level=WARN msg=\"problem in the network configuration\" network=red kept=true error=\"" + dir + "/10.conflist:1:13: ",
		"level=INFO msg=\"problem in the network configuration is resolved\" path=" + dir +
			"/10.conflist network=red"} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("logged:\n%s\nwithout: %s", log.String(), want)
		}
	}
}

// A Directory notices that its directory was replaced, even if the directory or its parent is
// missing for a while.
func TestDirectoryIsReplaced(t *testing.T) {
	t.Parallel()
	const missing = "\nkept: DIR: no network configuration\nkept: red: DIR/10.conflist: network red has disappeared; it stays in use because too few networks would be left"
	for name, row := range map[string]struct {
		file string // changes of this file show that the directory is watched
		step func(t *testing.T, dir string, f *config.Directory)
	}{
		"removed and created again": {"10.conflist",
			func(t *testing.T, dir string, f *config.Directory) {
				must(t, os.RemoveAll(dir))
				eventually(t, f, "red (a)"+missing)
				must(t, os.Mkdir(dir, 0o700))
			}},
		"renamed away and back": {"10.conflist",
			func(t *testing.T, dir string, f *config.Directory) {
				must(t, os.Rename(dir, dir+".away"))
				eventually(t, f, "red (a)"+missing)
				must(t, os.Rename(dir+".away", dir))
				eventually(t, f, "red (a)")
			}},
		"replaced by another": {"10.conflist", func(t *testing.T, dir string, f *config.Directory) {
			put(t, conf("red", "b"), dir+".new", "10.conflist")
			must(t, unix.Renameat2(unix.AT_FDCWD, dir+".new", unix.AT_FDCWD, dir,
				unix.RENAME_EXCHANGE))
			eventually(t, f, "red (b)")
		}},
		"removed with its parent": {"10.conflist",
			func(t *testing.T, dir string, f *config.Directory) {
				must(t, os.RemoveAll(filepath.Dir(dir)))
				eventually(t, f, "red (a)"+missing)
				must(t, os.MkdirAll(dir, 0o700))
			}},
		"parent renamed away": {"10.conflist", func(t *testing.T, dir string, f *config.Directory) {
			must(t, os.Rename(filepath.Dir(dir), filepath.Dir(dir)+".away"))
			eventually(t, f, "red (a)"+missing)
			must(t, os.MkdirAll(dir, 0o700))
		}},
		"replaced by a file": {"10.conflist", func(t *testing.T, dir string, f *config.Directory) {
			must(t, os.Rename(dir, dir+".away"), os.WriteFile(dir, nil, 0o600))
			eventually(t, f,
				"red (a)\nkept: DIR: configuration directory: open DIR: not a directory")
			must(t, os.Remove(dir), os.Rename(dir+".away", dir))
			eventually(t, f, "red (a)")
		}},
		"a link with a new target": {"10.conflist",
			func(t *testing.T, dir string, f *config.Directory) {
				put(t, conf("red", "b"), dir+".new", "10.conflist")
				must(t, os.Rename(dir, dir+".away"), os.Symlink(filepath.Base(dir)+".new", dir))
				eventually(t, f, "red (b)")
				must(t, os.Rename(dir+".new", dir+".old"))
				eventually(t, f, "red (b)"+missing)
				must(t, os.Mkdir(dir+".new", 0o700))
			}},
		"a drop-in directory": {"red/20.conf", func(t *testing.T, dir string, f *config.Directory) {
			put(t, `{"type":"x"}`, dir, "red/10.conf")
			eventually(t, f, "red (a,x)")
			must(t, os.Rename(filepath.Join(dir, "red"), filepath.Join(dir, "blue")))
			eventually(t, f, "red (a)")
			must(t, os.Mkdir(filepath.Join(dir, "red"), 0o700))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "cni", "net.d")
			put(t, conf("red", "a"), dir, "10.conflist")
			f := openDirectory(t, config.Options{Dir: dir, Linger: -1})
			row.step(t, dir, f)
			if row.file == "red/20.conf" {
				put(t, `{"type":"last"}`, dir, row.file)
				eventually(t, f, "red (a,last)")
				return
			}
			put(t, conf("red", "last"), dir, row.file)
			eventually(t, f, "red (last)")
		})
	}
}

// A Directory waits for a directory that does not exist yet.
func TestDirectoryComes(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "etc", "cni", "net.d")
	f := openDirectory(t, config.Options{Dir: dir})
	eventually(t, f, "! DIR: no network configuration")
	if _, err := f.Snapshot().Network("red"); !errors.Is(err, config.ErrNoConfig) {
		t.Error(describe(err))
	}
	must(t, os.Mkdir(filepath.Join(root, "etc"), 0o700))
	time.Sleep(100 * time.Millisecond) // until the change is noticed
	must(t, os.MkdirAll(dir, 0o700))
	put(t, conf("red", "a"), dir, "10.conflist")
	eventually(t, f, "red (a)")
}

// A ConfigMap of Kubernetes is a directory of links to links; replacing one link changes all of its
// files at once.
func TestDirectoryConfigMap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := openDirectory(t, config.Options{Dir: dir, Linger: -1})
	swap := func(version string) {
		data := filepath.Join(dir, "..2026_"+version)
		put(t, conf("red", "a"+version), data, "10.conflist")
		put(t, `{"type":"x`+version+`"}`, data, "20.conf")
		must(t, os.RemoveAll(filepath.Join(dir, "..data_tmp")),
			os.Symlink("..2026_"+version, filepath.Join(dir, "..data_tmp")),
			os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	must(t, os.Symlink("..data/10.conflist", filepath.Join(dir, "10.conflist")),
		os.Mkdir(filepath.Join(dir, "red"), 0o700),
		os.Symlink("../..data/20.conf", filepath.Join(dir, "red", "20.conf")))
	for i := range 5 {
		swap(fmt.Sprint(i))
		eventually(t, f, fmt.Sprintf("red (a%d,x%d)", i, i))
	}
	must(t, os.WriteFile(filepath.Join(dir, "..2026_4", "10.conflist"),
		[]byte(conf("red", "edited")), 0o600))
	eventually(t, f, "red (edited,x4)")
	must(t, os.Remove(filepath.Join(dir, "..data")))
	eventually(t, f, "red (edited,x4)\nkept: red: DIR/10.conflist: open: no such file or directory")
}

// Temporary files, and files that no runtime reads, cause no new snapshot.
func TestDirectoryIgnores(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"10.conflist": conf("red", "a"),
		"red/10.conf": `{"type":"x"}`})
	f := openDirectory(t, config.Options{Dir: dir, Linger: -1})
	for _, name := range []string{".10.conflist.swp", "10.conflist~", "10.conflist.tmp",
		"10.conflist123", "4913", "20.yaml", "red/10.conf.bak", "red/x.json", "README"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("{"), 0o600))
		time.Sleep(5 * time.Millisecond)
	}
	must(t, os.Mkdir(filepath.Join(dir, "lost+found"), 0o700))
	before := f.Snapshot()
	if s := f.Reload(); s != before || s.Generation != 1 {
		t.Errorf("generation %d", s.Generation)
	}
	must(t, os.Rename(filepath.Join(dir, "20.yaml"), filepath.Join(dir, "20.yml")))
	if s := f.Reload(); s != before {
		t.Errorf("generation %d", s.Generation)
	}
	put(t, conf("red", "a"), dir, "10.conflist") // unchanged content
	if s := f.Reload(); s != before {
		t.Errorf("generation %d", s.Generation)
	}
	put(t, conf("red", "b"), dir, "10.conflist")
	eventually(t, f, "red (b,x)")
	if s := f.Snapshot(); s.Generation != before.Generation+1 {
		t.Errorf("generation %d after %d", s.Generation, before.Generation)
	}
}

// If the kernel refuses a watch, the Directory logs one warning and reads the directory
// periodically.
func TestDirectoryUnwatched(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(o config.Options) (*config.Directory, error){
		"no watches": func(o config.Options) (*config.Directory, error) {
			return config.OpenWith(o, func([]string) (bool, error) { return false, unix.ENOSPC })
		},
		"no instances": func(o config.Options) (*config.Directory, error) {
			return config.OpenWith(o, nil)
		},
		"not wanted": func(o config.Options) (*config.Directory, error) {
			o.NoWatch = true
			return config.Open(o)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := tree(t, map[string]string{"10.conflist": conf("red", "a")})
			var log bytes.Buffer
			f, err := open(config.Options{Dir: dir, Rescan: 10 * time.Millisecond,
				Log: slog.New(slog.NewTextHandler(&log, nil))})
			must(t, err)
			for _, typ := range []string{"b", "c", "d"} {
				put(t, conf("red", typ), dir, "10.conflist")
				eventually(t, f, "red ("+typ+")")
			}
			must(t, f.Close())
			want := 1
			if name == "not wanted" {
				want = 0
			}
			if got := strings.Count(log.String(), "cannot watch"); got != want {
				t.Errorf("logged %d times:\n%s", got, log.String())
			}
		})
	}
}

// A lingering network goes out of use in time, even if nothing else happens.
func TestDirectoryLingers(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"10.conflist": conf("red", "a"),
		"20.conflist": conf("blue", "b")})
	f := openDirectory(t, config.Options{Dir: dir, NoWatch: true, Linger: 300 * time.Millisecond})
	must(t, os.Remove(filepath.Join(dir, "10.conflist")))
	if s := f.Reload(); len(s.Networks) != 2 || len(s.Problems) != 1 {
		t.Error(inUse(s, dir))
	}
	eventually(t, f, "blue (b)")
}

// Notify receives a snapshot for each plugin that is added, removed or replaced, and for every
// other change, in order.
func TestDirectoryNotifies(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"10.conflist": conf("red", "a"), "tenon.policy": needs("a")})
	plugins := tree(t, map[string]string{"a": "1"})
	told := make(chan *config.Snapshot, 100)
	f := openDirectory(t, config.Options{Dir: dir, PluginDirs: []string{plugins, plugins + ".none"},
		Notify: func(s *config.Snapshot) { told <- s }})
	last := f.Snapshot()
	policy := last.Policy
	next := func(want string) {
		t.Helper()
		select {
		case s := <-told:
			if s.Generation != last.Generation+1 || inUse(s, dir) != want || s.Policy != policy {
				t.Errorf("generation %d after %d: %s", s.Generation, last.Generation, inUse(s, dir))
			}
			last = s
		case <-time.After(testnet.Patience):
			t.Fatal("no notification")
		}
	}
	elsewhere := tree(t, map[string]string{"a": "2", "b": "1"})
	must(t, os.Rename(filepath.Join(elsewhere, "b"), filepath.Join(plugins, "b")))
	next("red (a)\npolicy a")
	must(t, os.Rename(filepath.Join(elsewhere, "a"), filepath.Join(plugins, "a")))
	next("red (a)\npolicy a")
	must(t, os.Remove(filepath.Join(plugins, "a")))
	next("red (a)\npolicy a")
	put(t, conf("red", "a", "n"), dir, "10.conflist")
	next("red (a,n)\npolicy a")
	must(t, os.Mkdir(plugins+".none", 0o700))
	next("red (a,n)\npolicy a")
	select {
	case s := <-told:
		t.Errorf("unexpected notification: %s", inUse(s, dir))
	default:
	}
}

// neither Reload nor STATUS waits for an ADD that does not end.
func TestDirectoryBehindStuckADD(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"10.conflist": conf("red", "stuck")})
	f := openDirectory(t, config.Options{Dir: dir})
	started, end := make(chan struct{}), make(chan struct{})
	plugins := invoke.Fake{"stuck": {cni.Add: func(context.Context, invoke.Call) ([]byte, bool) {
		close(started)
		<-end
		return []byte("{}"), true
	}}, "b": {}}
	c := &network.Client{Isolated: true, Caller: plugins, StateDir: t.TempDir(), Log: quiet}
	n, err := f.Snapshot().Network("red")
	must(t, err)
	var add sync.WaitGroup
	add.Go(func() {
		if _, err := c.Add(t.Context(), n, request("c1")); err != nil {
			t.Error(describe(err))
		}
	})
	<-started
	put(t, conf("red", "stuck", "b"), dir, "10.conflist")
	begin := time.Now()
	s := f.Reload()
	took := time.Since(begin)
	n, err = s.Network("red")
	must(t, err)
	if types(n) != "stuck,b" {
		t.Error(types(n))
	}
	for range 10 {
		begin := time.Now()
		must(t, c.Status(t.Context(), n))
		took = max(took, time.Since(begin))
	}
	t.Logf("took %v at most", took)
	close(end) // not earlier: a call that waited for ADD would still be waiting
	add.Wait()
}

// Three writers add and remove drop-ins of one network concurrently. The chain in use is always one
// that the writers may intend: the list's own plugin, then any of their drop-ins, each complete and
// once.
func TestDirectoryDropInWriters(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"10.conflist": conf("red", "a"), "red/README": ""})
	legal := map[string]bool{}
	for i := range 8 {
		chain := "a"
		for j, name := range []string{",x", ",y", ",z"} {
			if i&(1<<j) != 0 {
				chain += name
			}
		}
		legal[chain] = true
	}
	f := openDirectory(t, config.Options{Dir: dir, Linger: 20 * time.Millisecond})
	var writers sync.WaitGroup
	for i, typ := range []string{"x", "y", "z"} {
		writers.Go(func() {
			path := filepath.Join(dir, "red", typ+".conf")
			for n := range 100 {
				var err error
				switch (n + i) % 4 {
				case 0, 2:
					err = os.WriteFile(path, []byte(`{"type":"`+typ+`"}`), 0o600)
				case 1:
					err = os.Remove(path)
				case 3:
					err = errors.Join(os.WriteFile(path+".tmp", []byte(`{"type":"`+typ+`","n":1}`),
						0o600), os.Rename(path+".tmp", path))
				}
				if err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Error(err)
				}
				pause := time.Duration(n*(i+3)%17) * time.Millisecond
				if n%5 == 0 { // leave moments without changes
					pause = 60 * time.Millisecond
				}
				time.Sleep(pause)
			}
			_ = os.Remove(path)
		})
	}
	ended := make(chan struct{})
	go func() { writers.Wait(); close(ended) }()
	seen := map[string]bool{}
	for running := true; running; time.Sleep(time.Millisecond) {
		select {
		case <-ended:
			running = false
		default:
		}
		n, err := f.Snapshot().Network("red")
		must(t, err)
		if seen[types(n)] = true; !legal[types(n)] {
			t.Fatalf("chain %s", types(n))
		}
	}
	eventually(t, f, "red (a)")
	if len(seen) < 3 {
		t.Errorf("only seen: %v", seen)
	}
}

// Close ends the goroutines and watches of a Directory; its last snapshot stays available.
func TestDirectoryClose(t *testing.T) { // not parallel, so that no other test has a Directory
	dir := tree(t, map[string]string{"10.conflist": conf("red", "a")})
	var folders []*config.Directory
	for range 5 {
		f, err := config.Open(config.Options{Dir: dir, Notify: func(*config.Snapshot) {},
			Log: quiet})
		must(t, err)
		folders = append(folders, f)
	}
	testnet.Eventually(t, func() error { // until all have started
		goroutines, files := directoryResources(t)
		if goroutines != 3*5 || files != 5 {
			return fmt.Errorf("%d goroutines, %d files", goroutines, files)
		}
		return nil
	})
	put(t, conf("red", "b"), dir, "10.conflist")
	for _, f := range folders {
		must(t, f.Close(), f.Close())
	}
	testnet.Eventually(t, func() error { // a goroutine stays listed for a moment after it has ended
		if goroutines, files := directoryResources(t); goroutines != 0 || files != 0 {
			return fmt.Errorf("left: %d goroutines, %d files", goroutines, files)
		}
		return nil
	})
	put(t, conf("red", "c"), dir, "10.conflist")
	for _, f := range folders {
		before := f.Snapshot()
		if s := f.Reload(); s != before || len(s.Networks) != 1 {
			t.Error(inUse(s, dir))
		}
	}
}

// directoryResources counts the goroutines of Directories, and the watches of this process.
func directoryResources(t *testing.T) (goroutines, files int) {
	t.Helper()
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for _, stack := range strings.Split(string(stacks), "\n\n") {
		if strings.Contains(stack, "config.(*Directory)") ||
			strings.Contains(stack, "config.(*inotify)") {
			goroutines++
		}
	}
	fds, err := filepath.Glob("/proc/self/fd/*")
	must(t, err)
	for _, fd := range fds {
		if target, _ := os.Readlink(fd); target == "anon_inode:inotify" {
			files++
		}
	}
	return goroutines, files
}

func TestOpenOptions(t *testing.T) {
	t.Parallel()
	if _, err := config.Open(config.Options{Min: -1}); describe(err) != "7 minimum number of networks is negative: -1" {
		t.Error(describe(err))
	}
}
