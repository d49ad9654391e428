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

// Options say how a [Directory] keeps itself up to date. The zero value is ready for use.
type Options struct {
	// Dir is the directory of the configuration; empty is [DefaultDir]. It need not be there yet.
	Dir string

	// PluginDirs are directories of plugins that are watched too: when a file in them comes, goes or is replaced there is a new
	// snapshot, so that who is told can ask for the status of networks again. nil is not watched.
	PluginDirs []string

	// Min is how many networks there have to be: with fewer there is a problem, and the last good ones stay in use. One
	// that was in use always stays.
	Min int

	// Rescan is after which time the directories are looked at though nothing was heard of a change: changes beyond a network
	// file system, by writers that do not close a file, of a directory two or more levels above that was replaced, and all of
	// them where the kernel lets nobody watch any more. Zero is 10 s, negative is never.
	Rescan time.Duration

	// Linger is how long what has disappeared (the file of a network, a drop-in, the policy) stays in use, so that it may
	// be replaced by removing it first. Zero is 2 s, negative is not at all.
	Linger time.Duration

	// NoWatch leaves the directories unwatched; changes are found by Rescan and [Directory.Reload] alone, as on systems other
	// than Linux.
	NoWatch bool

	// Notify, unless nil, is told of each snapshot after the first, one at a time and in order. It must not call
	// [Directory.Close].
	Notify func(*Snapshot)

	Log *slog.Logger // problems that come and go; nil is [slog.Default]
}

const (
	defaultRescan = 10 * time.Second
	defaultLinger = 2 * time.Second

	quiet    = 30 * time.Millisecond  // without events, after which the directory is looked at
	noQuiet  = 200 * time.Millisecond // how long that is waited for
	patience = 200 * time.Millisecond // how long a directory may take to hold still
	retry    = time.Second            // after which one that did not, or cannot be read, is looked at again
)

// Directory keeps the configuration of a directory up to date. What is in use of it is a [Snapshot], which is replaced as a whole,
// and only by a state that the directory had at one moment: it is read again until nothing has changed meanwhile, nor shortly
// before. What is broken, half-written or gone for a moment does not take away what works: see [Problem]. Nobody can tell a
// file that is half overwritten from a finished one if it is valid and its writer takes a rest: writers put a file in place
// by renaming it.
//
// Nothing here waits for an operation of a Client of package network, or has one wait.
type Directory struct {
	options Options
	current atomic.Pointer[Snapshot]

	newWatcher func(events chan<- struct{}) (watcher, error)
	events     chan struct{}
	told       chan struct{} // there are snapshots to tell of
	closing    chan struct{}
	running    sync.WaitGroup
	once       sync.Once

	mu      sync.Mutex // held while the directory is looked at
	closed  bool
	watcher watcher  // nil where nobody can, or wants to watch
	deaf    bool     // that was said
	catalog *Catalog // as it was read last; nil if that went wrong
	config  fingerprint
	plugins fingerprint
	due     time.Time // when to look again though nothing has changed

	queueMu sync.Mutex
	queue   []*Snapshot // to tell of
}

// Open reads a configuration directory and goes on to keep it up to date, until it is closed. That the directory is missing
// or empty, or that something in it is broken, is a problem in the snapshot, no error. There is an error, with
// [cni.CodeInvalidConfig], only where the options are contradictory.
func Open(o Options) (*Directory, error) { return open(o, newWatcher) }

func open(o Options, w func(events chan<- struct{}) (watcher, error)) (*Directory, error) {
	if o.Min < 0 {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "minimum of networks: %d is negative", o.Min)
	}
	o.Dir = cmp.Or(o.Dir, DefaultDir)
	o.Rescan = cmp.Or(o.Rescan, defaultRescan)
	o.Linger = cmp.Or(o.Linger, defaultLinger)
	f := &Directory{
		options: o, newWatcher: w,
		events: make(chan struct{}, 1), told: make(chan struct{}, 1), closing: make(chan struct{}),
	}
	f.current.Store(&Snapshot{Dir: o.Dir})
	f.look()
	f.running.Go(f.run)
	if o.Notify != nil {
		f.running.Go(f.tell)
	}
	return f, nil
}

// Snapshot returns what is in use. It is never nil, and never waits.
func (f *Directory) Snapshot() *Snapshot { return f.current.Load() }

// Reload looks at the directory now, and returns what is in use then; that is as before if nothing has changed. It takes as long
// as reading the directory does, and up to 0.2 s if somebody is writing to it. After Close it looks at nothing.
func (f *Directory) Reload() *Snapshot {
	f.look()
	select {
	case f.events <- struct{}{}: // there may be another time to look again
	default:
	}
	return f.Snapshot()
}

// Close ends the watch, and returns when Notify does. [Directory.Snapshot] goes on to return the last one.
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

// run looks at the directory a moment after the last of several events, and when it is time to.
func (f *Directory) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	looked := time.Now()
	var first, event time.Time // of those since
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

// when returns when to look at the directory again.
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
	if !f.due.IsZero() {
		sooner(f.due)
	}
	return next
}

// look finds out whether anything is to be used that was not.
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
			if !old.unread() { // else that is known
				f.use(old, cannotRead(old, err, time.Now()))
			}
			return
		}
		changed = changed || before == nil || !f.catalog.equal(before)
	}
	if due := !f.due.IsZero() && !time.Now().Before(f.due); !changed && !due {
		return
	}
	next := merge(old, f.catalog, time.Now(), f.options)
	f.due = next.due
	f.use(old, next)
}

// read reads the directory until it finds it after that as it was before, and as it has been for a moment: the times of files
// do not tell two changes of one tick apart.
func (f *Directory) read() (*Catalog, fingerprint, error) {
	timeout := time.After(patience)
	for patient := true; ; {
		before, _ := f.view()
		c, err := Discover(f.options.Dir)
		after, _ := f.view()
		same := maps.Equal(before, after)
		if same && !(patient && after.young(time.Now())) {
			return c, after, err
		}
		if !patient {
			return nil, nil, cni.Errorf(cni.CodeTryAgainLater, "the folder keeps changing")
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

// view looks at the directories once what is going to change from then on makes an event.
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

// watch watches directories and reports whether some were not before.
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
		f.log().Warn("configuration is not watched, but only looked at from time to time", "folder", f.options.Dir,
			"every", f.options.Rescan, "error", err)
	}
	f.deaf = err != nil
	return more
}

// use puts a snapshot in the place of another, and says which problems come and go.
func (f *Directory) use(old, next *Snapshot) {
	f.current.Store(next)
	for _, p := range next.Problems {
		if old.problem(p) == nil {
			f.log().Warn("network configuration", "network", p.Network, "kept", p.Kept, "error", p.Err)
		}
	}
	for _, p := range old.Problems {
		if next.problem(p) == nil {
			f.log().Info("problem of the network configuration is over", "path", p.Path, "network", p.Network)
		}
	}
	if f.options.Notify == nil || old.Generation == 0 {
		return
	}
	f.queueMu.Lock()
	f.queue = append(f.queue, next)
	f.queueMu.Unlock()
	select {
	case f.told <- struct{}{}:
	default:
	}
}

// tell calls Notify.
func (f *Directory) tell() {
	for {
		select {
		case <-f.closing:
			return
		case <-f.told:
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
