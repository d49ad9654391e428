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

// A runtime gives a pod its networks and takes them away, with plugins that exist only here. For real ones leave Caller out,
// and the directory is /etc/cni/net.d.
func ExampleManager() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	conf := `{"cniVersion":"1.1.0","name":"pods","plugins":[{"type":"bridge"}]}`
	if err := os.WriteFile(filepath.Join(dir, "10-pods.conflist"), []byte(conf), 0o600); err != nil {
		panic(err)
	}
	folder, err := config.Open(config.Options{Dir: dir, Min: 1})
	if err != nil {
		panic(err)
	}
	defer folder.Close()
	manager, err := network.NewManager(network.ManagerOptions{
		Client: &network.Client{
			Runtime: "example", StateDir: filepath.Join(dir, "state"), Isolated: true, // not a runtime of this host
			Caller: invoke.Fake{
				"bridge":   {cni.Add: invoke.Print(`{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24"},{"address":"fd00::3/64"}]}`)},
				"loopback": {cni.Add: invoke.Print(`{"cniVersion":"0.4.0"}`)},
			},
		},
		Config: folder, Min: 1, Max: 1, IfName: network.Numbered("eth"), Loopback: true,
	})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	// What a killed predecessor has left is taken back.
	fmt.Println(manager.Recover(ctx, nil), manager.Status(ctx))

	sandbox, err := manager.Setup(ctx, network.SandboxRequest{
		ID: "pod-1", Parameters: network.Parameters{Netns: "/run/netns/pod-1"},
	})
	if err != nil {
		panic(err) // nothing is left behind
	}
	fmt.Println(sandbox.PodIPs(), sandbox.Primary().Attachment)
	fmt.Println(manager.Check(ctx, "pod-1"))

	// Containers that are not in use any more go, whoever forgot them.
	fmt.Println(manager.GC(ctx, network.KeepSandboxes{IDs: []string{}}))
	_, err = manager.Sandbox(ctx, "pod-1")
	fmt.Println(errors.Is(err, network.ErrNoRecord))

	// The ID is all it needs, and twice does no harm.
	fmt.Println(manager.Remove(ctx, "pod-1", nil))
	// Output:
	// <nil> <nil>
	// [10.1.2.3 fd00::3] pods/pod-1/eth0
	// <nil>
	// <nil>
	// true
	// <nil>
}
