package otel_test

import (
	"context"
	"fmt"
	"os"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
	"github.com/tenon-cni/tenon/otel"
)

// A runtime passes its own provider; it needs no Provider if it has set the global one. The plugin,
// which exists only in this program, finds its trace in the context; a process finds it in
// TRACEPARENT.
func Example() {
	state, err := os.MkdirTemp("", "state")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(state)
	exporter := tracetest.NewInMemoryExporter()
	plugin := func(ctx context.Context, _ invoke.Call) ([]byte, bool) {
		t, ok := invoke.TraceFrom(ctx)
		fmt.Println("plugin is traced:", ok, len(t.ID()))
		return []byte(`{"cniVersion":"1.1.0"}`), true
	}
	client := &network.Client{
		StateDir: state,
		Isolated: true, // needed only in tests
		Caller:   invoke.Fake{"bridge": {cni.Add: plugin}},
		Observer: otel.Observer{Provider: sdk.NewTracerProvider(sdk.WithSyncer(exporter))},
	}
	n, err := config.LoadBytes([]byte(`{"cniVersion":"1.1.0","name":"pods","plugins":[{"type":"bridge"}]}`))
	if err != nil {
		panic(err)
	}
	request := network.Request{Container: "c1", IfName: "eth0",
		Parameters: network.Parameters{Netns: "/run/netns/c1"}}
	if _, err := client.Add(context.Background(), n, request); err != nil {
		panic(err)
	}
	for _, span := range exporter.GetSpans() {
		if span.Name != "CNI lock" {
			fmt.Println(span.Name)
		}
	}
	// Output:
	// plugin is traced: true 32
	// CNI ADD bridge
	// CNI ADD
}
