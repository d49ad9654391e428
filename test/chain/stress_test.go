package chain

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

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

// TestStress attaches many containers at once through the runtime library and executed plugins:
// none is refused, no address is assigned twice and nothing is left. It starts on an empty host:
// the first ADDs race for bridge, gateway address, rule set and data directory. It measures
// nothing, which is the task of test/bench. scripts/test runs it alone.
func TestStress(t *testing.T) {
	testnet.Long(t)
	const containers = 200
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
		atOnce(t, containers, func(i int) error {
			var r *cni.Result
			err := n.Host.Run(func() (err error) {
				r, err = client.Add(context.Background(), pods, requests[i])
				return err
			})
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
		atOnce(t, containers, func(i int) error {
			return n.Host.Run(func() error {
				return client.Del(context.Background(), requests[i].Attachment("pods"), network.Fallback{})
			})
		})
		if t.Failed() {
			t.FailNow()
		}
		now := testnet.Snapshot(t, []*testnet.Namespace{n.Host}) + strings.Join(leases(t, data), "\n")
		if settled != "" && now != settled {
			t.Fatalf("round %d left objects behind:\n%s", round, testnet.Diff(settled, now))
		}
		settled = now
	}
	if left, err := client.List(); len(left) > 0 || err != nil {
		t.Errorf("records left: %v, %v", left, err)
	}
	if left := leases(t, data); len(left) > 0 {
		t.Errorf("reservations left: %v", left)
	}
}

// install builds tenon and puts its plugins into a directory.
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
