package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
)

type bench struct {
	options
	programs   string // directory of the copies
	ours, peer *side
	rows       []row
}

func (b *bench) sides() []*side { return []*side{b.ours, b.peer} }

// record adds a row that compares two durations; the ratio is the peer's divided by ours.
func (b *bench) record(what string, ours, peer time.Duration, limit *budget) {
	r := row{What: what, Unit: "ms", Ours: milliseconds(ours), Peer: milliseconds(peer)}
	if ours > 0 && peer > 0 {
		r.Ratio = float64(peer) / float64(ours)
	}
	b.add(r, limit, r.Ratio)
}

// compare adds a row that compares two durations; the ratio is ours divided by the peer's.
func (b *bench) compare(what string, ours, peer time.Duration, limit *budget) {
	r := row{What: what, Unit: "ms", Ours: milliseconds(ours), Peer: milliseconds(peer), Ratio: float64(ours) / float64(peer)}
	b.add(r, limit, r.Ratio)
}

func (b *bench) later(what string, limit *budget) {
	b.add(row{What: what, Budget: limit.String(), Result: "later"}, nil, 0)
}

// processStart compares VERSION with an empty Go program.
func (b *bench) processStart(ctx context.Context) error {
	empty, err := b.buildEmpty(ctx)
	if err != nil {
		return err
	}
	starts := []struct {
		side   *side
		plugin string
	}{{b.ours, "bridge"}, {b.peer, "bridge"}, {empty, "empty"}}
	samples := make([][]time.Duration, len(starts))
	for range b.repeats(300, 100) {
		for i, s := range starts {
			_, took, err := s.side.run(ctx, call{plugin: s.plugin, verb: "VERSION"})
			if err != nil {
				return err
			}
			samples[i] = append(samples[i], took)
		}
	}
	ours, peer, floor := median(samples[0]), median(samples[1]), median(samples[2])
	b.record("VERSION", ours, peer, nil)
	b.compare("VERSION (peer column: an empty Go program)", ours, floor, atMost(1.7))
	return nil
}

// deadline measures the delay between a deadline and the return of the call, for a plugin that
// ignores SIGTERM and hangs in a child.
func (b *bench) deadline(ctx context.Context) error {
	path := filepath.Join(b.programs, "hangs")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n(trap '' TERM; while :; do sleep 60; done) &\nsleep 60\n"), 0o755); err != nil {
		return err
	}
	const given = 100 * time.Millisecond
	var late []time.Duration
	for range b.repeats(9, 3) {
		short, cancel := context.WithTimeout(ctx, given)
		start := time.Now()
		_, err := invoke.Process{Stderr: io.Discard}.Call(short, invoke.Call{Path: path, Env: cni.Env{Command: cni.Status}})
		late = append(late, time.Since(start)-given)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("a plugin that hangs: %w", err)
		}
	}
	r := row{What: "a plugin that ignores SIGTERM: back after the deadline", Unit: "ms", Ours: milliseconds(slices.Max(late))}
	b.add(r, atMost(250), r.Ours)
	return nil
}

// buildEmpty compiles an empty program with the flags of the plugins.
func (b *bench) buildEmpty(ctx context.Context) (*side, error) {
	dir := filepath.Join(b.programs, "empty-program")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	source := filepath.Join(dir, "empty.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o644); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "empty"), source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build an empty program: %w: %s", err, out)
	}
	plugins, err := copyPrograms(b.programs, "empty", dir)
	return &side{name: "empty", plugins: plugins}, err
}

