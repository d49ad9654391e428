package traceview_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/internal/ops/traceview"
	"github.com/tenon-cni/tenon/internal/trace"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// epoch is the start of the operations in the tests.
const epoch = 1795470518000000000

// span returns a record; from and to are in microseconds after epoch.
func span(id, parent, name string, kind trace.Kind, from, to int64) trace.Record {
	return trace.Record{
		Trace: strings.Repeat("ab", 16), ID: "00000000000000" + id, Parent: parent, Name: name, Kind: kind,
		PID: 42, Start: epoch + from*1000, End: epoch + to*1000, Mono: 5e9 + from*1000,
	}
}

// failing returns an ADD with all kinds of spans, which fails and is rolled back.
func failing() []trace.Record {
	const op, bridge, process, ipam, portmap, rollback = "0000000000000001", "0000000000000002", "0000000000000003",
		"0000000000000004", "0000000000000005", "0000000000000006"
	with := func(r trace.Record, key string, value any) trace.Record {
		if r.Attributes == nil {
			r.Attributes = map[string]any{}
		}
		r.Attributes[key] = value
		return r
	}
	failed := func(r trace.Record, text string) trace.Record {
		r.Error = text
		return r
	}
	verb := func(r trace.Record, verb string) trace.Record {
		for key, value := range map[string]string{trace.Verb: verb, trace.Network: "pods", trace.ContainerID: "web", trace.IfName: "eth0"} {
			r = with(r, key, value)
		}
		return r
	}
	const inUse = "port is in use by container <b>db</b>"
	child := span("03", bridge, "bridge", trace.Process, 2000, 9000)
	child.PID = 43
	return []trace.Record{
		failed(verb(span("01", "", "ADD pods/web eth0", trace.Operation, 0, 20000), "ADD"), "pods/web/eth0: portmap ADD: "+inUse),
		span("07", op, "lock network pods", trace.Wait, 100, 1200),
		with(verb(span("02", op, "bridge", trace.Plugin, 1300, 9500), "ADD"), trace.Result, []string{"+ eth0", "+ 10.77.0.2/24"}),
		verb(child, "ADD"),
		with(span("08", process, "add veth eth0 (peer veth0)", trace.Change, 2100, 4000), trace.NetlinkType, []string{"RTM_NEWLINK"}),
		span("09", process, "ipam host-local", trace.Change, 4100, 6000),
		with(verb(span("04", "0000000000000009", "host-local", trace.Delegate, 4200, 5900), "ADD"), trace.Result, []string{"+ 10.77.0.2/24"}),
		span("10", ipam, "lock /var/lib/cni/networks/pods/lock", trace.Wait, 4300, 5300),
		span("11", process, "masquerade 10.77.0.2/24", trace.Change, 6100, 8000),
		with(with(span("12", "0000000000000011", "nft commit", trace.Change, 6500, 7900), trace.NFTTable, []string{"inet tenon"}),
			trace.NFTElement, []string{"+ masq4 10.77.0.2", "+ nomasq4 10.77.0.2 not to 10.77.0.0/24"}),
		failed(verb(span("05", op, "portmap", trace.Plugin, 9600, 12000), "ADD"), "portmap ADD: "+inUse),
		failed(span("13", portmap, "portmap rules", trace.Change, 9700, 11000), inUse),
		span("14", portmap, "undo remember ports", trace.Undo, 11000, 11900),
		verb(span("06", op, "rollback pods/web eth0", trace.Operation, 12100, 19900), "DEL"),
		verb(span("15", rollback, "bridge", trace.Plugin, 12200, 19000), "DEL"),
	}
}

// file returns records as the content of a file.
func file(records ...trace.Record) []byte {
	var b bytes.Buffer
	for _, r := range records {
		line, _ := json.Marshal(r)
		b.Write(append(line, '\n'))
	}
	return b.Bytes()
}

func read(t *testing.T, content []byte) []*traceview.Span {
	t.Helper()
	operations, damaged, err := traceview.Read(bytes.NewReader(content))
	if err != nil || damaged != 0 {
		t.Fatalf("%d damaged lines, %v", damaged, err)
	}
	return operations
}

// golden compares text with a file below testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: -want +got:\n%s", path, diff)
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := text.Trace(&b, traceview.Steps(read(t, file(failing()...))[0])); err != nil {
		t.Fatal(err)
	}
	golden(t, "failing.txt", b.String())
}

