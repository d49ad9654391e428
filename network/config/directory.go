package config

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// Options configure how a [Directory] keeps itself up to date. The zero value is ready for use.
type Options struct {
	// Dir is the configuration directory. An empty value means [DefaultDir]. The directory need not
	// exist yet.
	Dir string

	// PluginDirs are plugin directories to watch as well. When a file in them appears, disappears
	// or is replaced, there is a new snapshot, so that receivers can run STATUS again.
	PluginDirs []string

	// Min is the minimum number of networks. With fewer, the snapshot reports a problem and the
	// last good networks stay in use. The last network in use always stays.
	Min int

	// Rescan is the interval at which the directory is read without a notification. It finds
	// changes that the kernel does not report: changes on a network file system, writers that keep
	// a file open, a replaced directory two or more levels above, and all changes if the kernel
	// refuses more watches. Zero means 10 s; negative means never.
	Rescan time.Duration

	// Linger is how long a network, drop-in or policy stays in use after its file has disappeared,
	// so that writers may remove a file before they replace it. Zero means 2 s; negative means not
	// at all.
	Linger time.Duration

	// NoWatch disables watching: only Rescan and [Directory.Reload] find changes, as on systems
	// other than Linux.
	NoWatch bool

	// Notify, unless nil, receives each snapshot after the first, one at a time and in order. It
	// must not call [Directory.Close].
	Notify func(*Snapshot)

	// logs problems when they appear and when they are resolved; nil means [slog.Default]
	Log *slog.Logger
}

const (
	defaultRescan = 10 * time.Second
	defaultLinger = 2 * time.Second

	quiet    = 30 * time.Millisecond  // time without events after which the directory is read
	noQuiet  = 200 * time.Millisecond // maximum wait for that quiet time
	patience = 200 * time.Millisecond // maximum time for a directory to stop changing
	retry    = time.Second            // delay after a failed read
)

// Directory keeps a [Snapshot] of a configuration directory up to date. It replaces the snapshot as
// a whole, and only with a state that the directory had at one moment: it reads the directory again
// until nothing has changed during, or shortly before, the read. A file that is briefly broken,
// half-written or missing does not remove a working network: see [Problem]. A half-overwritten file
// that happens to be valid cannot be distinguished from a finished one if its writer pauses;
// writers should rename a finished file into place.
//
// A Directory neither waits for the operations of a Client of package network nor delays them.
type Directory struct {
	options Options
	current atomic.Pointer[Snapshot]

	newWatcher func(events chan<- struct{}) (watcher, error)
	events     chan struct{}
	published  chan struct{} // signals snapshots for Notify
	closing    chan struct{}
	running    sync.WaitGroup
	once       sync.Once

	mu      sync.Mutex // held while the directory is read
	closed  bool
	watcher watcher     // nil if watching is unsupported or disabled
	deaf    bool        // the failure to watch has been logged
	catalog *Catalog    // as read last; nil if reading failed
	config  fingerprint // nil if a later change may leave it equal
	plugins fingerprint
	due     time.Time // when to read again even if nothing has changed
	again   time.Time // when to read again because config is nil; zero means never

	queueMu sync.Mutex
	queue   []*Snapshot // for Notify
}

// Open reads a configuration directory and keeps it up to date until [Directory.Close]. A missing
// or empty directory, or a broken file in it, is a problem in the snapshot, not an error. Open
// returns an error, with [cni.CodeInvalidConfig], only if the options are contradictory.
func Open(o Options) (*Directory, error) { return open(o, newWatcher) }

func open(o Options, w func(events chan<- struct{}) (watcher, error)) (*Directory, error) {
	if o.Min < 0 {
		return nil, cni.Errorf(cni.CodeInvalidConfig,
			"minimum number of networks is negative: %d", o.Min)
	}
	o.Dir = cmp.Or(o.Dir, DefaultDir)
	o.Rescan = cmp.Or(o.Rescan, defaultRescan)
	o.Linger = cmp.Or(o.Linger, defaultLinger)
	f := &Directory{
		options: o, newWatcher: w,
		events: make(chan struct{}, 1), published: make(chan struct{}, 1),
		closing: make(chan struct{}),
	}
	f.current.Store(&Snapshot{Dir: o.Dir})
	f.look()
	f.running.Go(f.run)
	if o.Notify != nil {
		f.running.Go(f.notify)
	}
	return f, nil
}

// Snapshot returns the configuration in use. It never returns nil and never blocks.
func (f *Directory) Snapshot() *Snapshot { return f.current.Load() }

// Reload reads the directory now and returns the configuration in use afterwards, the same one if
// nothing has changed. It takes as long as reading the directory, plus up to 0.2 s if another
// process is writing to it. After Close it reads nothing.
func (f *Directory) Reload() *Snapshot {
	f.look()
	select {
	case f.events <- struct{}{}: // let run compute its next deadline
	default:
	}
	return f.Snapshot()
}

// Close stops watching and returns after Notify has returned. [Directory.Snapshot] keeps returning
// the last snapshot.
func (f *Directory) Close() error {
	var err error
	f.once.Do(func() {
		close(f.closing)
		f.running.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.closed = true
		if f.watcher != nil {
			err = f.watcher.Close()
		}
	})
	return err
}

