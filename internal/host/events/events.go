// Package events receives the notifications of the kernel about objects of a host that disappear:
// links, addresses, routes and rules of all namespaces, objects of nftables, rules of legacy
// iptables, and files. It names the process that deleted an object, where the kernel reports it.
// The package changes nothing, and knows neither the owners of objects nor CNI.
package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/tenon-cni/tenon/internal/iptables/legacy"
	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Types of notices.
type (
	Loss     = netlink.Loss
	Deletion = nftmsg.Deletion
	Table    = nftmsg.Table
)

// The kinds of a [Loss].
const (
	LostLink       = netlink.LostLink
	LostAddress    = netlink.LostAddress
	LostRoute      = netlink.LostRoute
	LostRule       = netlink.LostRule
	LostForwarding = netlink.LostForwarding
)

// Own is the [Loss.NSID] of the namespace in which a [Source] was opened.
const Own = netlink.SameNamespace

// Notice is one notification. Exactly one of Loss, Deleted and Legacy is set.
type Notice struct {
	Process Process
	Loss    *Loss
	Deleted []Deletion // in one transaction of nftables
	Legacy  *Table     // of legacy iptables, with fewer rules than before
}

// Batch is what a [Source] has received since the last call of [Source.Take].
type Batch struct {
	Notices []Notice
	Overrun bool // notifications were lost
	Files   bool // the directories have changed
}

// Options configure a [Source].
type Options struct {
	// Relevant reports whether a loss is of interest. It is called from several goroutines, for each
	// message of the kernel, so it must be fast.
	Relevant func(*Loss) bool
	// Tables reports whether deletions from a table are of interest.
	Tables func(Table) bool
	// LegacyLock is the file that programs lock while they change legacy iptables, which sends no
	// notifications: [XtablesLock]. "" ignores legacy iptables.
	LegacyLock string
	// Buffer is the size of the receive buffers in bytes; 0 is [netlink.StreamBuffer].
	Buffer int
}

// XtablesLock is the file that all programs lock while they change legacy iptables
// (iptables-legacy(8)).
const XtablesLock = "/run/xtables.lock"

// Source receives notifications until it is closed. Transactions of the own process are left out.
type Source struct {
	// C has a value after Take would return something new.
	C <-chan struct{}

	options Options
	ns      *netns.NS
	files   *files
	sizes   map[Table]int // of legacy iptables; used by the reader of files only
	signal  chan struct{}
	stop    context.CancelFunc
	ended   sync.WaitGroup

	mu    sync.Mutex
	batch Batch
	err   error
}

const (
	// maxNotices bounds a batch. More of them count as an overrun.
	maxNotices = 4096
	// pause is the time between two reads of a socket. Meanwhile messages gather in its buffer, so
	// that a program which makes thousands of changes each second wakes this process 40 times.
	pause = 25 * time.Millisecond
)

// Open opens a source in a namespace, which must stay open. The error wraps [os.ErrPermission] if
// the process lacks a capability. Without nftables in the kernel there are no notices about it.
func Open(ctx context.Context, ns *netns.NS, o Options) (*Source, error) {
	o.Buffer = cmp.Or(o.Buffer, netlink.StreamBuffer)
	losses, err := netlink.OpenLosses(ns, o.Buffer)
	if err != nil {
		return nil, fmt.Errorf("rtnetlink: %w", err)
	}
	tables, err := nftmsg.OpenMonitor(ns, o.Buffer, o.Tables)
	if err != nil {
		losses.Close()
		return nil, fmt.Errorf("nfnetlink: %w", err)
	}
	files, err := openFiles(o.LegacyLock)
	if err != nil {
		losses.Close()
		tables.Close()
		return nil, err
	}
	signal := make(chan struct{}, 1)
	s := &Source{C: signal, signal: signal, options: o, ns: ns, files: files}
	s.sizes, _ = legacy.Sizes(ns) // none where they cannot be read
	ctx, s.stop = context.WithCancel(ctx)
	context.AfterFunc(ctx, func() { losses.Close(); tables.Close(); files.file.Close() })
	for _, next := range []func(wait bool) (more bool, err error){
		func(wait bool) (bool, error) { return s.readLosses(losses, wait) },
		func(wait bool) (bool, error) { return s.readTables(tables, wait) },
		s.readFiles,
	} {
		s.ended.Go(func() { s.read(ctx, next) })
	}
	return s, nil
}

// Close ends the source.
func (s *Source) Close() {
	s.stop()
	s.ended.Wait()
}

// Take returns the notices since its last call, and the error of a source that has ended by
// itself.
func (s *Source) Take() (Batch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.batch
	s.batch = Batch{}
	return b, s.err
}

// read calls next until ctx is done: it waits for a message, and then reads all that have gathered.
func (s *Source) read(ctx context.Context, next func(wait bool) (more bool, err error)) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for wait := true; ; {
		more, err := next(wait)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, netlink.ErrOverrun):
			s.add(func(b *Batch) { b.Overrun = true })
		case err != nil:
			s.mu.Lock()
			s.err = errors.Join(s.err, err)
			s.mu.Unlock()
			s.add(func(*Batch) {})
			return
		case more:
			wait = false
			continue
		}
		if !wait { // all messages are read
			timer.Reset(pause)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
		}
		wait = true
	}
}

func (s *Source) add(change func(*Batch)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.batch)
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

func (s *Source) notice(n Notice) {
	s.add(func(b *Batch) {
		if len(b.Notices) >= maxNotices {
			b.Notices, b.Overrun = nil, true
		}
		b.Notices = append(b.Notices, n)
	})
}

func (s *Source) readLosses(m netlink.Losses, wait bool) (more bool, err error) {
	list, more, err := m.Next(wait)
	for _, l := range list {
		if l.PID != os.Getpid() && s.options.Relevant(&l) {
			s.notice(Notice{Loss: &l, Process: processOfPort(l.PID)})
		}
	}
	return more, err
}

func (s *Source) readTables(m *nftmsg.Monitor, wait bool) (more bool, err error) {
	list, more, err := m.Next(wait)
	for _, t := range list {
		if len(t.Deleted) > 0 && !own(t.PID) {
			s.notice(Notice{Deleted: t.Deleted, Process: process(t.PID, t.Process)})
		}
	}
	return more, err
}

// readFiles reads the changes of files, and looks at legacy iptables after a program has closed its
// lock.
func (s *Source) readFiles(wait bool) (more bool, err error) {
	if !wait {
		return false, nil // one read returns all changes
	}
	changed, unlocked, err := s.files.next()
	if changed {
		s.add(func(b *Batch) { b.Files = true })
	}
	if unlocked {
		s.compareLegacy()
	}
	return true, err
}

// compareLegacy notices tables of legacy iptables that have become smaller.
func (s *Source) compareLegacy() {
	now, err := legacy.Sizes(s.ns)
	if err != nil {
		return // the table changes; its program closes the lock again
	}
	for table, size := range s.sizes {
		if now[table] < size {
			s.notice(Notice{Legacy: &table})
		}
	}
	s.sizes = now
}
