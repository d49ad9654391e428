package network_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
)

// A runtime attaches a container and detaches it, with plugins that exist only here. For real ones leave
// Caller out and load the network with network.Load.
func Example() {
	state, err := os.MkdirTemp("", "state")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(state)
	client := &network.Client{
		StateDir: state,
		Isolated: true, // not a runtime of this host
		Caller: invoke.Fake{
			"bridge":  {cni.Add: invoke.Print(`{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24"}]}`)},
			"portmap": {}, // hands the result on
		},
	}
	n, err := network.LoadBytes([]byte(`{"cniVersion":"1.1.0","name":"pods","plugins":[{"type":"bridge"},{"type":"portmap"}]}`))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()

	request := network.Request{Container: "c1", IfName: "eth0", Parameters: network.Parameters{Netns: "/run/netns/c1"}}
	result, err := client.Add(ctx, n, request)
	if err != nil {
		panic(err) // nothing is left behind
	}
	fmt.Println(result.IPs[0].Address)

	_, err = client.Add(ctx, n, request)
	fmt.Println(errors.Is(err, network.ErrExists))

	// The record knows the rest, even if the configuration is gone by now.
	attachment := request.Attachment("pods")
	fmt.Println(client.Check(ctx, attachment, nil), client.Del(ctx, attachment, network.Fallback{}))
	// Output:
	// 10.1.2.3/24
	// true
	// <nil> <nil>
}

// A runtime keeps up with its configuration folder: what is broken in it takes nothing away that works.
func ExampleOpenFolder() {
	dir, err := os.MkdirTemp("", "net.d")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	write := func(content string) {
		if err := os.WriteFile(filepath.Join(dir, "10-pods.conflist"), []byte(content), 0o600); err != nil {
			panic(err)
		}
	}
	write(`{"cniVersion":"1.1.0","name":"pods","plugins":[{"type":"bridge"}]}`)

	folder, err := network.OpenFolder(network.FolderOptions{
		Dir:    dir,
		Notify: func(*network.Snapshot) {}, // here a runtime asks for the status of its networks again
		Log:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	defer folder.Close()

	write(`{"cniVersion":"1.1.0","name":"pods","plug`)
	now := folder.Reload() // or a moment later by itself
	pods, err := now.Network("pods")
	fmt.Println(pods.Types(), err)
	for _, p := range now.Problems {
		fmt.Println(filepath.Base(p.Path), p.Network, "kept:", p.Kept)
	}

	write(`{"cniVersion":"1.1.0","name":"pods","plugins":[{"type":"bridge"},{"type":"portmap"}]}`)
	now = folder.Reload()
	fmt.Println(now.Networks[0].Types(), now.Err())

	// For an operation, take the policy from the same snapshot: network.Client{Policy: now.Policy}.

	// Output:
	// [bridge] <nil>
	// 10-pods.conflist pods kept: true
	// [bridge portmap] <nil>
}
