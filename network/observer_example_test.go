package network_test

import (
	"context"
	"fmt"
	"os"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// announcer is a hook that prints the addresses of new containers, and the plugins that failed.
type announcer struct{}

func (announcer) Begin(
	ctx context.Context, e network.Event,
) (context.Context, func(network.Outcome)) {
	return ctx, func(o network.Outcome) {
		switch {
		case e.Kind == network.PluginCall && o.Err != nil:
			fmt.Printf("%s %s failed with code %d\n", e.Plugin, e.Verb, cni.CodeOf(o.Err))
		case e.Kind == network.Operation && o.Result != nil:
			fmt.Printf("%s (%s) has %v\n", e.Attachment, e.ID(), o.Result.IPs[0].Address)
		}
	}
}

func ExampleObserver() {
	state, err := os.MkdirTemp("", "state")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(state)
	plugins := invoke.Fake{"bridge": {cni.Add: invoke.Print(`{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24"}]}`)}, "portmap": {}}
	client := &network.Client{Isolated: true, StateDir: state, Caller: plugins,
		Observer: announcer{}}
	n, err := config.LoadBytes([]byte(`{"cniVersion":"1.1.0","name":"pods","plugins":[{"type":"bridge"},{"type":"portmap"}]}`))
	if err != nil {
		panic(err)
	}
	for _, id := range []string{"c1", "c2"} {
		request := network.Request{Container: id, IfName: "eth0",
			Parameters: network.Parameters{Netns: "/run/netns/" + id}}
		if _, err := client.Add(context.Background(), n, request); err != nil {
			fmt.Println(err)
		}
		plugins["portmap"][cni.Add] = invoke.Fail(cni.Errorf(cni.CodeTryAgainLater,
			"port 80 is already in use"))
	}
	// Output:
	// pods/c1/eth0 (049c287ed3e2d55439a7199053c6502e) has 10.1.2.3/24
	// portmap ADD failed with code 11
	// pods/c2/eth0: portmap ADD: port 80 is already in use
}
