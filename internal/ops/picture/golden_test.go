package picture_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/ops/picture"
	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/internal/ops/topology"
	"github.com/tenon-cni/tenon/internal/ops/topology/sample"
)

var update = flag.Bool("update", false, "rewrite the golden files and the picture in docs/map.md")

// formats write a map in each format.
var formats = map[string]func(w io.Writer, m *topology.Map) error{
	"map.txt":  func(w io.Writer, m *topology.Map) error { return text.Map(w, m.Tree(false)) },
	"all.txt":  func(w io.Writer, m *topology.Map) error { return text.Map(w, m.Tree(true)) },
	"map.svg":  func(w io.Writer, m *topology.Map) error { return picture.SVG(w, m, m.Tree(false)) },
	"map.html": func(w io.Writer, m *topology.Map) error { return picture.HTML(w, m, m.Tree(false)) },
	"map.mmd":  func(w io.Writer, m *topology.Map) error { return picture.Mermaid(w, m.Tree(false)) },
	"map.json": func(w io.Writer, m *topology.Map) error {
		e := json.NewEncoder(w)
		e.SetIndent("", " ")
		return e.Encode(m)
	},
}

// TestGoldens compares the formats with files, and two runs on the same state with each other.
func TestGoldens(t *testing.T) {
	t.Parallel()
	for name, write := range formats {
		var first, second bytes.Buffer
		if err := write(&first, topology.Build(sample.Host(14))); err != nil {
			t.Fatal(err)
		}
		if err := write(&second, topology.Build(sample.Host(14))); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Errorf("%s: two runs differ", name)
		}
		golden(t, filepath.Join("testdata", name), first.Bytes())
	}
}

// TestDocumentation compares the picture in the documentation with what the command draws.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	m := topology.Build(sample.Host(60))
	if err := picture.SVG(&b, m, m.Tree(false)); err != nil {
		t.Fatal(err)
	}
	golden(t, "../../../docs/map.svg", b.Bytes())
	page, err := os.ReadFile("../../../docs/map.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), "```text\n")
	_, after, closed := strings.Cut(rest, "```\n")
	if !ok || !closed {
		t.Fatal("docs/map.md has no example")
	}
	b.Reset()
	if err := text.Map(&b, m.Tree(false)); err != nil {
		t.Fatal(err)
	}
	golden(t, "../../../docs/map.md", []byte(before+"```text\n"+b.String()+"```\n"+after))
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got), run with -update and read the diff:\n%s", path, diff)
	}
}

// TestLarge draws a host with 1,000 attachments: folded, it is short.
func TestLarge(t *testing.T) {
	t.Parallel()
	start := time.Now()
	m := topology.Build(sample.Host(1000))
	for name, write := range formats {
		var b bytes.Buffer
		if err := write(&b, m); err != nil {
			t.Fatal(err)
		}
		if lines := bytes.Count(b.Bytes(), []byte("\n")); name == "map.txt" && lines > 24 {
			t.Errorf("%d lines do not fit a screen:\n%s", lines, b.Bytes())
		}
		if name == "all.txt" && !strings.Contains(b.String(), "api-997 ") {
			t.Error("the unfolded map lacks a container")
		}
		t.Logf("%s: %d bytes", name, b.Len())
	}
	t.Logf("all formats in %v", time.Since(start))
}

// BenchmarkBuild arranges and prints 1,000 attachments.
func BenchmarkBuild(b *testing.B) {
	places := sample.Host(1000)
	for b.Loop() {
		if err := text.Map(io.Discard, topology.Build(places).Tree(false)); err != nil {
			b.Fatal(err)
		}
	}
}
