package network_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// BenchmarkAddDel measures the cost of a Client without its plugins: locks, records, requests and
// results of a chain of two.
func BenchmarkAddDel(b *testing.B) { addDel(b, network.NoJournal) }

// BenchmarkAddDelJournal does the same with a journal, which gets two records.
func BenchmarkAddDelJournal(b *testing.B) { addDel(b, b.TempDir()) }

func addDel(b *testing.B, journal string) {
	b.Helper()
	c := &network.Client{Isolated: true, Caller: invoke.Fake{"first": {}, "second": {}},
		StateDir: b.TempDir(), Journal: journal}
	n, err := config.LoadBytes([]byte(`{"cniVersion":"1.1.0","name":"red","plugins":[{"type":"first"},{"type":"second"}]}`))
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

// BenchmarkNegotiate measures negotiation between several versions if all answers are cached.
func BenchmarkNegotiate(b *testing.B) {
	n, err := config.LoadBytes([]byte(`{"cniVersions":["1.0.0","1.1.0"],"name":"red","plugins":[{"type":"first"},{"type":"second"}]}`))
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	for _, name := range []string{"first", "second"} {
		if err := os.WriteFile(filepath.Join(dir, name),
			[]byte("#!/bin/sh\n"+`echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}'`), 0o700); err != nil {
			b.Fatal(err)
		}
	}
	c := &network.Client{Isolated: true, PluginDirs: []string{dir}, StateDir: b.TempDir()}
	for b.Loop() {
		if g, err := c.Negotiate(b.Context(), n); err != nil || g.Version != cni.V110 {
			b.Fatal(g, err)
		}
	}
}
