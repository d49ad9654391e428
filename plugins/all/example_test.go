package all_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/all"
)

// A runtime that links the plugins in needs none of their binaries and starts no processes. It
// passes the arguments of a pod as typed values.
func Example() {
	client := &network.Client{
		Caller:     plugin.Linked{Plugins: all.Plugins, Log: slog.Default()},
		PluginDirs: []string{"/opt/cni/bin"}, // for other plugins
		Runtime:    "example",
	}
	pods, err := config.LoadBytes([]byte(`{
		"cniVersions": ["1.0.0", "1.1.0"], "name": "pods", "plugins": [
			{"type": "bridge", "isGateway": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/16"}]]}},
			{"type": "portmap", "capabilities": {"portMappings": true}},
			{"type": "bandwidth", "capabilities": {"bandwidth": true}}
		]}`))
	if err != nil {
		panic(err)
	}
	understood, err := client.Validate(context.Background(), pods)
	fmt.Println(understood, err)

	capabilities, err := cni.Capabilities{
		PortMappings: []cni.PortMapping{{HostPort: 8080, ContainerPort: 80,
			HostIP: netip.MustParseAddr("192.0.2.1")}},
		Bandwidth: cni.Bandwidth{EgressRate: 10 * cni.Mbit, EgressBurst: cni.Mbit},
	}.Encode()
	if err != nil {
		panic(err) // before any plugin has run
	}
	request := network.Request{Container: "c0ffee", IfName: "eth0", Parameters: network.Parameters{
		Netns:        "/run/netns/web-0",
		Args:         cni.Pod{Namespace: "shop", Name: "web-0", InfraContainerID: "c0ffee"}.Args(),
		Capabilities: capabilities,
	}}
	fmt.Println(request.Args)
	// client.Add(ctx, pods, request) attaches the container.

	// Output:
	// [bandwidth portMappings] <nil>
	// IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=c0ffee
}
