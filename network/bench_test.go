package network_test

import (
	"testing"

	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
)

// What a Client costs beside its plugins: locks, records, requests and results of a chain of two.
func BenchmarkAddDel(b *testing.B) {
	c := &network.Client{Caller: invoke.Fake{"first": {}, "second": {}}, StateDir: b.TempDir()}
	n, err := network.LoadBytes([]byte(`{"cniVersion":"1.1.0","name":"red","plugins":[{"type":"first"},{"type":"second"}]}`))
	if err != nil {
		b.Fatal(err)
	}
	q := request("c1")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Add(b.Context(), n, q); err != nil {
			b.Fatal(err)
		}
		if err := c.Del(b.Context(), q.Attachment("red"), network.Fallback{}); err != nil {
			b.Fatal(err)
		}
	}
}