// size compares the sizes of the plugin directories; hard links count once. The budget applies to
// tenon alone, although our directory also has tenon-dhcp.
func (b *bench) size(context.Context) error {
	const mebibyte = 1 << 20
	var sizes [2]float64
	for i, s := range b.sides() {
		entries, err := os.ReadDir(s.plugins)
		if err != nil {
			return err
		}
		counted := map[uint64]bool{}
		for _, e := range entries {
			info, err := os.Stat(filepath.Join(s.plugins, e.Name()))
			if err != nil {
				return err
			}
			inode := info.Sys().(*syscall.Stat_t).Ino
			if info.Mode().IsRegular() && !counted[inode] {
				counted[inode] = true
				sizes[i] += float64(info.Size()) / mebibyte
			}
		}
	}
	r := row{What: "plugin directory on disk", Unit: "MiB", Ours: sizes[0], Peer: sizes[1], Ratio: sizes[1] / sizes[0]}
	b.add(r, nil, 0)
	info, err := os.Stat(filepath.Join(b.ours.plugins, "bridge"))
	if err != nil {
		return err
	}
	r = row{What: "tenon, which is every plugin, on disk", Unit: "MiB", Ours: float64(info.Size()) / mebibyte}
	b.add(r, atMost(12), r.Ours)
	return nil
}

