// Package daemon gets, renews and releases DHCP leases for attachments, and changes their
// interfaces when a server changes a lease. It stores leases in files, so that a daemon can
// continue with the leases of a daemon that ended or was killed. It serves Tenon's plugin and the
// upstream plugin, and opens the sockets on links. Packages v4 and v6 decide which messages it
// sends.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/tenon-cni/tenon/internal/about"
	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/ledger"
	"github.com/tenon-cni/tenon/internal/statefile"
	"github.com/tenon-cni/tenon/internal/unixsocket"
)

// Options are the flags of the daemon.
type Options = dhcp.DaemonOptions

// Daemon is a running daemon.
type Daemon struct {
	Options
	host          host
	leases, notes ledger.Ledger
	listener      *net.UnixListener
	handedOver    chan struct{} // closed after another daemon has taken the socket

	running        sync.WaitGroup // goroutines of leases
	turns          chan struct{}  // has an element for each lease that is at work in the kernel
	requests       context.Context
	cancelRequests context.CancelFunc

	mu     sync.Mutex
	all    map[string]*lease // by file name
	busy   int               // number of requests in progress
	idle   *sync.Cond        // signals that busy has decreased
	ending bool
}

// noteEvery is the interval at which the daemon reads the notes of attachments that were deleted
// while it did not answer.
const noteEvery = time.Minute

// atWork is the number of leases that may enter namespaces and send at the same time. Each occupies
// a thread of the Go runtime, which never ends, and after a start all leases send at once.
const atWork = 16

// turn waits for a turn to work in the kernel, and returns the function that ends it.
func (d *Daemon) turn() (end func()) {
	d.turns <- struct{}{}
	return func() { <-d.turns }
}

// Run runs a daemon until its context ends. It does not release the leases.
func Run(ctx context.Context, o Options) error {
	o.Socket = cmp.Or(o.Socket, dhcp.DefaultSocket)
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.ResendMax = cmp.Or(o.ResendMax, 62*time.Second)
	o.ResendTimeout = cmp.Or(o.ResendTimeout, 208*time.Second)
	o.LookEvery = cmp.Or(o.LookEvery, time.Minute)
	if o.HostPrefix != "" && !filepath.IsAbs(o.HostPrefix) {
		return fmt.Errorf("hostprefix %q is not an absolute path", o.HostPrefix)
	}
	d := &Daemon{Options: o, host: host{o.HostPrefix}, all: map[string]*lease{},
		handedOver: make(chan struct{}), turns: make(chan struct{}, atWork)}
	d.Socket = o.HostPrefix + o.Socket
	d.idle = sync.NewCond(&d.mu)
	d.requests, d.cancelRequests = context.WithCancel(context.WithoutCancel(ctx))
	defer d.cancelRequests()
	var err error
	if d.leases, err = dhcp.LeaseFiles(d.Socket); err != nil {
		return err
	}
	if d.notes, err = dhcp.NoteFiles(d.Socket); err != nil {
		return err
	}
	if d.PIDFile != "" {
		if !filepath.IsAbs(d.PIDFile) {
			return fmt.Errorf("pidfile %q is not an absolute path", d.PIDFile)
		}
		if err := statefile.WriteFile(d.PIDFile, []byte(strconv.Itoa(os.Getpid())),
			0o644); err != nil {
			return err
		}
		defer d.removePIDFile()
	}
	return d.serve(ctx)
}

// removePIDFile removes the file unless another daemon has written its own.
func (d *Daemon) removePIDFile() {
	if b, err := statefile.ReadFile(d.PIDFile); err == nil &&
		string(b) == strconv.Itoa(os.Getpid()) {
		os.Remove(d.PIDFile)
	}
}

