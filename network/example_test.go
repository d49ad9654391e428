package network_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// A runtime attaches a container and detaches it. The plugins exist only in this program: for real
// plugins, leave out Caller and load the network with config.Load.
func Example() {
	state, err := os.MkdirTemp("", "state")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(state)
	client := &network.Client{
		StateDir: state,
		Isolated: true, // needed only in tests
		Caller: invoke.Fake{
			"bridge":  {cni.Add: invoke.Print(`{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24"}]}`)},
			"portmap": {}, // passes the result on
		},
	}
	n, err := config.LoadBytes([]byte(`{"cniVersion":"1.1.0","name":"pods","plugins":[{"type":"bridge"},{"type":"portmap"}]}`))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()

	request := network.Request{Container: "c1", IfName: "eth0",
		Parameters: network.Parameters{Netns: "/run/netns/c1"}}
	result, err := client.Add(ctx, n, request)
	if err != nil {
		panic(err) // nothing is left behind
	}
	fmt.Println(result.IPs[0].Address)

	_, err = client.Add(ctx, n, request)
	fmt.Println(errors.Is(err, network.ErrExists))

	// The record has everything else, even if the configuration no longer exists.
	attachment := request.Attachment("pods")
	fmt.Println(client.Check(ctx, attachment, nil), client.Del(ctx, attachment, network.Fallback{}))
	// Output:
	// 10.1.2.3/24
	// true
	// <nil> <nil>
}
