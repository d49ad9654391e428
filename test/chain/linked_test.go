// The tests of this file link plugins into the process of a runtime: many calls at once, panics,
// deadlines, and the state of the process that must not change. plugintest compares their output
// with the output of processes.

package chain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/all"
	"github.com/tenon-cni/tenon/plugins/loopback"
)

// host has a network of bridge, host-local and portmap, and a runtime with all plugins linked and
// no plugin directory.
type host struct {
	*testnet.Net
	*network.Client
	t    testing.TB
	pods *config.Network
	data string // of host-local
}

// The chains of plugins; IPAM stands for host-local, and DIR for a directory of the test: other tests
// collect garbage in the default one.
const (
	ofPods   = `{"type": "bridge", "isDefaultGateway": true, "ipMasq": true, IPAM}, {"type": "portmap", "capabilities": {"portMappings": true}}`
	ofOthers = `{"type": "ptp", "ipMasq": true, IPAM}, {"type": "tuning", "dataDir": "DIR", "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}, "mtu": 1400},
		{"type": "bandwidth", "ingressRate": 8000000, "egressRate": 8000000}, {"type": "firewall", "backend": "nftables"}, {"type": "sbr"}`
	ofMachines = `{"type": "tap", IPAM}`
)

func newHost(t testing.TB) *host {
	t.Helper()
	return newHostOf(t, ofPods, kernel.FeatureNFT)
}

func newHostOf(t testing.TB, plugins string, needs ...kernel.Feature) *host {
	t.Helper()
	testnet.Require(t, testnet.Kernel(needs...))
	h := &host{Net: testnet.New(t), t: t, data: t.TempDir()}
	quiet := slog.New(slog.DiscardHandler)
	h.Client = &network.Client{
		Caller: plugin.Linked{Plugins: all.Plugins, Log: quiet}, PluginDirs: []string{}, Isolated: true, StateDir: t.TempDir(), Log: quiet,
	}
	var err error
	ipam := fmt.Sprintf(`"ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.88.0.0/16"}], [{"subnet": "fd00:88::/64"}]]}`, h.data)
	plugins = strings.NewReplacer("IPAM", ipam, "DIR", t.TempDir()).Replace(plugins)
	h.pods, err = config.LoadBytes([]byte(`{"cniVersion": "1.1.0", "name": "pods", "plugins": [` + plugins + `]}`))
	must(t, err)
	return h
}

// request returns the request for a container that publishes port 80.
func (h *host) request(container string) network.Request {
	c := h.Container(container)
	ports, err := json.Marshal([]map[string]any{{"hostPort": 8000 + c.Number, "containerPort": 80, "protocol": "tcp"}})
	must(h.t, err)
	return network.Request{Container: container, IfName: "eth0", Parameters: network.Parameters{
		Netns: c.Path(), Capabilities: map[string]json.RawMessage{"portMappings": ports},
	}}
}

// watch gives the plugins a function to call before each change.
func (h *host) watch(watch func(op string) error) {
	c := h.Caller.(plugin.Linked)
	c.Plugins = slices.Clone(all.Plugins)
	for i, d := range c.Plugins {
		c.Plugins[i] = d.Watched(watch)
	}
	h.Caller = c
}

func (h *host) add(ctx context.Context, q network.Request) (r *cni.Result, err error) {
	err = h.Host.Run(func() (err error) {
		r, err = h.Add(ctx, h.pods, q)
		return err
	})
	return r, err
}

func (h *host) del(ctx context.Context, q network.Request) error {
	return h.Host.Run(func() error { return h.Del(ctx, q.Attachment("pods"), network.Fallback{}) })
}

// used creates the shared objects, and opens files as the first attachment does.
func (h *host) used() {
	h.t.Helper()
	q := h.request("first")
	_, err := h.add(h.t.Context(), q)
	must(h.t, err)
	must(h.t, h.del(h.t.Context(), q))
	h.Remove("first")
}

func (h *host) state() string {
	h.t.Helper()
	return testnet.Objects(h.t, h.Spaces()) + "\nleases: " + strings.Join(leases(h.t, h.data), " ")
}

// leases lists the reservations of host-local, from the files in its directory.
func leases(t testing.TB, data string) (list []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(data, "pods", "*"))
	must(t, err)
	for _, f := range files {
		if _, err := netip.ParseAddr(filepath.Base(f)); err == nil {
			list = append(list, filepath.Base(f))
		}
	}
	return list
}

