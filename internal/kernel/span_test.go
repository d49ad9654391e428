package kernel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/trace"
)

var update = flag.Bool("update", false, "rewrite testdata/spans.txt")

// TestSpans compares the steps that a transaction records with testdata/spans.txt: changes with
// their messages and elements, a failure with the kernel's explanation, and the rollback.
func TestSpans(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Host.Command("ip", "link", "add", "old0", "type", "veth", "peer", "old1")
	b.Host.Command("ip", "link", "set", "old0", "up")
	b.Host.Command("ip", "addr", "add", "10.8.0.1/24", "brd", "+", "dev", "old0")
	file := filepath.Join(t.TempDir(), "spans")
	ctx, done, err := trace.Open(t.Context(), file, "", func(err error) { t.Error(err) })
	must(t, err)
	defer done()
	b.begin(t, ctx)
	must(t, attach(b.host, b.container))
	inside, err := b.container.Links.ByName("eth0")
	must(t, err)
	if err := b.container.Routes.Add(inside, kernel.Route{Dst: prefix("10.9.0.0/16"), GW: addr("10.5.5.5")}); err == nil {
		t.Error("a route through an unreachable gateway is accepted")
	}
	must(t, b.tx.Rollback())

	const golden = "testdata/spans.txt"
	got := spansOf(t, file)
	if *update {
		must(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	must(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("-want +got (-update rewrites the file):\n%s", diff)
	}
}

// spansOf returns the steps in a file, in the order of their start, with their depth.
func spansOf(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	must(t, err)
	children := map[string][]trace.Record{}
	for line := range bytes.Lines(content) {
		var r trace.Record
		must(t, json.Unmarshal(line, &r))
		children[r.Parent] = append(children[r.Parent], r)
	}
	var out strings.Builder
	var write func(parent, indent string)
	write = func(parent, indent string) {
		for _, r := range children[parent] {
			fmt.Fprintf(&out, "%s%s: %s", indent, r.Kind, r.Name)
			for _, key := range []string{trace.NetlinkType, trace.NFTTable, trace.NFTElement} {
				if value := r.Attributes[key]; value != nil {
					fmt.Fprintf(&out, " %v", value)
				}
			}
			if r.Error != "" {
				fmt.Fprintf(&out, " error: %s", r.Error)
			}
			out.WriteByte('\n')
			write(r.ID, indent+"  ")
		}
	}
	write("", "")
	return out.String()
}

// A wait for a lock is a step of its own, with the error of an interrupted wait.
func TestLockSpan(t *testing.T) {
	t.Parallel()
	b := setup(t)
	unlock, err := b.host.Exclusive()
	must(t, err)
	defer unlock()
	file := filepath.Join(t.TempDir(), "spans")
	ctx, done, err := trace.Open(t.Context(), file, "", func(err error) { t.Error(err) })
	must(t, err)
	defer done()
	ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := b.host.Lock(ctx); err == nil {
		t.Fatal("the lock is free")
	}
	if got := spansOf(t, file); !strings.Contains(got, "wait: lock network namespace") || !strings.Contains(got, "context deadline exceeded\n") {
		t.Errorf("steps:\n%s", got)
	}
}

// Without a trace, a change allocates nothing.
func TestUntracedChangeAllocatesNothing(t *testing.T) {
	tx := kernel.Begin(t.Context())
	apply := func() error { return nil }
	if n := testing.AllocsPerRun(1000, func() { _ = tx.Do("change", apply, nil) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkUntracedChange(b *testing.B) {
	tx := kernel.Begin(b.Context())
	apply := func() error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		if err := tx.Do("change", apply, nil); err != nil {
			b.Fatal(err)
		}
	}
}
