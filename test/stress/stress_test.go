package stress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

const containers = 200

func TestMain(m *testing.M) { testnet.Main(m) }

// rounds is 6, or $TENON_STRESS_ROUNDS.
func rounds(t *testing.T) int {
	s := os.Getenv("TENON_STRESS_ROUNDS")
	if s == "" {
		return 6
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestManyAtOnce starts on an empty host: the first ADDs race for bridge, gateway address, ruleset and data folder.
func TestManyAtOnce(t *testing.T) {
	plugins := install(t)
	n := testnet.New(t)
	data := t.TempDir()
	pods, err := config.LoadBytes(fmt.Appendf(nil, `{
		"cniVersion": "1.1.0", "name": "pods",
		"plugins": [{
			"type": "bridge", "isDefaultGateway": true, "ipMasq": true,
			"ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.88.0.0/16"}], [{"subnet": "fd00:88::/64"}]]}
		}]}`, data))
	if err != nil {
		t.Fatal(err)
	}
	client := &network.Client{PluginDirs: []string{plugins}, Isolated: true, StateDir: t.TempDir()}
	requests := make([]network.Request, containers)
	for i := range requests {
		name := fmt.Sprintf("c%d", i)
		requests[i] = network.Request{Container: name, IfName: "eth0", Parameters: network.Parameters{Netns: n.Container(name).Path()}}
	}
	settled := ""
	for round := range rounds(t) {
		seen := map[netip.Addr]string{}
		var mu sync.Mutex
		atOnce(t, n, func(i int) error {
			r, err := client.Add(context.Background(), pods, requests[i])
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			for _, ip := range r.IPs {
				if other := seen[ip.Address.Addr()]; other != "" {
					return fmt.Errorf("%s has address %s of %s", requests[i].Container, ip.Address, other)
				}
				seen[ip.Address.Addr()] = requests[i].Container
			}
			return nil
		})
		if len(seen) != 2*containers {
			t.Errorf("round %d: %d addresses for %d containers", round, len(seen), containers)
		}
		atOnce(t, n, func(i int) error {
			return client.Del(context.Background(), requests[i].Attachment("pods"), network.Fallback{})
		})
		if t.Failed() {
			t.FailNow()
		}
		now := testnet.Snapshot(t, []*testnet.Namespace{n.Host}) + reservations(t, data)
		if settled != "" && now != settled {
			t.Fatalf("round %d left something:\n%s", round, testnet.Diff(settled, now))
		}
		settled = now
	}
	if left, err := client.List(); len(left) > 0 || err != nil {
		t.Errorf("records left: %v, %v", left, err)
	}
	if left := reservations(t, data); left != "" {
		t.Errorf("reservations left: %s", left)
	}
}

// atOnce calls fn for every container, all at the same time, from the namespace of the host.
func atOnce(t *testing.T, n *testnet.Net, fn func(i int) error) {
	t.Helper()
	errs := make([]error, containers)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range containers {
		wg.Go(func() {
			<-start
			errs[i] = n.Host.Run(func() error { return fn(i) })
		})
	}
	close(start)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// reservations lists the addresses that are taken.
func reservations(t *testing.T, data string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(data, "pods", "*"))
	if err != nil {
		t.Fatal(err)
	}
	list := ""
	for _, f := range files {
		if _, err := netip.ParseAddr(filepath.Base(f)); err == nil {
			list += filepath.Base(f) + "\n"
		}
	}
	return list
}

// install builds tenon and puts its plugins into a folder.
func install(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	tenon, plugins := filepath.Join(dir, "tenon"), filepath.Join(dir, "plugins")
	for _, cmd := range [][]string{
		{"go", "build", "-o", tenon, "github.com/tenon-cni/tenon/cmd/tenon"},
		{tenon, "install", plugins},
	} {
		c := exec.Command(cmd[0], cmd[1:]...)
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}
	return plugins
}
