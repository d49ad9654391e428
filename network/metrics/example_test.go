package metrics_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
	"github.com/tenon-cni/tenon/network/metrics"
	"github.com/tenon-cni/tenon/plugins/all"
)

// A runtime serves the metrics of its networks. For node_exporter it would call WriteFile
// periodically.
func Example() {
	state, err := os.MkdirTemp("", "state")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(state)
	pods, err := config.LoadBytes([]byte(`{"cniVersion":"1.1.0","name":"pods","plugins":[
		{"type":"bridge","ipam":{"type":"host-local","subnet":"10.1.0.0/24","dataDir":"` + state + `/ipam"}}]}`))
	if err != nil {
		panic(err)
	}

	registry := &metrics.Registry{}
	// For real plugins, leave out Caller.
	client := &network.Client{StateDir: state, Isolated: true, Observer: registry,
		Caller: invoke.Fake{"bridge": {}}}
	registry.Records = client.List
	registry.Pools = func(ctx context.Context) (list []metrics.Pool, err error) {
		pools, err := all.Pools(ctx, []*cni.List{pods.List})
		for _, p := range pools {
			list = append(list, metrics.Pool(p))
		}
		return list, err
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", metrics.ContentType)
		if err := registry.WritePrometheus(r.Context(), w); err != nil {
			fmt.Fprintln(os.Stderr, err) // the response has the other metrics
		}
	}))
	defer server.Close()

	request := network.Request{Container: "c1", IfName: "eth0",
		Parameters: network.Parameters{Netns: "/run/netns/c1"}}
	if _, err := client.Add(context.Background(), pods, request); err != nil {
		panic(err)
	}
	reply, err := http.Get(server.URL)
	if err != nil {
		panic(err)
	}
	defer reply.Body.Close()
	for lines := bufio.NewScanner(reply.Body); lines.Scan(); {
		if l := lines.Text(); !strings.HasPrefix(l, "#") &&
			!strings.Contains(l, "_seconds_bucket{") && !strings.Contains(l, "_seconds_sum{") {
			fmt.Println(l)
		}
	}
	// Output:
	// tenon_attachments{network="pods",state="adding"} 0
	// tenon_attachments{network="pods",state="attached"} 1
	// tenon_attachments{network="pods",state="deleting"} 0
	// tenon_lock_wait_seconds_count{lock="container"} 1
	// tenon_lock_wait_seconds_count{lock="network"} 1
	// tenon_operation_duration_seconds_count{operation="ADD"} 1
	// tenon_plugin_duration_seconds_count{plugin="bridge",verb="ADD"} 1
	// tenon_pool_addresses{network="pods",range="10.1.0.1-10.1.0.254"} 254
	// tenon_pool_used_addresses{network="pods",range="10.1.0.1-10.1.0.254"} 0
	// tenon_source_up{source="pools"} 1
	// tenon_source_up{source="records"} 1
}