func (f *Directory) log() *slog.Logger { return cmp.Or(f.options.Log, slog.Default()) }

// run reads the directory shortly after the last of a burst of events, and whenever a deadline is
// due.
func (f *Directory) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	looked := time.Now()
	var first, event time.Time // since the last read
	for {
		timer.Reset(time.Until(f.when(looked, first, event)))
		select {
		case <-f.closing:
			return
		case <-f.events:
			event = time.Now()
			if first.IsZero() {
				first = event
			}
		case <-timer.C:
			f.look()
			looked, first = time.Now(), time.Time{}
		}
	}
}

// when returns the time at which to read the directory again.
func (f *Directory) when(looked, first, event time.Time) time.Time {
	next := looked.Add(24 * time.Hour)
	sooner := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	if f.options.Rescan > 0 {
		sooner(looked.Add(f.options.Rescan))
	}
	if !first.IsZero() {
		sooner(event.Add(quiet))
		sooner(first.Add(noQuiet))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range []time.Time{f.due, f.again} {
		if !t.IsZero() {
			sooner(t)
		}
	}
	return next
}

// look reads the directory and publishes a new snapshot if anything has changed.
func (f *Directory) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	config, plugins := f.view()
	changed := !maps.Equal(plugins, f.plugins)
	f.plugins = plugins
	old, before := f.Snapshot(), f.catalog
	if before == nil || !maps.Equal(config, f.config) {
		var err error
		if f.catalog, f.config, err = f.read(); err != nil {
			f.due = time.Now().Add(retry)
			if !old.unread() { // otherwise the problem is already reported
				f.use(old, cannotRead(old, err, time.Now()))
			}
			return
		}
		changed = changed || before == nil || !f.catalog.equal(before)
		f.again = time.Time{}
		if f.config == nil {
			f.again = time.Now().Add(statefile.CoarseTick)
		}
	}
	if due := !f.due.IsZero() && !time.Now().Before(f.due); !changed && !due {
		return
	}
	next := merge(old, f.catalog, time.Now(), f.options)
	f.due = next.due
	f.use(old, next)
}

// read reads the directory until it is unchanged after the read and has not changed shortly before:
// two changes within one tick leave the same file times. If a tick is a second, read does not wait
// so long and returns no fingerprint.
func (f *Directory) read() (*Catalog, fingerprint, error) {
	timeout := time.After(patience)
	for patient := true; ; {
		before, _ := f.view()
		c, err := Discover(f.options.Dir)
		after, _ := f.view()
		same := maps.Equal(before, after)
		switch settles := after.settles(time.Now()); {
		case same && settles == 0:
			return c, after, err
		case same && (!patient || settles > 2*statefile.Tick):
			return c, nil, err
		}
		if !patient {
			return nil, nil, cni.Errorf(cni.CodeTryAgainLater, "the directory keeps changing")
		}
		select {
		case <-time.After(statefile.Tick / 2):
		case <-timeout:
			patient = false
		case <-f.closing:
			patient = false
		}
	}
}

// view watches the directories and then fingerprints them, so that every later change causes an
// event.
func (f *Directory) view() (config, plugins fingerprint) {
	for range 10 {
		c, p := viewConfig(f.options.Dir), viewPlugins(f.options.PluginDirs)
		config, plugins = c.files, p.files
		if !f.watch(c.watched(p)) {
			break
		}
	}
	return config, plugins
}

// watch watches directories and reports whether any of them is new.
func (f *Directory) watch(dirs []string) (more bool) {
	if f.options.NoWatch {
		return false
	}
	var err error
	if f.watcher == nil {
		f.watcher, err = f.newWatcher(f.events)
	}
	if err == nil {
		more, err = f.watcher.watch(dirs)
	}
	if err != nil && !f.deaf && !errors.Is(err, errors.ErrUnsupported) {
		f.log().Warn("cannot watch the configuration directory; reading it periodically instead",
			"directory", f.options.Dir, "every", f.options.Rescan, "error", err)
	}
	f.deaf = err != nil
	return more
}

// use publishes a snapshot and logs new and resolved problems.
func (f *Directory) use(old, next *Snapshot) {
	f.current.Store(next)
	for _, p := range next.Problems {
		if old.problem(p) == nil {
			f.log().Warn("problem in the network configuration",
				"network", p.Network, "kept", p.Kept, "error", p.Err)
		}
	}
	for _, p := range old.Problems {
		if next.problem(p) == nil {
			f.log().Info("problem in the network configuration is resolved",
				"path", p.Path, "network", p.Network)
		}
	}
	if f.options.Notify == nil || old.Generation == 0 {
		return
	}
	f.queueMu.Lock()
	f.queue = append(f.queue, next)
	f.queueMu.Unlock()
	select {
	case f.published <- struct{}{}:
	default:
	}
}

// notify passes new snapshots to Notify.
func (f *Directory) notify() {
	for {
		select {
		case <-f.closing:
			return
		case <-f.published:
		}
		f.queueMu.Lock()
		news := f.queue
		f.queue = nil
		f.queueMu.Unlock()
		for _, s := range news {
			f.options.Notify(s)
		}
	}
}
