package plan

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/host/replica"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// Options describe the operation to plan.
type Options struct {
	// Program is the command line of the process inside, which calls [Enter] and runs the operation.
	Program []string
	// Writable lists directories that the operation may change, in addition to /run and /var/lib/cni.
	Writable []string
	// Data lists directories with files of plugins that name namespaces.
	Data []string
	// Netns are the paths of the namespaces that the operation concerns.
	Netns []string
	// Light are paths of namespaces in which the operation usually changes nothing. Their copies
	// have links, addresses and routes only. If the operation does change one, Run repeats with a
	// full copy.
	Light []string
	// Recorded are paths of other namespaces of attachments. They only exist in the scratch world.
	Recorded []string
	Env      []string // variables of that process, which also inherits the environment
	Stderr   io.Writer
}

// Outcome is what an operation did in the scratch world.
type Outcome struct {
	Before, After *host.Host // the host's own namespace, then Netns as far as they exist
	Snapshot      Snapshot
	Operations    []Operation
	Stdout        []byte
	End           Failure
	Notes         []string // what the world lacks
	files         []file
	firewalld     bool     // runs on the host
	paths         []string // of the namespaces, "" for the host's own
	touched       []string // paths in Light of namespaces that the operation has changed
}

// Snapshot identifies the state of the host that was copied.
type Snapshot struct {
	Time       time.Time `json:"time"`
	Generation uint32    `json:"nftGeneration"` // transactions of nftables in the host's namespace
}

// ErrWorld reports that the scratch world could not be set up.
var ErrWorld = errors.New("cannot create a scratch world")

// Run copies the state that an operation concerns into namespaces of its own, runs the operation
// there in another process, and returns the differences. The world ends with that process, which
// ends with this one.
func Run(ctx context.Context, o Options) (*Outcome, error) {
	out, stderr, err := try(ctx, o)
	if err == nil && len(out.touched) > 0 {
		touched := func(path string) bool { return slices.Contains(out.touched, path) }
		o.Light = slices.DeleteFunc(slices.Clone(o.Light), touched)
		o.Netns = slices.Concat(o.Netns, out.touched)
		out, stderr, err = try(ctx, o)
	}
	_, _ = o.Stderr.Write(stderr) // warnings
	return out, err
}

// try runs the operation once. It also returns what the operation has written to standard error.
func try(ctx context.Context, o Options) (*Outcome, []byte, error) {
	w := &world{o: o, out: &Outcome{Snapshot: Snapshot{Time: time.Now().UTC()}}}
	defer w.close()
	if err := w.copy(); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrWorld, err)
	}
	host := w.copies.Spaces[0]
	var err error
	// The process ends with the thread that starts it, which lives as long as this function.
	if wrong := host.Run(func() error { err = w.run(ctx); return nil }); wrong != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrWorld, wrong)
	}
	return w.out, w.stderr.Bytes(), err
}

// world is the parent's side of a scratch world.
type world struct {
	o       Options
	out     *Outcome
	sources []*kernel.Namespace
	full    int // sources that are copied as a whole
	copies  *replica.World
	paths   []string            // of all namespaces in the world
	leads   []*kernel.Namespace // the copies that they lead to
	ids     []string            // the numbers of the namespaces that they led to
	light   []string            // the paths of the sources after full
	stderr  bytes.Buffer
}

func (w *world) close() {
	for _, ns := range w.sources {
		_ = ns.Close() // only read
	}
	if w.copies != nil {
		w.copies.Close()
	}
}

// copy opens the namespaces and copies them.
func (w *world) copy() error {
	own, err := kernel.CurrentNamespace()
	if err != nil {
		return err
	}
	w.sources, w.full, w.out.paths = append(w.sources, own), 1, []string{""}
	index := map[kernel.NamespaceID]int{own.ID(): 0}
	of := map[string]int{}
	for i, path := range append(w.o.Netns[:len(w.o.Netns):len(w.o.Netns)], w.o.Light...) {
		ns, err := kernel.OpenNamespace(path)
		if err != nil {
			continue // the operation reports it
		}
		if at, known := index[ns.ID()]; known {
			_ = ns.Close()
			of[path] = at
			continue
		}
		index[ns.ID()], of[path] = len(w.sources), len(w.sources)
		w.sources = append(w.sources, ns)
		if i < len(w.o.Netns) {
			w.full = len(w.sources)
			w.out.paths = append(w.out.paths, path)
		} else {
			w.light = append(w.light, path)
		}
	}
	var sources []replica.Source
	for i, ns := range w.sources {
		sources = append(sources, replica.Source{NS: ns, Light: i >= w.full})
	}
	if w.copies, err = replica.Make(sources...); err != nil {
		return err
	}
	w.out.Snapshot.Generation, w.out.Notes = w.copies.Generation, w.copies.Notes
	for path, i := range of {
		w.lead(path, w.copies.Spaces[i], w.sources[i].ID())
	}
	for _, path := range w.o.Recorded {
		if _, known := of[path]; known {
			continue
		}
		if ns, err := kernel.OpenNamespace(path); err == nil {
			w.lead(path, w.copies.Rest, ns.ID())
			_ = ns.Close()
		}
	}
	return nil
}

