package network_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// A runtime attaches a pod to its networks and detaches it. The plugins exist only in this program:
// for real plugins, leave out Caller. The configuration directory is usually /etc/cni/net.d.
func ExampleManager() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	conf := `{"cniVersion":"1.1.0","name":"pods","plugins":[{"type":"bridge"}]}`
	if err := os.WriteFile(filepath.Join(dir, "10-pods.conflist"), []byte(conf),
		0o600); err != nil {
		panic(err)
	}
	directory, err := config.Open(config.Options{Dir: dir, Min: 1})
	if err != nil {
		panic(err)
	}
	defer directory.Close()
	manager, err := network.NewManager(network.ManagerOptions{
		Client: &network.Client{
			Runtime:  "example",
			StateDir: filepath.Join(dir, "state"),
			Isolated: true, // needed only in tests
			Caller: invoke.Fake{
				"bridge":   {cni.Add: invoke.Print(`{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24"},{"address":"fd00::3/64"}]}`)},
				"loopback": {cni.Add: invoke.Print(`{"cniVersion":"0.4.0"}`)},
			},
		},
		Config: directory, Min: 1, Max: 1, IfName: network.Numbered("eth"), Loopback: true,
	})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	// Clean up after a predecessor that was killed.
	fmt.Println(manager.Recover(ctx, nil), manager.Status(ctx))

	sandbox, err := manager.Setup(ctx, network.SandboxRequest{
		ID: "pod-1", Parameters: network.Parameters{Netns: "/run/netns/pod-1"},
	})
	if err != nil {
		panic(err) // nothing is left behind
	}
	fmt.Println(sandbox.PodIPs(), sandbox.Primary().Attachment)
	fmt.Println(manager.Check(ctx, "pod-1"))

	// Remove the attachments of containers that no longer exist.
	fmt.Println(manager.GC(ctx, network.KeepSandboxes{IDs: []string{}}))
	_, err = manager.Sandbox(ctx, "pod-1")
	fmt.Println(errors.Is(err, network.ErrNoRecord))

	// Remove needs only the ID, and can be repeated.
	fmt.Println(manager.Remove(ctx, "pod-1", nil))
	// Output:
	// <nil> <nil>
	// [10.1.2.3 fd00::3] pods/pod-1/eth0
	// <nil>
	// <nil>
	// true
	// <nil>
}
