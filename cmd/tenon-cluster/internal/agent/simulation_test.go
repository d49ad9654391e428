package agent_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/test/memkv"
	"github.com/tenon-cni/tenon/internal/cluster"
)

var (
	simulate = flag.Duration("simulate", 8*time.Second, "search histories for `TIME`")
	seed     = flag.Uint64("seed", 1, "first `SEED` of TestSimulation")
	shorten  = flag.Duration("shrink", 2*time.Minute, "shrink a history that fails for at most `TIME`")
	only     = flag.Bool("one-seed", false, "run only the history of -seed, and print its steps")
)

// history is what happens to a cluster. Its seed determines the steps, the waits and the jitter of
// the agents, and neither nonces nor the order in which goroutines run.
type history struct {
	seed     uint64
	nodes    int
	range4   string
	cooldown time.Duration
	steps    []step
}

// step is an action on a host, or on the next one on which it is possible. An action that is
// impossible, or that decision 0020 does not tolerate at that time, does nothing.
type step struct {
	action
	host int // its index, modulo the number of hosts
	n    int // for the action
	wait time.Duration
}

func (s step) String() string {
	return fmt.Sprintf("host %d: %s (%d), then %s", s.host, s.name, s.n, s.wait)
}

// action is a kind of steps. do reports whether it did something.
type action struct {
	name   string
	weight int
	always bool // in each history; others are in about half of them
	do     func(s *simulation, h *host, n int) bool
}

// newHistory returns the history of a seed.
func newHistory(seed uint64) history {
	r := rand.New(rand.NewPCG(seed, 0))
	h := history{seed: seed, nodes: 2 + r.IntN(2)}
	h.range4 = []string{"10.64.0.0/27", "10.64.0.0/27", "10.64.0.0/26"}[r.IntN(3)]
	h.cooldown = []time.Duration{time.Second, 20 * time.Second, 2 * time.Minute}[r.IntN(3)]
	var kinds []action
	for _, a := range actions() {
		if a.always || r.IntN(2) == 0 {
			kinds = append(kinds, slices.Repeat([]action{a}, a.weight)...)
		}
	}
	for range 20 + r.IntN(40) {
		h.steps = append(h.steps, step{kinds[r.IntN(len(kinds))], r.IntN(12), r.IntN(1 << 16), randomWait(r)})
	}
	return h
}

// randomWait is often shorter than a renewal, and sometimes long enough for a return.
func randomWait(r *rand.Rand) time.Duration {
	limits := []time.Duration{time.Second, time.Second, time.Second, 12 * time.Second, 12 * time.Second,
		12 * time.Second, 12 * time.Second, 40 * time.Second, 40 * time.Second, 2 * time.Minute}
	return time.Duration(r.Int64N(int64(limits[r.IntN(len(limits))])))
}

// outcome is what a history has shown.
type outcome struct {
	violation string // "" if there is none
	log       []string
	counts    map[string]int // of actions that did something, and of addresses
}

// run runs a history.
func (h history) run(t *testing.T) (o outcome) {
	t.Helper()
	inWorld(t, func(w *world) {
		s := newSimulation(w, h)
		defer s.flights.Wait()
		for _, p := range h.steps {
			if s.step(p); s.broken() != "" {
				break
			}
		}
		s.flights.Wait()
		o = outcome{s.broken(), s.log, s.counts}
	})
	return o
}

// attempts is how often a shorter history may run before it is given up: goroutines run in another
// order each time.
const attempts = 3

// shrink returns the shortest history that it finds in a limited time and that has a violation, and
// its outcome.
func (h history) shrink(t *testing.T, o outcome) (history, outcome) {
	t.Helper()
	end := time.Now().Add(*shorten)
	for size := len(h.steps) / 2; size > 0; size /= 2 {
		for from := 0; from < len(h.steps); {
			shorter := h
			shorter.steps = slices.Delete(slices.Clone(h.steps), from, min(from+size, len(h.steps)))
			failed := false
			for range attempts {
				if time.Now().After(end) {
					return h, o
				}
				if got := shorter.run(t); got.violation != "" {
					h, o, failed = shorter, got, true
					break
				}
			}
			if !failed {
				from += size
			}
		}
	}
	return h, o
}

// TestSimulation searches random histories of a cluster with real agents for an address with two
// holders. -simulate limits the time, and -seed N -one-seed repeats a history.
func TestSimulation(t *testing.T) {
	t.Parallel()
	if *only {
		h := newHistory(*seed)
		o := h.run(t)
		t.Log(strings.Join(o.log, "\n"))
		if o.violation != "" {
			t.Error(o.violation)
		}
		return
	}
	search := search{next: *seed, counts: map[string]int{}}
	t.Run("workers", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				search.work(t)
			})
		}
	})
	search.report(t)
}