func (h *host) unchanged(before string) {
	h.t.Helper()
	if after := h.state(); after != before {
		h.t.Errorf("left:\n%s", testnet.Diff(before, after))
	}
	if left, err := h.List(); len(left) > 0 || err != nil {
		h.t.Errorf("records left: %v, %v", left, err)
	}
}

// TestManyAtOnce attaches and detaches 64 containers at once in one process: each gets its own
// addresses, and nothing remains (LIF-07).
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	const containers = 64
	h := newHost(t)
	h.used()
	requests := make([]network.Request, containers)
	for i := range requests {
		requests[i] = h.request(fmt.Sprintf("c%d", i))
	}
	before := h.state()
	results := make([]*cni.Result, containers)
	atOnce(t, containers, func(i int) (err error) {
		results[i], err = h.add(t.Context(), requests[i])
		return err
	})
	if t.Failed() {
		return
	}
	holder := map[netip.Addr]string{}
	for i, r := range results {
		for _, ip := range r.IPs {
			if other := holder[ip.Address.Addr()]; other != "" {
				t.Errorf("%s has address %s of %s", requests[i].Container, ip.Address, other)
			}
			holder[ip.Address.Addr()] = requests[i].Container
		}
	}
	if len(holder) != 2*containers {
		t.Errorf("%d addresses for %d containers", len(holder), containers)
	}
	atOnce(t, containers, func(i int) error {
		return h.Host.Run(func() error { return h.Check(t.Context(), requests[i].Attachment("pods"), nil) })
	})
	atOnce(t, containers, func(i int) error { return h.del(t.Context(), requests[i]) })
	h.unchanged(before)
}

// atOnce calls fn n times concurrently.
func atOnce(t *testing.T, n int, fn func(i int) error) {
	t.Helper()
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = fn(i)
		})
	}
	close(start)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// TestPanic makes a plugin panic before each change of ADD and DEL in turn. The runtime survives
// and gets an error object with code 999; it rolls back an ADD and can repeat a DEL. No lock,
// descriptor or thread of the plugin remains: the next call works, and testnet.Main counts them.
func TestPanic(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		plugins string
		needs   []kernel.Feature
	}{
		"pods":     {ofPods, []kernel.Feature{kernel.FeatureNFT}},
		"others":   {ofOthers, []kernel.Feature{kernel.FeatureNFT, kernel.FeatureIFB, kernel.FeatureShaping}},
		"machines": {ofMachines, []kernel.Feature{kernel.FeatureTun}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHostOf(t, row.plugins, row.needs...)
			h.used()
			q := h.request("c")
			before := h.state()
			add := func() error {
				_, err := h.add(t.Context(), q)
				return err
			}
			del := func() error { return h.del(t.Context(), q) }
			h.panics(add, func() { h.unchanged(before) })
			h.panics(del, func() {
				must(t, del())
				h.unchanged(before)
				must(t, add())
			})
			h.unchanged(before)
		})
	}
}

// panics makes calls that panic before the first, second, … change, until a call has fewer changes.
func (h *host) panics(call func() error, after func()) {
	t := h.t
	t.Helper()
	for n := 1; ; n++ {
		count, last := 0, ""
		h.watch(func(op string) error {
			if count++; count == n {
				last = op
				panic("thrown before " + op)
			}
			return nil
		})
		err := call()
		h.watch(nil)
		if last == "" {
			must(t, err)
			if n == 1 {
				t.Error("there are no changes")
			}
			return
		}
		if cni.CodeOf(err) != cni.CodeInternal || !strings.Contains(fmt.Sprint(err), "panic: thrown before "+last) {
			t.Fatalf("panic before %q: %v", last, err)
		}
		if after(); t.Failed() {
			t.Fatalf("after a panic before %q", last)
		}
	}
}

// TestDeadline: a linked plugin that waits for a lock gives up at the deadline, as a process would,
// and an incomplete rollback leaves a record. The test allows the delay of a hanging test.
func TestDeadline(t *testing.T) {
	t.Parallel()
	h := newHostOf(t, `{"type": "host-local", IPAM}`)
	h.used()
	q := h.request("c")
	before := h.state()
	lock, err := os.Open(filepath.Join(h.data, "pods", "lock"))
	must(t, err)
	defer lock.Close()
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	h.Timeout = 50 * time.Millisecond // of the rollback
	start := time.Now()
	_, err = h.add(ctx, q)
	if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > testnet.Patience {
		t.Errorf("after %v: %v", took, err)
	}
	if records, err := h.List(); err != nil || len(records) != 1 || records[0].State == network.Attached {
		t.Errorf("records %v, %v", records, err)
	}
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_UN))
	h.Timeout = 0
	must(t, h.del(t.Context(), q))
	h.unchanged(before)
}

