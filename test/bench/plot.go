package main

import (
	"fmt"
	"html"
	"os"
	"strings"
)

// Sizes of the plot, in pixels.
const (
	plotWidth   = 760
	labelWidth  = 300
	valueWidth  = 90
	barHeight   = 12
	groupHeight = 2*barHeight + 14
	plotTop     = 34
)

// plot draws the rows that have a time on both sides as an SVG picture: two bars for each row, both
// as wide as their part of the slower one.
func plot(rows []row, ours, peer string) string {
	var b strings.Builder
	y := plotTop
	bar := func(class string, y int, value, longest float64) {
		width := value / longest * (plotWidth - labelWidth - valueWidth)
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/>`+"\n", class, labelWidth, y, width, barHeight)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%.1f ms</text>`+"\n", labelWidth+width+6, y+barHeight-2, value)
	}
	for _, r := range rows {
		if r.Unit != "ms" || r.Peer == 0 {
			continue
		}
		fmt.Fprintf(&b, `<text class="label" x="%d" y="%d">%s</text>`+"\n", labelWidth-10, y+barHeight+3, html.EscapeString(r.What))
		longest := max(r.Ours, r.Peer)
		bar("ours", y, r.Ours, longest)
		bar("peer", y+barHeight+1, r.Peer, longest)
		y += groupHeight
	}
	const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d">
<style>
  rect.back { fill: #ffffff } text { font: 12px sans-serif; fill: #24292f }
  .label { text-anchor: end } .ours { fill: #1a7f64 } .peer { fill: #b0b8c1 }
</style>
<rect class="back" width="%[1]d" height="%[2]d"/>
<rect class="ours" x="%[3]d" y="10" width="12" height="12"/><text x="%[4]d" y="20">%[5]s</text>
<rect class="peer" x="%[6]d" y="10" width="12" height="12"/><text x="%[7]d" y="20">%[8]s</text>
`
	return fmt.Sprintf(head, plotWidth, y+6, labelWidth, labelWidth+18, html.EscapeString(ours),
		labelWidth+150, labelWidth+168, html.EscapeString(peer)) + b.String() + "</svg>\n"
}

func (b *bench) writePlot(name string) error {
	return os.WriteFile(name, []byte(plot(b.rows, "Tenon", b.peerName)), 0o644)
}
