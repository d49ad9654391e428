package nft

import (
	"context"
	"fmt"
	"slices"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
	"github.com/tenon-cni/tenon/internal/trace"
)

// span begins the step of a trace that commits t, unless t is empty or ctx is not traced.
func (c changes) span(ctx context.Context, t *nftmsg.Transaction) *trace.Span {
	parent := trace.From(ctx)
	if parent == nil || t.Len() == 0 {
		return nil
	}
	span := parent.Child(trace.Change, "nft commit")
	span.Set(trace.NFTMessages, t.Len())
	tables, elements := c.words()
	span.Set(trace.NFTTable, tables)
	if len(elements) > 0 {
		span.Set(trace.NFTElement, elements)
	}
	return span
}

// words describes the changes: the tables, and each change of a skeleton or an element.
func (c changes) words() (tables, elements []string) {
	in := func(t nftmsg.Table) {
		if name := fmt.Sprintf("%s %s", t.Family, t.Name); !slices.Contains(tables, name) {
			tables = append(tables, name)
		}
	}
	for _, b := range c.builds {
		in(b.table)
		elements = append(elements,
			fmt.Sprintf("+ sets: %d, chains: %d", len(b.sets), len(b.chains)))
	}
	for _, ch := range c.sets {
		in(ch.set.Table)
		for _, x := range ch.del {
			elements = append(elements, "- "+ch.set.words(x))
		}
		for _, x := range ch.add {
			elements = append(elements, "+ "+ch.set.words(x))
		}
	}
	return tables, elements
}

// words describes an element: the name of its set and its value.
func (s *set) words(x nftmsg.Element) string { return s.Name + " " + s.text(x) }
