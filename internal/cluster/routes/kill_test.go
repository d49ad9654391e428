package routes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tenon-cni/tenon/internal/cluster/routes"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// killAt is the environment variable with the number of the change at which a child process kills
// itself, counted from 1.
const killAt = "TENON_TEST_KILL_AT"

// job is the input of a child process.
type job struct {
	Options routes.Options
	Want    routes.Want
	Remove  bool
}

// killed runs in the child process, in the namespace that it inherits.
func killed() {
	var at, step int
	var j job
	_, err := fmt.Sscan(os.Getenv(killAt), &at)
	err = errors.Join(err, json.NewDecoder(os.Stdin).Decode(&j))
	r, failed := routes.New(j.Options)
	if err := errors.Join(err, failed); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	r.SetWatch(func(string) error {
		if step++; step == at {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return nil
	})
	if j.Remove {
		err = r.Remove(context.Background())
	} else {
		_, err = r.Apply(context.Background(), j.Want)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// killedAt runs a job in a child process that kills itself at a change, and reports whether it
// did: otherwise it made fewer changes.
func killedAt(t *testing.T, ns *testnet.Namespace, j job, at int) bool {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	input, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	var state *os.ProcessState
	err = ns.Run(func() error {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", killAt, at))
		cmd.Stdin = strings.NewReader(string(input))
		cmd.Stderr = os.Stderr
		err := cmd.Run()
		state = cmd.ProcessState
		return err
	})
	status := state.Sys().(syscall.WaitStatus)
	if !status.Signaled() && err != nil {
		t.Fatal(err)
	}
	return status.Signaled() && status.Signal() == syscall.SIGKILL
}

// single is one host with an uplink, for tests without traffic.
type single struct {
	t       *testing.T
	host    *testnet.Namespace
	options routes.Options
}

func newSingle(t *testing.T) *single {
	t.Helper()
	testnet.Require(t, testnet.Kernel(kernel.FeatureNFT, kernel.FeatureVXLAN, kernel.FeatureIPv6),
		testnet.Tool("nft"))
	n := testnet.New(t)
	n.Uplink()
	return &single{t, n.Host, routes.Options{Mode: routes.ModeAuto, Cluster: "lab",
		Nodes: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}}}
}

// nearby is a peer on the shared link, distant one behind a router.
func nearby(n int) routes.Peer  { return peer(n, "192.0.2.%d", "2001:db8::%d") }
func distant(n int) routes.Peer { return peer(n, "198.51.100.%d", "2001:db8:1::%d") }

func peer(n int, addrs ...string) routes.Peer {
	p := routes.Peer{Name: fmt.Sprintf("n%03d", n), MAC: routes.VTEPMAC(fmt.Sprint(n)),
		Blocks: prefixes(fmt.Sprintf("10.%d.%d.0/26", 64+n/250, n%250),
			fmt.Sprintf("fd00:64:0:%d::/122", n))}
	for _, a := range addrs {
		p.Addrs = append(p.Addrs, netip.MustParseAddr(fmt.Sprintf(a, n%250)))
	}
	return p
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func wanting(peers ...routes.Peer) routes.Want {
	own := peer(1)
	own.Addrs = nil
	return routes.Want{Own: own, Peers: peers, Pools: pools}
}

// router returns a router that calls watch before each change.
func (s *single) router(watch func(op string) error) *routes.Router {
	s.t.Helper()
	r, err := routes.New(s.options)
	if err != nil {
		s.t.Fatal(err)
	}
	if watch != nil {
		r.SetWatch(watch)
	}
	return r
}

// try calls Apply.
func (s *single) try(r *routes.Router, w routes.Want) (report routes.Report, err error) {
	s.host.Do(func() { report, err = r.Apply(s.t.Context(), w) })
	return report, err
}

// apply calls Apply, which must succeed without problems, and returns the number of changes.
func (s *single) apply(w routes.Want) int {
	s.t.Helper()
	report, err := s.try(s.router(nil), w)
	if err := errors.Join(append(report.Problems, err)...); err != nil {
		s.t.Fatal(err)
	}
	return report.Changes
}

func (s *single) remove() {
	s.t.Helper()
	s.host.Do(func() {
		if err := s.router(nil).Remove(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
	})
}

// state describes the objects of the host, with permanent neighbours and forwarding entries.
func (s *single) state() string {
	s.t.Helper()
	lines := strings.Split(testnet.Objects(s.t, []*testnet.Namespace{s.host}), "\n")
	state := strings.Join(slices.DeleteFunc(lines, func(line string) bool {
		return strings.Contains(line, " ifindex ") // of a new device
	}), "\n")
	for _, command := range []string{"ip -4 neigh show nud permanent", "ip -6 neigh show nud permanent",
		"ip -4 neigh show proxy", "ip -6 neigh show proxy"} {
		state += "\n" + s.host.Command("sh", "-c", command+" | sort")
	}
	return state + s.host.Command("sh", "-c", "bridge fdb show | grep -v 33:33: | grep -v 01:00:5e | sort")
}

func (s *single) expect(what, want string) {
	s.t.Helper()
	if got := s.state(); got != want {
		s.t.Fatalf("%s (-want +got):\n%s", what, testnet.Diff(want, got))
	}
}

// transitions are pairs of states, that differ in everything that can change.
func transitions() map[string][2]routes.Want {
	moved := distant(3)
	moved.MAC = routes.VTEPMAC("another")
	returned := distant(4)
	returned.Addrs = []netip.Addr{netip.MustParseAddr("198.51.100.44"), netip.MustParseAddr("2001:db8:1::44")}
	full := wanting(nearby(2), distant(3), distant(4))
	shared := nearby(5) // with addresses of networks on a link here, which need proxies
	shared.Blocks = append(shared.Blocks, prefixes("192.0.2.77/32", "2001:db8::77/128")...)
	changed := wanting(distant(2), moved, returned, shared)
	changed.Pools = prefixes("10.64.0.0/11", "fd00:64::/48")
	changed.Own.Blocks = prefixes("10.64.9.0/26")
	changed.Own.MAC = routes.VTEPMAC("another own")
	return map[string][2]routes.Want{
		"first":  {{Own: full.Own}, full},
		"change": {full, changed},
		"last":   {full, wanting()},
	}
}

// TestKilled: a process is killed before each change. Afterwards Apply reaches the wanted state,
// and Remove leaves nothing.
func TestKilled(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	for name, states := range transitions() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSingle(t)
			sweep(t, s, states, func(at int, remove bool) bool {
				return killedAt(t, s.host, job{s.options, states[1], remove}, at)
			})
		})
	}
}

// TestFaults: each change fails. Apply returns the error, and another one reaches the wanted state.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, states := range transitions() {
		t.Run(name, func(t *testing.T) {
			if name != "change" { // which adds, changes and removes
				testnet.Long(t)
			}
			t.Parallel()
			s := newSingle(t)
			fault := errors.New("fault")
			sweep(t, s, states, func(at int, remove bool) bool {
				step := 0
				r := s.router(func(string) error {
					if step++; step == at {
						return fault
					}
					return nil
				})
				var err error
				s.host.Do(func() {
					if remove {
						err = r.Remove(t.Context())
					} else {
						_, err = r.Apply(t.Context(), states[1])
					}
				})
				if (step >= at) != errors.Is(err, fault) {
					t.Fatalf("change %d of %d: %v", at, step, err)
				}
				return step >= at
			})
		})
	}
}

