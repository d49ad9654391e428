package picture

import (
	"fmt"
	"io"
	"strings"

	"github.com/tenon-cni/tenon/internal/ops/topology"
)

// Mermaid writes a map as a flowchart of Mermaid (mermaid.js.org), which Markdown of GitHub and
// GitLab can contain.
func Mermaid(w io.Writer, t *topology.Tree) error {
	c := &chart{}
	c.out.WriteString("flowchart LR\n")
	root := c.node(t.Root)
	for _, u := range t.Uplinks {
		id := c.node(u)
		fmt.Fprintf(&c.out, "  %s --- %s\n", id, root)
		c.below(id, u.Children)
	}
	c.below(root, t.Root.Children)
	c.out.WriteString("  classDef error stroke:#c0262d,stroke-width:2px\n")
	c.out.WriteString("  classDef warning stroke:#a85b00,stroke-width:2px\n")
	_, err := io.WriteString(w, c.out.String())
	return err
}

// chart is a flowchart. Its nodes are numbered, because names can be words of Mermaid.
type chart struct {
	out   strings.Builder
	nodes int
}

func (c *chart) below(parent string, list []*topology.Branch) {
	for _, b := range list {
		id := c.node(b)
		fmt.Fprintf(&c.out, "  %s --- %s\n", parent, id)
		c.below(id, b.Children)
	}
}

// node writes a node and returns its ID.
func (c *chart) node(b *topology.Branch) string {
	c.nodes++
	id := fmt.Sprintf("n%d", c.nodes)
	var lines []string
	for _, l := range linesOf(b, maxCols) {
		lines = append(lines, label(l.text))
	}
	open, end := "[", "]"
	if b.Kind == topology.OfContainer || b.Kind == topology.OfNamespace || b.Kind == topology.OfFold {
		open, end = "(", ")"
	}
	severity := ""
	for _, p := range b.Problems {
		if p.Severity == topology.Error || severity == "" {
			severity = ":::" + string(p.Severity)
		}
	}
	fmt.Fprintf(&c.out, "  %s%s\"%s\"%s%s\n", id, open, strings.Join(lines, "<br/>"), end, severity)
	return id
}

// label escapes text: Mermaid decodes numbers of characters between # and a semicolon, and passes
// labels on as HTML and Markdown.
func label(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune("\"#;<>&`*_\\[]{}()|~", r) {
			fmt.Fprintf(&b, "#%d;", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
