package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/agent"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/test/memkv"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// host is a node in a simulation, or a copy of one.
type host struct {
	*node
	s      *simulation
	number int
	copied bool   // place shows that the directory is a copy
	disk   string // an earlier copy of the directory, or ""

	running bool          // a process of the agent has been started and not ended by a step
	off     bool          // the power
	cut     bool          // from the store
	flaky   bool          // requests fail
	gone    bool          // an operator has removed it
	busy    atomic.Int32  // ADDs
	life    atomic.Int32  // a number; it ends with the containers
	breaks  atomic.Uint64 // of its connections
	boots   int
	keep    time.Time // until then nothing may disturb the agent
	started time.Time // the agent

	held map[string]netip.Addr // by container; s.mu guards it
	last int                   // number of a container
}

// host adds a host.
func (s *simulation) host(n *node) *host {
	h := &host{node: n, s: s, number: len(s.hosts), held: map[string]netip.Addr{}}
	n.quits = true
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(s.seed, uint64(h.number)+1))
	n.change = func(o *agent.Options) {
		o.Breaks = h.breaks.Load
		o.Jitter = func(limit time.Duration) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return time.Duration(r.Int64N(int64(max(limit, 1))))
		}
	}
	s.hosts = append(s.hosts, h)
	return h
}

func (h *host) String() string { return fmt.Sprintf("%s(%d)", h.name, h.number) }

// alive reports whether the agent runs.
func (h *host) alive() bool { return h.running && len(h.node.ended) == 0 }

// healthy reports whether the agent runs and reaches the store.
func (h *host) healthy() bool { return h.alive() && !h.cut && !h.flaky }

// kept reports whether nothing may disturb the agent.
func (h *host) kept() bool { return time.Now().Before(h.keep) }

// keepFor forbids disturbances for a time, and ends faults.
func (h *host) keepFor(d time.Duration) {
	h.steady()
	h.keep = time.Now().Add(d)
}

// launch starts the agent.
func (h *host) launch() {
	if h.running {
		h.node.stop()
	}
	client := h.kv.Client(h.name)
	client.Partition(h.cut)
	h.flaky = false
	h.running, h.off, h.started = true, false, time.Now()
	h.startWith(client)
	h.s.disturbed(h)
}

// halt ends the agent.
func (h *host) halt(end func()) {
	if h.running {
		end()
	}
	h.running = false
	h.s.disturbed(h)
}

// powerOff ends the agent and all containers.
func (h *host) powerOff() {
	h.halt(h.node.kill)
	h.off = true
	h.boots++
	h.life.Add(1)
	h.boot = fmt.Sprintf("boot-%d-%d", h.number, h.boots)
	h.endAll()
}

// endAll ends all containers without DEL.
func (h *host) endAll() {
	for _, c := range h.containers() {
		h.s.ended(h, c)
	}
}

// containers returns the containers of the host, sorted.
func (h *host) containers() []string {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	return slices.Sorted(maps.Keys(h.held))
}

// address returns the address of a container.
func (h *host) address(container string) netip.Addr {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	return h.held[container]
}

// steady ends the partition and the faults of the host.
func (h *host) steady() {
	h.cut, h.flaky = false, false
	if h.client != nil {
		h.client.Partition(false)
		h.client.Fault(nil)
	}
}

// fill adds containers until an ADD fails. It does not wait for them.
func (h *host) fill(count int) {
	p, life := h.plugin(), h.life.Load()
	first := h.last + 1
	h.last += count
	h.busy.Add(1)
	h.s.flights.Go(func() {
		defer h.busy.Add(-1)
		for i := range count {
			c := fmt.Sprint("c", first+i)
			a, err := p.add("pods", c)
			if err != nil || !h.s.given(h, life, c, a) {
				return
			}
		}
	})
}

// end ends a container with DEL.
func (h *host) end(container string) {
	h.s.ended(h, container)
	p, err := h.files.Open(context.Background(), "pods", false)
	if err != nil {
		return
	}
	_, err = p.Release(context.Background(), owner(container))
	if err := errors.Join(err, p.Close()); err != nil {
		h.s.note("%s: DEL %s: %v", h, container, err)
	}
}

// faults lets about a third of the requests fail: before the store has executed them, after that, or
// so that it executes them later. Others are slow, before the store executes them or after that, as
// if the agent were slow to write the answer to its disk.
func (h *host) faults(seed int) {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(h.s.seed, uint64(seed)))
	h.flaky = true
	h.client.Fault(func(memkv.Call) memkv.Fault {
		mu.Lock()
		defer mu.Unlock()
		delay := time.Duration(r.Int64N(int64(7 * time.Second)))
		switch r.IntN(16) {
		case 0, 1:
			return memkv.Fault{Error: errLost}
		case 2, 3:
			return memkv.Fault{Error: errLost, Commit: memkv.Now}
		case 4:
			return memkv.Fault{Error: errLost, Commit: memkv.Later}
		case 5, 6:
			return memkv.Fault{Delay: delay}
		case 7, 8:
			return memkv.Fault{Slow: delay}
		case 9:
			if r.IntN(4) == 0 {
				return memkv.Fault{Slow: 6 * delay}
			}
		}
		return memkv.Fault{}
	})
}

// slow delays the next requests, and no others. Requests end with an error after five seconds.
func (h *host) slow(delay time.Duration) {
	first := h.client.Calls()
	h.client.Fault(func(c memkv.Call) memkv.Fault {
		if c.Number-first > 2 {
			return memkv.Fault{}
		}
		return memkv.Fault{Delay: delay}
	})
}

var errLost = errors.New("the request or its answer was lost")

// copyTree copies the directory of a host with the marks of reservations. With asOriginal, nothing in
// the copy shows that it is one, as on a snapshot of the file system.
func copyTree(from, to string, asOriginal bool) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	err := filepath.WalkDir(from, func(path string, _ fs.DirEntry, err error) error {
		const mark = "user.tenon.boot"
		value := make([]byte, 100)
		n, missing := unix.Lgetxattr(path, mark, value)
		if err != nil || missing != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		return unix.Lsetxattr(filepath.Join(to, rel), mark, value[:n], 0)
	})
	if err == nil && asOriginal {
		err = passAsOriginal(to)
	}
	return err
}

// passAsOriginal marks a copied directory such that nothing shows that it is a copy.
func passAsOriginal(dir string) error {
	files := local.New(local.Options{Dir: dir, BootID: "any"})
	doc, err := files.Node()
	if err != nil {
		return err
	}
	if doc.Place, err = files.MarkPlace(); err != nil {
		return err
	}
	if err := files.SetNode(doc); err != nil {
		return err
	}
	pools, err := files.Pools()
	for _, name := range pools {
		p, openErr := files.Open(context.Background(), name, false)
		if openErr != nil {
			return openErr
		}
		if p.Err() == nil {
			p.State.Place = doc.Place
			err = errors.Join(err, p.Save())
		}
		err = errors.Join(err, p.Close())
	}
	return err
}
