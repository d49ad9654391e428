package watch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/ops/watch"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/all"
)

// watchDirs makes the test program watch with the directories of a host, in a process of its own.
const watchDirs = "TENON_TEST_WATCH"

// The tests do not use the system bus of the host.
func TestMain(m *testing.M) {
	if err := os.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere"); err != nil {
		panic(err)
	}
	if dir := os.Getenv(watchDirs); dir != "" {
		h := &host{dir: dir}
		h.Client = h.client()
		if err := watch.Run(context.Background(), h.options(func(watch.Event) {})); err != nil {
			panic(err)
		}
	}
	testnet.Main(m)
}

const bridgeChain = `{"type":"bridge","bridge":"br0","isDefaultGateway":true,"ipMasq":true,"macspoofchk":true,` +
	`"ipam":{"type":"host-local","dataDir":"DIR/ipam","ranges":[[{"subnet":"10.1.0.0/16"}],[{"subnet":"fd00:1::/64"}]]}},` +
	`{"type":"portmap","backend":"BACKEND","snat":true,"capabilities":{"portMappings":true}},` +
	`{"type":"firewall","backend":"BACKEND"}`

// host is a host with a network. The library, the plugins and the watcher run in this process.
type host struct {
	*testnet.Net
	*network.Client
	t   testing.TB
	dir string
	net *config.Network

	mu     sync.Mutex
	events []watch.Event
	signal chan struct{}
}

// newHost returns a host with a network whose plugins use a backend; more follows them in the
// chain.
func newHost(t testing.TB, backend string, more ...string) *host {
	t.Helper()
	testnet.Require(t, testnet.Kernel(kernel.FeatureNFT), testnet.Tool("nft"))
	h := &host{Net: testnet.New(t), t: t, dir: t.TempDir(), signal: make(chan struct{}, 1)}
	self, err := os.Executable()
	must(t, err)
	must(t, os.Mkdir(filepath.Join(h.dir, "bin"), 0o700))
	for _, d := range all.Plugins {
		must(t, os.Symlink(self, filepath.Join(h.dir, "bin", d.Name)))
	}
	h.Client = h.client()
	chain := strings.NewReplacer("DIR", h.dir, "BACKEND", backend).Replace(bridgeChain)
	h.net, err = config.LoadBytes([]byte(`{"cniVersion":"1.1.0","name":"pods","plugins":[` + chain +
		strings.Join(more, "") + `]}`))
	must(t, err)
	return h
}

func (h *host) client() *network.Client {
	return &network.Client{
		Caller: plugin.Caller(all.Plugins, false), PluginDirs: []string{filepath.Join(h.dir, "bin")},
		Isolated: true, StateDir: filepath.Join(h.dir, "state"), CacheDir: network.NoCacheDir,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (h *host) add(container string) error {
	c := h.Container(container)
	ports := fmt.Sprintf(`[{"hostPort":%d,"containerPort":80,"protocol":"tcp"}]`, 8000+c.Number)
	r := network.Request{Container: container, IfName: "eth0", Parameters: network.Parameters{
		Netns: c.Path(), Capabilities: map[string]json.RawMessage{"portMappings": json.RawMessage(ports)},
	}}
	return h.Host.Run(func() error {
		_, err := h.Add(context.Background(), h.net, r)
		return err
	})
}

func (h *host) addMany(n int) {
	h.t.Helper()
	for i := range n {
		must(h.t, h.add(fmt.Sprintf("c%d", i)))
	}
}

func key(container string) cni.Attachment {
	return cni.Attachment{Network: "pods", Container: container, IfName: "eth0"}
}

func (h *host) del(container string) error {
	return h.Host.Run(func() error {
		return h.Del(context.Background(), key(container), network.Fallback{})
	})
}

func (h *host) check(container string) error {
	return h.Host.Run(func() error { return h.Check(context.Background(), key(container), nil) })
}

func (h *host) options(report func(watch.Event)) watch.Options {
	return watch.Options{
		Client: h.Client, Plugins: all.Described(), Caller: h.Caller, Report: report,
		Detach: func(r network.Record) string { return "run: tenon del " + r.Attachment.String() },
		Log:    h.Log,
	}
}

// watch starts a watcher, and returns when its first comparison has ended. It ends with the test.
func (h *host) watch(change func(*watch.Options)) (stop func()) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	o := h.options(h.report)
	o.Ready = func() { close(ready) }
	if change != nil {
		change(&o)
	}
	go func() { ended <- h.Host.Run(func() error { return watch.Run(ctx, o) }) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			h.t.Error(err)
		}
	})
	h.t.Cleanup(stop)
	select {
	case <-ready:
	case err := <-ended:
		ended <- nil
		h.t.Fatal("watch ended: ", err)
	}
	return stop
}

func (h *host) report(e watch.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

// take returns the events since the last call.
func (h *host) take() []watch.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	events := h.events
	h.events = nil
	return events
}

// waitFor waits for an event, and returns all events until then.
func (h *host) waitFor(is func(watch.Event) bool) (all []watch.Event) {
	h.t.Helper()
	testnet.Eventually(h.t, func() error {
		events := h.take()
		all = append(all, events...)
		for _, e := range events {
			if is(e) {
				return nil
			}
		}
		return fmt.Errorf("events: %+v", all)
	})
	return all
}

var volatile = regexp.MustCompile(
	`(?m)^.* info_slave_data (id|no) .*\n| ifindex \d+|,"protocol":"(boot|kernel)"|^.*sysctl .*/br0/.*\n|^.*ip_tables.*\n`)

// state returns the state of the host and its containers, without what a repair does not restore.
func (h *host) state() string {
	h.t.Helper()
	text := testnet.Snapshot(h.t, h.Spaces())
	return volatile.ReplaceAllString(text, "")
}

// wantState waits until the host is in a state again.
func (h *host) wantState(want string) {
	h.t.Helper()
	testnet.Eventually(h.t, func() error {
		if diff := testnet.Diff(want, h.state()); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// process starts a watcher in a process of its own.
func (h *host) process() *exec.Cmd {
	h.t.Helper()
	self, err := os.Executable()
	must(h.t, err)
	cmd := exec.Command("nsenter", "--net="+h.Host.Path(), self)
	cmd.Env = append(os.Environ(), watchDirs+"="+h.dir)
	cmd.Stderr = os.Stderr
	must(h.t, cmd.Start())
	return cmd
}
