package topology_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/ops/topology"
	"github.com/tenon-cni/tenon/internal/ops/topology/sample"
)

// outline returns the names in a tree, with problems in brackets.
func outline(b *topology.Branch, indent string) string {
	text := indent + b.Name
	for _, p := range b.Problems {
		text += " [" + p.Text + "]"
	}
	text += "\n"
	for _, c := range b.Children {
		text += outline(c, indent+" ")
	}
	return text
}

func TestTree(t *testing.T) {
	t.Parallel()
	m := topology.Build(sample.Host(14))
	for _, row := range []struct {
		name   string
		filter topology.Filter
		all    bool
		want   string
	}{
		{"equal attachments fold, those with a problem do not", topology.Filter{}, false, `node-7
 cni0
  cache [namespace gone]
  db [host side vethf562b67c48e is down]
  web [no masquerade for 10.77.0.2]
  api-1
  api-2
  api-3
  … 8 more of the same shape
  c2
 eth1
  eth1.20
   printer
   scanner
 docker0
`},
		{"only objects with a problem, and the way to them", topology.Filter{Problems: true}, false, `node-7
 cni0
  cache [namespace gone]
  db [host side vethf562b67c48e is down]
  web [no masquerade for 10.77.0.2]
`},
		{"one network", topology.Filter{Network: "lan"}, true, `node-7
 eth1
  eth1.20
   printer
   scanner
`},
		{"containers by the beginning of their ID", topology.Filter{Container: "api-1"}, true, `node-7
 cni0
  api-1
  api-10
  api-11
`},
		{"a network and problems", topology.Filter{Network: "pods", Container: "web", Problems: true}, true, `node-7
 cni0
  web [no masquerade for 10.77.0.2]
`},
		{"no such container", topology.Filter{Container: "nobody"}, true, "node-7\n"},
	} {
		tree := m.Filter(row.filter).Tree(row.all)
		if diff := cmp.Diff(row.want, outline(tree.Root, "")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.name, diff)
		}
		if len(tree.Uplinks) != 1 || tree.Uplinks[0].Name != "up0" {
			t.Errorf("%s: uplinks %v", row.name, tree.Uplinks)
		}
	}
}

// TestLift reports a problem of all attachments once, and folds them nevertheless.
func TestLift(t *testing.T) {
	t.Parallel()
	places := sample.Host(12)
	for i := range places.Host.Own().Ruleset.Sets {
		places.Host.Own().Ruleset.Sets[i].Elements = nil
	}
	for i := range places.Host.Namespaces { // and repair what else sample breaks
		for j := range places.Host.Namespaces[i].Links {
			places.Host.Namespaces[i].Links[j].Flags = []string{"up", "lower-up"}
		}
	}
	places.Records[2].Netns = places.Host.Namespaces[3].Paths[0]
	want := `node-7
 cni0 [no masquerade: all 12 attachments]
  api-1
  api-2
  api-3
  … 9 more of the same shape
`
	m := topology.Build(places)
	got := outline(m.Filter(topology.Filter{Network: "pods"}).Tree(false).Root, "")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if errors, _ := m.Problems(); errors != 12 {
		t.Errorf("the graph has %d errors, want one for each attachment", errors)
	}
}

// TestGraph checks that edges lead to nodes, that IDs are unique, and that a graph survives JSON.
func TestGraph(t *testing.T) {
	t.Parallel()
	m := topology.Build(sample.Host(50))
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var again *topology.Map
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(outline(m.Tree(true).Root, ""), outline(again.Tree(true).Root,
		"")); diff != "" {
		t.Errorf("JSON changes the tree (-want +got):\n%s", diff)
	}
	seen := map[string]bool{}
	for _, n := range again.Nodes {
		if seen[n.ID] {
			t.Errorf("two nodes %s", n.ID)
		}
		seen[n.ID] = true
	}
	var web []string
	for _, e := range again.Edges {
		if !seen[e.From] || !seen[e.To] {
			t.Errorf("%s edge from %s to %s", e.Kind, e.From, e.To)
		}
		if e.From == "att:pods/web/eth0" || e.To == "if:4:4026532101:2" {
			web = append(web, fmt.Sprintf("%s %s %s", e.Kind, again.Node(e.From).Name,
				again.Node(e.To).Name))
		}
	}
	want := []string{"dnat tcp 8080 -> 10.77.0.2:80 eth0", "owner web eth0",
		"owner web tcp 8080 -> 10.77.0.2:80",
		"owner web vethd1a4b3c2e5f", "peer vethd1a4b3c2e5f eth0"}
	slices.Sort(web)
	for i := range web { // the name is a digest
		if j := strings.Index(web[i], "veth"); j >= 0 {
			web[i] = web[i][:j] + "vethd1a4b3c2e5f" + web[i][j+15:]
		}
	}
	if diff := cmp.Diff(want, web); diff != "" {
		t.Errorf("edges of web (-want +got):\n%s", diff)
	}
}

// TestMark adds a problem that another check found, once.
func TestMark(t *testing.T) {
	t.Parallel()
	m := topology.Build(sample.Host(3))
	p := topology.Problem{ID: "firewall.forward-drop", Severity: topology.Error, Text: "dropped"}
	for object, want := range map[string]bool{"host": true, "nothing": false} {
		for range 2 {
			if m.Mark(object, p) != want {
				t.Errorf("Mark does not report whether %s exists", object)
			}
		}
	}
	if got := m.Tree(false).Root.Problems; len(got) != 1 || got[0] != p {
		t.Errorf("problems %v", got)
	}
}

func TestClean(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"web-1": "web-1", "日本語 <b>": "日本語 <b>", "a\x1b[31m": `a\x1b[31m`, "a\u202eb": `a\u202eb`,
		"a\xffb": `a\xffb`,
		"a\nb":   `a\x0ab`, "": "",
	} {
		if got := topology.Clean(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	id := strings.Repeat("0123456789abcdef", 4)
	if got := topology.Short(id); got != id[:12] {
		t.Errorf("long ID: %q", got)
	}
	for text, want := range map[string]string{"abcdef": "abc…", "abcd": "abcd", "日本語": "日…",
		"e\u0301e\u0301": "e\u0301e\u0301"} {
		if got := topology.Cut(text, 4); got != want || topology.Columns(got) > 4 {
			t.Errorf("%q in 4 columns: %q, want %q", text, got, want)
		}
	}
}