// TestProcess: plugins do not change the state of the process that other code relies on, and print
// nothing. The test is not parallel because it compares the whole process.
func TestProcess(t *testing.T) {
	h := newHost(t)
	var log bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(old)
	output, err := os.Create(filepath.Join(t.TempDir(), "output"))
	must(t, err)
	defer output.Close()
	stdout, stderr := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = output, output
	defer func() { os.Stdout, os.Stderr = stdout, stderr }()

	var before string
	testnet.Eventually(t, func() error { // threads of newHost end in the background
		before = process(t)
		if n := strings.Count(before, "\nnet:["); n != 1 {
			return fmt.Errorf("threads are in %d network namespaces", n)
		}
		return nil
	})
	q := h.request("c")
	_, err = h.add(t.Context(), q)
	must(t, err)
	must(t, h.Host.Run(func() error { return h.Check(t.Context(), q.Attachment("pods"), nil) }))
	q.Netns = h.Host.Path() // refused
	if _, err := h.add(t.Context(), q); err == nil {
		t.Error("ADD to the host's namespace succeeded")
	}
	must(t, h.del(t.Context(), q))
	must(t, h.Host.Run(func() error { return h.Status(t.Context(), h.pods) }))
	testnet.Eventually(t, func() error { // threads end in the background
		if after := process(t); after != before {
			return fmt.Errorf("the process has changed:\n%s", testnet.Diff(before, after))
		}
		return nil
	})
	if printed, err := os.ReadFile(output.Name()); err != nil || len(printed) > 0 || log.Len() > 0 {
		t.Errorf("printed %q, %v, logged %q", printed, err, &log)
	}
}

var ofStatus = regexp.MustCompile(`(?m)^(?:Umask|SigBlk|SigIgn|SigCgt|Cap\w+|NoNewPrivs|Groups|Uid|Gid|Cpus_allowed):.*`)

// process describes the state that all threads of a process share.
func process(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	must(t, err)
	status, err := os.ReadFile("/proc/self/status")
	must(t, err)
	limits, err := os.ReadFile("/proc/self/limits")
	must(t, err)
	lines := append([]string{dir, fmt.Sprint(goruntime.GOMAXPROCS(0)), string(limits)}, os.Environ()...)
	lines = append(lines, ofStatus.FindAllString(string(status), -1)...)
	namespaces, err := filepath.Glob("/proc/self/task/*/ns/*")
	must(t, err)
	for _, path := range namespaces {
		if ns, err := os.Readlink(path); err == nil {
			lines = append(lines, ns)
		}
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "\n")
}

// TestLoopbackAlone: a runtime can link a single plugin.
func TestLoopbackAlone(t *testing.T) {
	t.Parallel()
	n := testnet.New(t, "c")
	client := &network.Client{
		Caller: plugin.Linked{Plugins: []plugin.Definition{loopback.Plugin}}, PluginDirs: []string{t.TempDir()}, Isolated: true, StateDir: t.TempDir(),
	}
	lo, err := config.LoadBytes([]byte(`{"cniVersions": ["1.0.0", "1.1.0"], "name": "lo", "plugins": [{"type": "loopback"}]}`))
	must(t, err)
	q := network.Request{Container: "c", IfName: "lo", Parameters: network.Parameters{Netns: n.Container("c").Path()}}
	must(t, n.Host.Run(func() error {
		r, err := client.Add(t.Context(), lo, q)
		if err != nil {
			return err
		}
		if len(r.IPs) == 0 || !r.IPs[0].Address.Addr().IsLoopback() {
			t.Errorf("addresses %v", r.IPs)
		}
		return client.Del(t.Context(), q.Attachment("lo"), network.Fallback{})
	}))
}

// BenchmarkAdd measures ADD of a chain in one process, without DEL. test/bench compares it with its
// system calls.
func BenchmarkAdd(b *testing.B) {
	h := newHost(b)
	h.used()
	q := h.request("c")
	b.ReportAllocs()
	for b.Loop() {
		_, err := h.add(b.Context(), q)
		b.StopTimer()
		must(b, err)
		must(b, h.del(b.Context(), q))
		b.StartTimer()
	}
}