func (w *world) lead(path string, to *kernel.Namespace, id kernel.NamespaceID) {
	w.paths, w.leads = append(w.paths, path), append(w.leads, to)
	w.ids = append(w.ids, fmt.Sprint(id.Inode))
}

// read reads the state of the copies, on a thread in the copy of the host. The second result has
// the light copies.
func (w *world) read(ctx context.Context) (*host.Host, []host.Namespace, error) {
	o := host.Options{OnlyPaths: true, AllSettings: true}
	for _, ns := range w.copies.Spaces[1:w.full] {
		o.Paths = append(o.Paths, ns.Path())
	}
	h, err := host.Read(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range h.Skipped {
		if len(h.Namespaces) != w.full {
			return nil, nil, fmt.Errorf("%w: read %s: %s", ErrWorld, s.What, s.Reason)
		}
	}
	light := make([]host.Namespace, len(w.light))
	for i, ns := range w.copies.Spaces[w.full:] {
		n, err := host.ReadNamespace(ns.Path(), host.Options{Brief: true})
		if err != nil {
			return nil, nil, fmt.Errorf("%w: read %s: %w", ErrWorld, w.light[i], err)
		}
		light[i] = *n
	}
	return h, light, nil
}

// run runs the process inside between two readings.
func (w *world) run(ctx context.Context) (err error) {
	before, lightBefore, err := w.read(ctx)
	if err != nil {
		return err
	}
	if err := w.operate(ctx); err != nil {
		return err
	}
	after, lightAfter, err := w.read(ctx)
	if err != nil {
		return err
	}
	w.out.Before, w.out.After = before, after
	for i, path := range w.light {
		list := host.DiffNamespace(&lightBefore[i], &lightAfter[i])
		if slices.ContainsFunc(list, func(c host.Change) bool { return !c.Derived }) {
			w.out.touched = append(w.out.touched, path)
		}
	}
	return nil
}

// operate runs the process inside.
func (w *world) operate(ctx context.Context) error {
	events, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer events.Close()
	cmd, err := w.command(ctx, theirs)
	if err != nil {
		return errors.Join(err, theirs.Close())
	}
	var stdout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &w.stderr
	err = cmd.Start()
	_ = theirs.Close() // the process has its own
	if err != nil {
		return fmt.Errorf("%w: %w", ErrWorld, err)
	}
	last := w.listen(events)
	err = cmd.Wait()
	w.out.Stdout = stdout.Bytes()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case last.Broken != "":
		w.stderr.Reset() // the same error
		return fmt.Errorf("%w: %s", ErrWorld, last.Broken)
	case err != nil:
		return fmt.Errorf("%w: the process in it: %w", ErrWorld, err)
	case last.End == nil:
		return fmt.Errorf("%w: the process in it has not finished", ErrWorld)
	}
	w.out.End = *last.End
	return nil
}

func (w *world) command(ctx context.Context, events *os.File) (*exec.Cmd, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	w.out.firewalld = firewalldRuns()
	s := spec{Dir: dir, Data: w.o.Data, Namespaces: w.paths, IDs: w.ids, Firewalld: w.out.firewalld}
	for _, d := range append([]string{"/run", "/var/lib/cni"}, w.o.Writable...) {
		abs, err := filepath.Abs(d)
		if err != nil {
			return nil, err
		}
		s.Writable = append(s.Writable, abs)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, w.o.Program[0], w.o.Program[1:]...)
	cmd.Env, cmd.Stdin = append(os.Environ(), w.o.Env...), bytes.NewReader(text)
	cmd.ExtraFiles = []*os.File{events}
	for _, ns := range w.leads {
		cmd.ExtraFiles = append(cmd.ExtraFiles, ns.File())
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID, Pdeathsig: unix.SIGKILL,
	}
	return cmd, nil
}

// listen collects the events and returns the last one.
func (w *world) listen(events io.Reader) (last event) {
	for d := json.NewDecoder(events); ; {
		var e event
		if d.Decode(&e) != nil {
			return last
		}
		last = e
		switch {
		case e.Operation != nil:
			w.out.Operations = append(w.out.Operations, *e.Operation)
		case e.File != nil:
			w.out.files = append(w.out.files, *e.File)
		}
	}
}

// firewalldRuns reports whether a process of firewalld exists. It does not ask the system bus.
func firewalldRuns() bool {
	names, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(b)) == "firewalld" {
			return true
		}
	}
	return false
}