func (d *Daemon) serve(ctx context.Context) error {
	if err := d.takeOver(ctx); err != nil {
		return err
	}
	unlock, err := lock(ctx, dhcp.Dir(d.Socket))
	if err != nil {
		return err
	}
	defer unlock()
	if err := d.listen(); err != nil {
		return err
	}
	if err := d.adopt(ctx); err != nil {
		d.Log.Error("cannot adopt leases", "error", err)
	}
	d.processNotes(ctx)
	notes := time.NewTicker(noteEvery)
	defer notes.Stop()
	server := &Server{Handle: d.handle, Log: d.Log}
	served := make(chan error, 1)
	go func() { served <- server.Serve(d.requests, d.listener) }()
	d.Log.Info("listening", "socket", d.Socket)
	for {
		select {
		case <-notes.C:
			d.processNotes(ctx)
		case <-d.handedOver: // the request is answered before Serve returns
			unlock()
			return <-served
		case err := <-served:
			d.leave()
			return err
		case <-ctx.Done():
			err := d.listener.Close()
			if d.Options.Listener == nil {
				err = errors.Join(err, remove(d.Socket))
			}
			d.cancelRequests()
			d.leave()
			return errors.Join(err, <-served)
		}
	}
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// takeOver ends a running daemon and gets its socket.
func (d *Daemon) takeOver(ctx context.Context) error {
	if !d.TakeOver {
		return nil
	}
	r, err := dhcp.Call(ctx, d.Socket, dhcp.Request{Verb: dhcp.HandOver})
	if errors.Is(err, dhcp.ErrUnreachable) {
		return nil
	}
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		return fmt.Errorf("take over: %w", err)
	}
	if r.Listener == nil {
		return errors.New("take over: the running daemon has not passed its socket")
	}
	d.listener, err = unixsocket.Inherited(r.Listener)
	return err
}

// listen opens the socket unless takeOver has received it.
func (d *Daemon) listen() (err error) {
	switch {
	case d.listener != nil:
	case d.Options.Listener != nil:
		d.listener, err = unixsocket.Inherited(d.Options.Listener)
	default:
		d.listener, err = unixsocket.Listen(d.Socket)
	}
	return err
}

// leave ends all goroutines and keeps the leases.
func (d *Daemon) leave() {
	d.mu.Lock()
	d.ending = true
	for _, l := range d.all {
		l.stop(errLeave)
	}
	d.mu.Unlock()
	d.running.Wait()
}

// adopt continues with the leases in the files.
func (d *Daemon) adopt(ctx context.Context) error {
	names, err := d.leases.Names()
	errs := []error{err}
	for _, name := range names {
		var rec Record
		if ok, err := d.leases.Read(name, &rec); err != nil || !ok {
			errs = append(errs, err)
			continue
		}
		at, err := d.host.open(ctx, &rec, nil)
		if errors.Is(err, errGone) {
			d.Log.Info("forgot the lease of a container that no longer exists",
				about.Args(rec.Attachment)...)
			errs = append(errs, d.leases.Remove(name))
			continue
		}
		if err == nil {
			err = d.removeExpired(ctx, at, &rec)
			at.Close()
		}
		if err != nil {
			d.Log.With(about.Args(rec.Attachment)...).Warn("lease", "error", err)
		}
		d.mu.Lock()
		d.all[name] = d.start(rec, 0, nil)
		d.mu.Unlock()
	}
	d.Log.Info("adopted", "leases", len(names))
	return errors.Join(errs...)
}

// removeExpired removes addresses with a lease that expired while no daemon ran.
func (d *Daemon) removeExpired(ctx context.Context, at *openLink, rec *Record) error {
	const why = "the lease expired while no daemon was running"
	var errs []error
	if rec.Lease != nil && rec.Lease.Expired(time.Now()) {
		errs = append(errs, at.apply(ctx, rec.Lease, nil, rec))
		rec.Last, rec.Lease, rec.Lost = rec.Lease, nil, why
	}
	if rec.Six != nil && rec.Six.Expired(time.Now()) {
		errs = append(errs, at.apply6(ctx, rec.Six, nil))
		rec.Six, rec.Lost6 = nil, why
	}
	if len(errs) > 0 {
		errs = append(errs, d.leases.Write(dhcp.FileName(rec.Attachment), rec))
	}
	return errors.Join(errs...)
}

// processNotes releases the leases of attachments that were deleted while no daemon ran.
func (d *Daemon) processNotes(ctx context.Context) {
	names, err := d.notes.Names()
	if err != nil {
		d.Log.Error("notes", "error", err)
	}
	for _, name := range names {
		if err := errors.Join(d.drop(ctx, name), d.notes.Remove(name)); err != nil {
			d.Log.Error("note", "error", err)
		}
	}
}

// drop releases the leases of an attachment, if it has any, and waits for the release. The error
// explains why the file of the lease remains.
func (d *Daemon) drop(ctx context.Context, name string) error {
	d.mu.Lock()
	l := d.all[name]
	if l == nil {
		defer d.mu.Unlock()
		return d.leases.Remove(name) // an earlier call may have failed to remove it
	}
	d.mu.Unlock()
	l.stop(errRelease)
	select {
	case <-l.ended:
		return l.unremoved
	case <-ctx.Done():
		return nil
	}
}

// forget removes a lease that has ended from the list.
func (d *Daemon) forget(l *lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all[l.name] == l {
		delete(d.all, l.name)
	}
}
