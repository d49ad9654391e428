package picture

import (
	"fmt"

	"github.com/tenon-cni/tenon/internal/ops/topology"
)

// Sizes in pixels.
const (
	margin   = 24
	header   = 64 // title and summary
	gapX     = 56 // between columns of cards
	gapY     = 12 // between cards
	padding  = 12 // in a card
	lineStep = 17
	baseline = 13  // of the first line in its step
	charW    = 7.3 // of the font in cards
	minCols  = 17  // columns of text in a card
	maxCols  = 26

	tile, tileStep = 11, 14

	gridFrom = 5 // containers from which on they are arranged in a grid
	gridCols = 4
)

// box is a card with its place, and the boxes below it.
type box struct {
	branch     *topology.Branch
	lines      []line
	x, y, w, h int
	children   []*box
	tiles      int   // of a fold, side by side
	grid       *grid // of children that have no children
}

// grid arranges many cards in a frame, and below them folds.
type grid struct {
	x, y, w, h int
	boxes      []*box
	folds      []*box
}

func more(n int) string { return fmt.Sprintf("+ %d more", n) }

// newBox measures a card and the cards below it.
func newBox(b *topology.Branch) *box {
	x := &box{branch: b, lines: linesOf(b, maxCols)}
	columns := minCols
	for _, l := range x.lines {
		columns = max(columns, topology.Columns(l.text))
	}
	x.w = int(float64(columns)*charW) + 2*padding
	x.h = len(x.lines)*lineStep + 2*padding - 4
	leaves := 0
	for _, c := range b.Children {
		child := newBox(c)
		x.children = append(x.children, child)
		if child.leaf() {
			leaves += 1 + len(c.Folded)
		}
	}
	if leaves >= gridFrom {
		x.makeGrid()
	}
	return x
}

func (x *box) leaf() bool { return len(x.branch.Children) == 0 }

// makeGrid moves the children without children into a grid of cards of the same width.
func (x *box) makeGrid() {
	g := &grid{}
	var rest []*box
	for _, c := range x.children {
		switch {
		case c.branch.Folded != nil:
			g.folds = append(g.folds, c)
		case c.leaf():
			g.boxes = append(g.boxes, c)
		default:
			rest = append(rest, c)
		}
	}
	width := 0
	for _, c := range g.boxes {
		width = max(width, c.w)
	}
	for _, c := range g.boxes {
		c.w = width
	}
	x.grid, x.children = g, rest
}

// place places a card and the cards below it, and returns the height. columns are the left sides of
// cards, by depth.
func (x *box) place(at func(depth int) int, depth, y int) int {
	x.x, x.y = at(depth), y
	next := y
	for _, c := range x.children {
		next += c.place(at, depth+1, next) + gapY
	}
	if x.grid != nil {
		next += x.grid.place(at(depth+1), next) + gapY
	}
	return max(x.h, next-gapY-y)
}

// place places the cards of a grid, and returns its height.
func (g *grid) place(left, y int) int {
	cols := 1
	for cols < gridCols && cols*cols < len(g.boxes) {
		cols++
	}
	g.x, g.y = left, y
	top, height := y+padding, 0
	for i, c := range g.boxes {
		if i%cols == 0 && i > 0 {
			top, height = top+height+gapY, 0
		}
		c.x, c.y = left+padding+i%cols*(c.w+gapY), top
		height = max(height, c.h)
	}
	g.w = 2*padding + cols*(g.boxes[0].w+gapY) - gapY
	top += height
	for _, f := range g.folds {
		f.x, f.y, f.w = left+padding, top+gapY, g.w-2*padding
		f.tiles = (f.w - 2*padding) / tileStep
		f.h += (len(f.branch.Folded)+f.tiles-1)/f.tiles*tileStep + 6
		top += f.h + gapY
	}
	g.h = top + padding - y
	return g.h
}

// widths records the widest card of each depth.
func (x *box) widths(depth int, list []int) []int {
	for len(list) <= depth {
		list = append(list, 0)
	}
	list[depth] = max(list[depth], x.w)
	for _, c := range x.children {
		list = c.widths(depth+1, list)
	}
	return list
}

// extent returns the right and the lower end of everything below a card.
func (x *box) extent() (right, bottom int) {
	right, bottom = x.x+x.w, x.y+x.h
	for _, c := range x.children {
		r, b := c.extent()
		right, bottom = max(right, r), max(bottom, b)
	}
	if g := x.grid; g != nil {
		right, bottom = max(right, g.x+g.w), max(bottom, g.y+g.h)
	}
	return right, bottom
}