// summary shows the trees of operations without times.
func summary(spans []*traceview.Span, indent string) (out string) {
	for _, s := range spans {
		out += fmt.Sprintf("%s%s %s", indent, s.Kind, s.Name)
		if s.Unfinished {
			out += " unfinished"
		}
		out += "\n" + summary(s.Children, indent+"  ")
	}
	return out
}

func call(id, plugin, verb, container string, from, to int64) trace.Record {
	r := span(id, "", plugin, trace.Process, from, to)
	r.Trace = strings.Repeat(id, 16)
	r.Attributes = map[string]any{trace.Verb: verb, trace.Network: "pods", trace.ContainerID: container, trace.IfName: "eth0", trace.PluginType: plugin}
	return r
}

func TestRead(t *testing.T) {
	t.Parallel()
	const second = 1_000_000
	unfinished := call("21", "bridge", "ADD", "web", 0, 0)
	unfinished.End = 0
	inside := span("22", unfinished.ID, "add veth", trace.Change, 100, 400)
	inside.Trace = unfinished.Trace
	failed := call("23", "bridge", "ADD", "web", 0, 100)
	failed.Error = "refused"
	for _, row := range []struct {
		name    string
		content []byte
		damaged int
		want    string
	}{
		{"plugins that a runtime calls are one operation", file(
			call("01", "bridge", "ADD", "web", 0, 5000), call("02", "bridge", "ADD", "db", 2000, 6000),
			call("03", "portmap", "ADD", "web", 6000, 7000), call("04", "portmap", "DEL", "web", 7000, 8000),
			call("05", "bridge", "ADD", "web", 10*second, 11*second)), 0,
			"operation ADD pods/web eth0\n  process bridge\n  process portmap\n" +
				"operation ADD pods/db eth0\n  process bridge\n" +
				"operation DEL pods/web eth0\n  process portmap\n" +
				"operation ADD pods/web eth0\n  process bridge\n"},
		{"an ADD after a failure is another operation", file(failed, call("24", "bridge", "ADD", "web", 200, 300)), 0,
			"operation ADD pods/web eth0\n  process bridge\noperation ADD pods/web eth0\n  process bridge\n"},
		{"a killed process", file(unfinished, inside), 0,
			"operation ADD pods/web eth0 unfinished\n  process bridge unfinished\n    change add veth\n"},
		{"the end replaces the beginning", file(unfinished, call("21", "bridge", "ADD", "web", 0, 500)), 0,
			"operation ADD pods/web eth0\n  process bridge\n"},
		{"a torn line, and one that follows it", append(append(file(unfinished)[:60], file(call("25", "ptp", "ADD", "a", 0, 1))...), "{broken\n"...), 1,
			"operation ADD pods/a eth0\n  process ptp\n"},
		{"a span that is its own parent", file(span("31", "0000000000000031", "loop", trace.Operation, 0, 1)), 0, "operation loop\n"},
		{"parents in a circle", file(span("32", "0000000000000033", "a", trace.Operation, 0, 2), span("33", "0000000000000032", "b", trace.Operation, 1, 2)), 0,
			"operation a\noperation b\n"},
		{"an empty file", nil, 0, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			operations, damaged, err := traceview.Read(bytes.NewReader(row.content))
			if err != nil || damaged != row.damaged {
				t.Errorf("%d damaged lines, %v", damaged, err)
			}
			if diff := cmp.Diff(row.want, summary(operations, "")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The wall clock is set back by an hour between the spans.
func TestClock(t *testing.T) {
	t.Parallel()
	records := failing()
	for i := range records[1:] {
		records[i+1].Start -= 3600e9
		records[i+1].End -= 3600e9
	}
	want := traceview.Steps(read(t, file(failing()...))[0])
	got := traceview.Steps(read(t, file(records...))[0])
	if diff := cmp.Diff(starts(want), starts(got)); diff != "" {
		t.Error(diff)
	}
}

func starts(s *traceview.Step) string {
	out := fmt.Sprintf("%s %v %v\n", s.Name, s.Start, s.Total)
	for _, c := range s.Children {
		out += starts(c)
	}
	return out
}

func FuzzRead(f *testing.F) {
	f.Add(file(failing()...))
	f.Add([]byte(`{"trace":"a","span":"b","parent":"b"}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		operations, _, err := traceview.Read(bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range operations {
			if err := text.Trace(&strings.Builder{}, traceview.Steps(o)); err != nil {
				t.Error(err)
			}
		}
		_ = traceview.Export(operations, "host", "test")
	})
}