// search is the common state of the workers.
type search struct {
	mu     sync.Mutex
	next   uint64
	counts map[string]int
	failed atomic.Bool
}

// work runs histories until the time is over or one has failed.
func (s *search) work(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(*simulate); time.Now().Before(end) && !s.failed.Load(); {
		s.mu.Lock()
		h := newHistory(s.next)
		s.next++
		s.mu.Unlock()
		start := time.Now()
		o := h.run(t)
		s.mu.Lock()
		for name, n := range o.counts {
			s.counts[name] += n
		}
		s.counts["histories"]++
		s.mu.Unlock()
		if t.Failed() {
			t.Errorf("in the history of seed %d", h.seed)
			return
		}
		if o.violation == "" || s.failed.Swap(true) {
			continue
		}
		t.Errorf("seed %d, after %s: %s", h.seed, time.Since(start).Round(time.Millisecond), o.violation)
		long := len(h.steps)
		h, o = h.shrink(t, o)
		t.Errorf("the shortest history found has %d of %d steps:\n%s\nwhat happened:\n%s\n%s",
			len(h.steps), long, h, strings.Join(o.log, "\n"), o.violation)
	}
}

func (h history) String() string {
	lines := []string{fmt.Sprintf("%d nodes, pool %s, cooldown %s", h.nodes, h.range4, h.cooldown)}
	for _, s := range h.steps {
		lines = append(lines, s.String())
	}
	return strings.Join(lines, "\n")
}

// report prints the numbers of histories, addresses and actions.
func (s *search) report(t *testing.T) {
	var all []string
	for name, n := range s.counts {
		if name != "histories" {
			all = append(all, fmt.Sprintf("%d %s", n, name))
		}
	}
	slices.Sort(all)
	t.Logf("%d histories from seed %d: %s", s.counts["histories"], *seed, strings.Join(all, ", "))
	if s.counts["histories"] == 0 || s.counts["addresses"] == 0 {
		t.Error("the simulation has given out no address")
	}
}

// simulation is a running history.
type simulation struct {
	*world
	history
	hosts    []*host
	pairs    []*pair
	backups  [3]*memkv.Backup
	restored time.Time // the last time
	began    time.Time
	log      []string
	counts   map[string]int
	flights  sync.WaitGroup // additions

	mu        sync.Mutex
	holders   map[netip.Addr]string // the host and the container
	violation string
}

func newSimulation(w *world, h history) *simulation {
	s := &simulation{world: w, history: h, began: time.Now(), counts: map[string]int{},
		holders: map[netip.Addr]string{}}
	w.pool(cluster.Pool{Range: prefix(h.range4), BlockBits: 29, Cooldown: cluster.Duration(h.cooldown)})
	for i := range h.nodes {
		n := s.host(w.node(fmt.Sprint("n", i+1)))
		n.launch()
	}
	pass(leaseTime)
	return s
}

// step runs a step and then waits.
func (s *simulation) step(p step) {
	for i := range s.hosts { // the first one for which the action is possible
		h := s.hosts[(p.host+i)%len(s.hosts)]
		if p.do(s, h, p.n) {
			s.mu.Lock()
			s.counts[p.name]++
			s.mu.Unlock()
			s.note("%s: %s (%d)", h, p.name, p.n)
			break
		}
	}
	synctest.Wait()
	pass(p.wait)
	for _, p := range s.pairs {
		p.update()
	}
}

// note adds a line to the log.
func (s *simulation) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := fmt.Sprintf("%8s %s", time.Since(s.began).Round(time.Second/10), fmt.Sprintf(format, args...))
	s.log = append(s.log, line)
	if os.Getenv("TENON_TEST_LOG") != "" {
		fmt.Fprintln(os.Stderr, line)
	}
}

func (s *simulation) broken() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.violation
}

// given records that a container holds an address. It returns false if the life of the host has ended
// since ADD began.
func (s *simulation) given(h *host, life int32, container string, a netip.Addr) bool {
	holder := h.String() + " " + container
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.life.Load() != life {
		return false
	}
	if other := s.holders[a]; other != "" && s.violation == "" {
		s.violation = fmt.Sprintf("%s has two holders: %s and %s", a, other, holder)
	}
	s.holders[a] = holder
	h.held[container] = a
	s.counts["addresses"]++
	return true
}

// ended records that a container no longer exists.
func (s *simulation) ended(h *host, container string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := h.held[container]; s.holders[a] == h.String()+" "+container {
		delete(s.holders, a)
	}
	delete(h.held, container)
}