// TestCanceled: the context ends at each change. Apply reports it unless that change was the last.
func TestCanceled(t *testing.T) {
	t.Parallel()
	s := newSingle(t)
	want := wanting(nearby(2), distant(3))
	for at := 1; ; at++ {
		s.remove()
		ctx, cancel := context.WithCancel(t.Context())
		changes := 0
		r := s.router(func(string) error {
			if changes++; changes == at {
				cancel()
			}
			return nil
		})
		var report routes.Report
		var err error
		s.host.Do(func() { report, err = r.Apply(ctx, want) })
		cancel()
		missing := s.apply(want)
		if (missing > 0) != errors.Is(err, context.Canceled) {
			t.Errorf("canceled at change %d: %v after %d changes, %d missing", at, err, report.Changes,
				missing)
		}
		if changes < at {
			break
		}
	}
}

// sweep interrupts the transition between two states, and Remove, at each change.
func sweep(
	t *testing.T, s *single, states [2]routes.Want, interrupted func(at int, remove bool) bool,
) {
	s.apply(states[1])
	want := s.state()
	s.remove()
	none := s.state()
	steps := 0
	for at := 1; ; at++ {
		s.apply(states[0])
		interrupted(at, false)
		s.apply(states[1])
		s.expect(fmt.Sprintf("Apply after change %d", at), want)
		if n := s.apply(states[1]); n != 0 {
			t.Fatalf("%d changes in the wanted state", n)
		}
		s.remove()
		s.expect(fmt.Sprintf("Remove after change %d and Apply", at), none)
		s.apply(states[0])
		again := interrupted(at, false)
		s.remove()
		s.expect(fmt.Sprintf("Remove after change %d", at), none)
		if steps++; !again {
			break
		}
	}
	for at := 1; ; at++ {
		s.apply(states[1])
		again := interrupted(at, true)
		s.remove()
		s.expect(fmt.Sprintf("Remove after change %d of Remove", at), none)
		if steps++; !again {
			break
		}
	}
	t.Logf("interrupted at %d changes", steps-2)
	if steps < 20 {
		t.Error("too few changes")
	}
}
