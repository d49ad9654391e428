package picture

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/tenon-cni/tenon/internal/ops/topology"
)

//go:embed page.html
var pageFrame string

//go:embed page.css
var pageStyle string

//go:embed page.js
var pageScript string

// HTML writes a page with the picture, a search and the details of each object. The page works from
// a file: it loads nothing, and its policy lets a browser run only the script of this package.
func HTML(w io.Writer, m *topology.Map, t *topology.Tree) error {
	p := newPainter(m, t)
	p.draw("")
	drawn := p.take()
	for _, u := range t.Uplinks {
		p.item(u)
	}
	p.item(t.Root)
	list := p.take()
	data, err := json.Marshal(newPageData(m, t, p.numbers))
	if err != nil {
		return err
	}
	style := mapStyle + pageStyle
	_, err = strings.NewReplacer(
		"{name}", escape(t.Root.Name), "{summary}", escape(t.Root.Note+readAt(m.Time)),
		"{style}", style, "{styleDigest}", digest(style), "{script}", pageScript,
		"{scriptDigest}", digest(pageScript), "{picture}", drawn, "{list}", list,
		"{data}", plainJSON(data), // the encoder escapes < and >
	).WriteString(w, pageFrame)
	return err
}

// take returns the drawing since the last call.
func (p *painter) take() string {
	text := p.out.String()
	p.out.Reset()
	return text
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return base64.StdEncoding.EncodeToString(sum[:])
}

func readAt(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " · " + t.UTC().Format(time.DateTime) + " UTC"
}

// pageData is what the script of the page works on.
type pageData struct {
	Nodes []*topology.Node `json:"nodes"`
	Edges [][3]any         `json:"edges"` // kind, from, to
	// At maps the numbers of nodes that have no card of their own to the number of the node that has.
	At map[int]int `json:"at"`
}

func newPageData(m *topology.Map, t *topology.Tree, numbers map[string]int) pageData {
	d := pageData{Nodes: m.Nodes, At: map[int]int{}, Edges: [][3]any{}}
	for _, e := range m.Edges {
		text := string(e.Kind)
		if e.Route != nil {
			text = strings.TrimSpace(fmt.Sprintf("route %s %s", e.Route.Dst, via(e.Route)))
		}
		d.Edges = append(d.Edges, [3]any{text, numbers[e.From], numbers[e.To]})
	}
	var visit func(list []*topology.Branch)
	visit = func(list []*topology.Branch) {
		for _, b := range list {
			if b.Kind != topology.OfFold {
				for _, id := range b.Related {
					d.At[numbers[id]] = numbers[b.ID]
				}
			}
			visit(b.Children)
			visit(b.Folded)
		}
	}
	visit(t.Uplinks)
	visit([]*topology.Branch{t.Root})
	return d
}

// plainJSON escapes the characters of JSON that [topology.Clean] does; the encoder escapes < and >.
func plainJSON(data []byte) string {
	var b strings.Builder
	for _, r := range string(data) {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

func via(r *topology.Route) string {
	if r.Via.IsValid() {
		return "via " + r.Via.String()
	}
	return "dev " + topology.Clean(r.Dev)
}

// item writes a branch as an item of a list.
func (p *painter) item(b *topology.Branch) {
	if b.Folded != nil {
		p.printf("<li><details><summary>%s</summary><ul>\n", escape(b.Name))
		for _, f := range b.Folded {
			p.item(f)
		}
		p.printf("</ul></details></li>\n")
		return
	}
	p.printf(`<li><button type="button" class="%s" data-i="%d"><b>%s</b>`, class(b), p.numbers[b.ID],
		escape(b.Name))
	for _, text := range append(append([]string{strings.Join(b.Facts, " ")}, b.Ports...), b.Note) {
		if text != "" {
			p.printf(" <span>%s</span>", escape(text))
		}
	}
	for _, x := range b.Problems {
		mark := "!"
		if x.Severity == topology.Error {
			mark = "✗"
		}
		p.printf(` <em class="%s">%s %s</em>`, x.Severity, mark, escape(topology.Clean(x.Text)))
	}
	p.printf("</button>")
	if len(b.Children) > 0 {
		p.printf("<ul>\n")
		for _, c := range b.Children {
			p.item(c)
		}
		p.printf("</ul>")
	}
	p.printf("</li>\n")
}
