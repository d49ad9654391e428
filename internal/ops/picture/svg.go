package picture

import (
	_ "embed"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/ops/topology"
)

//go:embed map.css
var mapStyle string

// SVG draws a map.
func SVG(w io.Writer, m *topology.Map, t *topology.Tree) error {
	p := newPainter(m, t)
	p.draw(mapStyle)
	_, err := io.WriteString(w, p.out.String())
	return err
}

// painter draws a tree.
type painter struct {
	out     strings.Builder
	tree    *topology.Tree
	numbers map[string]int
	root    *box
	uplinks []*box
}

func newPainter(m *topology.Map, t *topology.Tree) *painter {
	return &painter{tree: t, numbers: numbersOf(m)}
}

func (p *painter) printf(format string, args ...any) { fmt.Fprintf(&p.out, format, args...) }

// arrange measures and places all cards: uplinks, the host, and the tree of its interfaces. Uplinks
// with containers are part of the tree.
func (p *painter) arrange() (width, height int) {
	root := *p.tree.Root
	root.Children, root.Note = nil, "" // the note is the subtitle
	left := 0
	for _, u := range p.tree.Uplinks {
		if len(u.Children) > 0 {
			root.Children = append(root.Children, u)
			continue
		}
		b := newBox(u)
		p.uplinks = append(p.uplinks, b)
		left = max(left, b.w)
	}
	root.Children = slices.Concat(root.Children, p.tree.Root.Children)
	p.root = newBox(&root)
	y, x := header+margin, margin
	for _, u := range p.uplinks {
		u.x, u.y = margin+left-u.w, y
		y += u.h + gapY
	}
	if left > 0 {
		x += left + gapX
	}
	widths := p.root.widths(0, nil)
	at := func(depth int) int {
		left := x
		for _, w := range widths[:min(depth, len(widths))] {
			left += w + gapX
		}
		return left
	}
	p.root.place(at, 0, header+margin)
	right, bottom := p.root.extent()
	return max(right, minWidth) + margin, max(bottom, y) + margin
}

const minWidth = 560

// draw draws everything. An empty style leaves it to the page around the picture.
func (p *painter) draw(style string) {
	width, height := p.arrange()
	p.printf(`<svg xmlns="http://www.w3.org/2000/svg" class="tenon-map" width="%d" height="%d"`,
		width, height)
	p.printf(` viewBox="0 0 %d %d" role="group" aria-label="%s">`+"\n", width, height,
		escape("Map of "+p.tree.Root.Name))
	if style != "" {
		p.printf("<style>\n%s</style>\n", style)
	}
	p.printf(`<rect class="paper" width="%d" height="%d"/>`+"\n", width, height)
	p.printf(`<text class="title" x="%d" y="42">%s</text>`+"\n", margin, escape(p.tree.Root.Name))
	p.printf(`<text class="subtitle" x="%d" y="64">%s</text>`+"\n", margin, escape(p.tree.Root.Note))
	p.printf(`<g class="edges">` + "\n")
	for _, u := range p.uplinks {
		p.elbow(u.x+u.w, u.y+anchor, p.root.x, p.root.y+anchor)
	}
	p.edges(p.root)
	p.printf("</g>\n")
	for _, u := range p.uplinks {
		p.card(u)
	}
	p.cards(p.root)
	p.printf("</svg>\n")
}

// anchor is where edges meet a card, below its upper side.
const anchor = 20

// edges draws the lines to the boxes below a card.
func (p *painter) edges(b *box) {
	for _, c := range b.children {
		p.elbow(b.x+b.w, b.y+anchor, c.x, c.y+anchor)
		p.edges(c)
	}
	if g := b.grid; g != nil {
		p.elbow(b.x+b.w, b.y+anchor, g.x, g.y+anchor)
		p.printf(`<rect class="frame" x="%d" y="%d" width="%d" height="%d" rx="10"/>`+"\n", g.x, g.y,
			g.w, g.h)
	}
}

// elbow draws a line with right angles. The vertical part is near the right end, so that lines from
// one card share it.
func (p *painter) elbow(x1, y1, x2, y2 int) {
	middle := x2 - gapX/2
	if y1 == y2 {
		p.printf(`<path d="M%d %dH%d"/>`+"\n", x1, y1, x2)
		return
	}
	p.printf(`<path d="M%d %dH%dV%dH%d"/>`+"\n", x1, y1, middle, y2, x2)
}

func (p *painter) cards(b *box) {
	p.card(b)
	for _, c := range b.children {
		p.cards(c)
	}
	if b.grid != nil {
		for _, c := range slices.Concat(b.grid.boxes, b.grid.folds) {
			p.card(c)
		}
	}
}

// card draws a card with its text and, of a fold, a tile for each branch.
func (p *painter) card(b *box) {
	p.printf(`<g class="card %s"%s>`+"\n", class(b.branch), p.target(b.branch, ""))
	p.printf(`<title>%s</title><rect class="box" x="%d" y="%d" width="%d" height="%d" rx="7"/>`,
		escape(title(b.branch)), b.x, b.y, b.w, b.h)
	p.printf(`<rect class="strip" x="%d" y="%d" width="4" height="%d" rx="2"/>`+"\n", b.x, b.y+6,
		b.h-12)
	y := b.y + padding - 2
	for _, l := range b.lines {
		p.printf(`<text class="%s" x="%d" y="%d">%s</text>`+"\n", l.class, b.x+padding, y+baseline,
			escape(l.text))
		y += lineStep
	}
	for i, f := range b.branch.Folded {
		x, y := b.x+padding+i%b.tiles*tileStep, y+4+i/b.tiles*tileStep
		p.printf(`<rect class="tile"%s x="%d" y="%d" width="%d" height="%d" rx="2">`,
			p.target(f, f.Name), x, y, tile, tile)
		p.printf("<title>%s</title></rect>\n", escape(title(f)))
	}
	p.printf("</g>\n")
}

// target returns the attributes with which a script finds the node of a branch.
func (p *painter) target(b *topology.Branch, label string) string {
	if b.Kind == topology.OfFold {
		return ""
	}
	if label == "" {
		label = b.Name
	}
	return fmt.Sprintf(` data-i="%d" tabindex="-1" aria-label="%s"`, p.numbers[b.ID], escape(label))
}

// title is the text that appears when the pointer rests on a card.
func title(b *topology.Branch) string {
	parts := slices.Concat([]string{b.Name}, b.Facts, b.Ports)
	if b.Note != "" {
		parts = append(parts, b.Note)
	}
	if b.Hint != "" {
		parts = append(parts, b.Hint)
	}
	return strings.Join(parts, "\n")
}

// escape escapes text for XML and HTML. It has no control characters, see [topology.Clean].
func escape(s string) string { return html.EscapeString(s) }