// processes counts the processes that ADD and DEL start beyond the plugin.
func (b *bench) processes(ctx context.Context) error {
	n := network{name: "procs", version: "1.0.0", dual: true, masq: true}
	var counts [2]map[string]int
	for i, s := range b.sides() {
		counts[i] = map[string]int{}
		netns, err := s.newNamespace(n.name)
		if err != nil {
			return err
		}
		for _, verb := range []string{"ADD", "DEL"} {
			err := s.inHost(func() (err error) {
				counts[i][verb], err = s.countProcesses(ctx, call{plugin: "bridge", verb: verb, container: "c", netns: netns, conf: s.bridgeConf(n, nil)})
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	for _, verb := range []string{"ADD", "DEL"} {
		ours, peer := float64(counts[0][verb]), float64(counts[1][verb])
		r := row{What: "bridge + host-local + ipMasq, dual: started by " + verb, Unit: "processes", Ours: ours, Peer: peer}
		b.add(r, atMost(0), ours)
	}
	return nil
}

// statusLimit is in milliseconds.
var statusLimit = atMost(5)

// latencies measures every verb of bridge + host-local, one call at a time.
func (b *bench) latencies(ctx context.Context) error {
	for _, n := range []network{
		{name: "v4", version: "1.0.0"},
		{name: "v4masq", version: "1.0.0", masq: true},
		{name: "dual", version: "1.0.0", dual: true},
		{name: "dualmasq", version: "1.0.0", dual: true, masq: true},
	} {
		samples := map[string]*[2][]time.Duration{"ADD": {}, "CHECK": {}, "DEL": {}}
		netns, err := b.namespaces(n.name)
		if err != nil {
			return err
		}
		for round := range b.repeats(40, 8) {
			for i, s := range b.sides() {
				var prev []byte
				for _, verb := range []string{"ADD", "CHECK", "DEL"} {
					c := call{plugin: "bridge", verb: verb, container: fmt.Sprintf("c%d", round), netns: netns[i], conf: s.bridgeConf(n, prev)}
					err := s.inHost(func() error {
						out, took, err := s.run(ctx, c)
						samples[verb][i] = append(samples[verb][i], took)
						if verb == "ADD" {
							prev = out
						}
						return err
					})
					if err != nil {
						return err
					}
				}
			}
		}
		for _, verb := range []string{"ADD", "CHECK", "DEL"} {
			b.record(fmt.Sprintf("bridge + host-local, %s: %s", n.describe(), verb), median(samples[verb][0]), median(samples[verb][1]), nil)
		}
	}
	return b.status(ctx)
}

func (n network) describe() string {
	text := "IPv4"
	if n.dual {
		text = "dual stack"
	}
	if n.masq {
		text += ", ipMasq"
	}
	return text
}

// namespaces returns a new container namespace for each side.
func (b *bench) namespaces(name string) (paths [2]string, err error) {
	for i, s := range b.sides() {
		if paths[i], err = s.newNamespace(name); err != nil {
			return paths, err
		}
	}
	return paths, nil
}

// status measures STATUS on sides that support version 1.1.0, which introduced it.
func (b *bench) status(ctx context.Context) error {
	n := network{name: "status", version: "1.1.0", dual: true, masq: true}
	var medians [2]time.Duration
	for i, s := range b.sides() {
		supported, err := s.supports(ctx, "bridge", n.version)
		if err != nil {
			return err
		}
		if !supported {
			continue
		}
		var samples []time.Duration
		for range b.repeats(60, 20) {
			err := s.inHost(func() error {
				_, took, err := s.run(ctx, call{plugin: "bridge", verb: "STATUS", conf: s.bridgeConf(n, nil)})
				samples = append(samples, took)
				return err
			})
			if err != nil {
				return err
			}
		}
		medians[i] = median(samples)
	}
	const what = "bridge + host-local: STATUS"
	if medians[0] == 0 {
		b.later(what, statusLimit)
		return nil
	}
	r := row{What: what, Unit: "ms", Ours: milliseconds(medians[0]), Peer: milliseconds(medians[1])}
	b.add(r, statusLimit, r.Ours)
	return nil
}

// chainWithPortmap measures the chain that the budgets refer to.
func (b *bench) chainWithPortmap(ctx context.Context) error {
	const what = "chain bridge + host-local + ipMasq + portmap"
	addBudget, delBudget, rateBudget := atLeast(8), atLeast(5), atLeast(12)
	if !b.ours.has("portmap") || !b.peer.has("portmap") {
		b.later(what+": ADD", addBudget)
		b.later(what+": DEL", delBudget)
		b.later(what+": 16 at a time", rateBudget)
		return nil
	}
	n := network{name: "chain", version: "1.0.0", masq: true, portMaps: true}
	netns, err := b.namespaces(n.name)
	if err != nil {
		return err
	}
	var adds, dels [2][]time.Duration
	for round := range b.repeats(40, 8) {
		for i, s := range b.sides() {
			err := s.inHost(func() error {
				add, del, err := s.attachment(ctx, n, round, netns[i])
				adds[i], dels[i] = append(adds[i], add), append(dels[i], del)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	b.record(what+": ADD", median(adds[0]), median(adds[1]), addBudget)
	b.record(what+": DEL", median(dels[0]), median(dels[1]), delBudget)
	return b.rate(ctx, what, n, 16, rateBudget)
}

// attachment adds and removes container number i and returns both durations.
func (s *side) attachment(ctx context.Context, n network, i int, netns string) (add, del time.Duration, err error) {
	container := fmt.Sprintf("c%d", i)
	result, add, err := s.run(ctx, call{plugin: "bridge", verb: "ADD", container: container, netns: netns, conf: s.bridgeConf(n, nil)})
	if err != nil {
		return 0, 0, err
	}
	if n.portMaps {
		c := call{plugin: "portmap", verb: "ADD", container: container, netns: netns, conf: s.portmapConf(n, i, result)}
		_, took, err := s.run(ctx, c)
		if err != nil {
			return 0, 0, err
		}
		c.verb = "DEL"
		_, del, err = s.run(ctx, c)
		if err != nil {
			return 0, 0, err
		}
		add += took
	}
	_, took, err := s.run(ctx, call{plugin: "bridge", verb: "DEL", container: container, netns: netns, conf: s.bridgeConf(n, result)})
	return add, del + took, err
}

func (b *bench) rates(ctx context.Context) error {
	n := network{name: "rate", version: "1.0.0", dual: true, masq: true}
	for _, workers := range []int{1, 8, 64} {
		if err := b.rate(ctx, "bridge + host-local, "+n.describe(), n, workers, nil); err != nil {
			return err
		}
	}
	return nil
}

// rate measures attachments (ADD and DEL) per second with a fixed number in progress.
func (b *bench) rate(ctx context.Context, what string, n network, workers int, limit *budget) error {
	each := max(1, 24/workers)
	var bursts [2][]time.Duration
	for round := range b.repeats(3, 1) {
		n := n
		n.name = fmt.Sprintf("%s%d-%d", n.name, workers, round)
		for i, s := range b.sides() {
			took, err := s.burst(n.name, workers, func(worker int, netns string) error {
				return s.inHost(func() (err error) {
					for c := 0; c < each && err == nil; c++ {
						_, _, err = s.attachment(ctx, n, worker*each+c, netns)
					}
					return err
				})
			})
			if err != nil {
				return err
			}
			bursts[i] = append(bursts[i], took)
		}
	}
	perSecond := func(took time.Duration) float64 { return float64(workers*each) / took.Seconds() }
	ours, peer := perSecond(median(bursts[0])), perSecond(median(bursts[1]))
	r := row{What: fmt.Sprintf("%s: %d at a time", what, workers), Unit: "/s", Ours: ours, Peer: peer, Ratio: ours / peer}
	b.add(r, limit, r.Ratio)
	return nil
}

// burst runs every worker in its own namespace and returns the time until all have finished.
func (s *side) burst(name string, workers int, work func(worker int, netns string) error) (time.Duration, error) {
	netns := make([]string, workers)
	for w := range netns {
		var err error
		if netns[w], err = s.newNamespace(fmt.Sprintf("%s-%d", name, w)); err != nil {
			return 0, err
		}
	}
	errs := make([]error, workers)
	var wait sync.WaitGroup
	start := time.Now()
	for w := range workers {
		wait.Go(func() { errs[w] = work(w, netns[w]) })
	}
	wait.Wait()
	return time.Since(start), errors.Join(errs...)
}

// leases measures host-local alone with small and large pools in turn.
func (b *bench) leases(ctx context.Context) error {
	pools := []int{100, 10_000, 60_000}
	type samples struct{ add, del [2][]time.Duration }
	measured := make(map[int]*samples)
	for _, held := range pools {
		measured[held] = &samples{}
		for _, s := range b.sides() {
			if err := s.holdLeases(pool(held), held); err != nil {
				return err
			}
			if _, _, err := s.lease(ctx, held, 0); err != nil { // builds an index, once
				return err
			}
		}
	}
	for round := range b.repeats(60, 20) {
		for _, held := range pools {
			for i, s := range b.sides() {
				if s == b.peer && held > 1000 && round >= b.repeats(5, 2) {
					continue // a call takes half a second
				}
				add, del, err := s.lease(ctx, held, round+1)
				if err != nil {
					return err
				}
				m := measured[held]
				m.add[i], m.del[i] = append(m.add[i], add), append(m.del[i], del)
			}
		}
	}
	for _, held := range pools {
		m := measured[held]
		b.record(fmt.Sprintf("host-local, %d leases held: ADD", held), median(m.add[0]), median(m.add[1]), nil)
		b.record(fmt.Sprintf("host-local, %d leases held: DEL", held), median(m.del[0]), median(m.del[1]), nil)
	}
	few, many := median(measured[pools[0]].add[0]), median(measured[pools[2]].add[0])
	b.compare("host-local ADD, 60000 leases held (peer column: ours, 100)", many, few, atMost(1.3))
	return nil
}

func pool(held int) string { return fmt.Sprintf("leases%d", held) }

// lease reserves and releases one more address and returns both durations.
func (s *side) lease(ctx context.Context, held, i int) (add, del time.Duration, err error) {
	conf := s.bridgeConf(network{name: pool(held), version: "1.0.0"}, nil)
	c := call{plugin: "host-local", verb: "ADD", container: fmt.Sprintf("new%d", i), netns: s.host, conf: conf}
	if _, add, err = s.run(ctx, c); err != nil {
		return 0, 0, err
	}
	c.verb = "DEL"
	_, del, err = s.run(ctx, c)
	return add, del, err
}

// holdLeases writes n reservations in the format of host-local.
func (s *side) holdLeases(name string, count int) error {
	dir := filepath.Join(s.state, "leases", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	address := netip.MustParseAddr("10.77.0.2")
	for i := range count {
		if err := os.WriteFile(filepath.Join(dir, address.String()), fmt.Appendf(nil, "held%d\r\neth0", i), 0o600); err != nil {
			return err
		}
		address = address.Next()
	}
	return os.WriteFile(filepath.Join(dir, "last_reserved_ip.0"), []byte(address.Prev().String()), 0o600)
}
