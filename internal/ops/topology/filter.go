package topology

import (
	"slices"
	"strings"
)

// Filter selects a part of a map. The zero value selects everything.
type Filter struct {
	Network   string
	Container string // container ID, its beginning, or the name of a namespace
	Problems  bool   // only objects with a problem
}

// Filter returns the part of the map that a filter selects, with what connects it to the host. The
// host and its uplinks are always part of it.
func (m *Map) Filter(f Filter) *Map {
	if f == (Filter{}) {
		return m
	}
	seeds := map[string]bool{}
	for _, n := range m.Nodes {
		if f.selects(n) {
			seeds[n.ID] = true
		}
	}
	out := *m
	out.Nodes, out.Edges = nil, nil
	kept := m.closure(seeds)
	for _, n := range m.Nodes {
		if kept[n.ID] {
			out.Nodes = append(out.Nodes, n)
		}
	}
	for _, e := range m.Edges {
		if kept[e.From] && kept[e.To] {
			out.Edges = append(out.Edges, e)
		}
	}
	out.index()
	return &out
}

// selects reports whether the filter names a node.
func (f Filter) selects(n *Node) bool {
	if f.Problems && n.Problems == nil {
		return false
	}
	if f.Network == "" && f.Container == "" {
		return f.Problems
	}
	switch n.Kind {
	case Attachment:
		return (f.Network == "" || n.Attached.Network == f.Network) &&
			(f.Container == "" || strings.HasPrefix(n.Attached.Container, f.Container))
	case Namespace:
		return f.Network == "" && n.Name == f.Container
	case Interface:
		return f.Container == "" && slices.Contains(n.Device.Networks, f.Network) &&
			n.Device.Kind != "veth"
	}
	return false
}

// closure returns the nodes that lead from some nodes to the host.
func (m *Map) closure(seeds map[string]bool) map[string]bool {
	next := m.ways(seeds)
	kept, queue := map[string]bool{}, []string{hostID}
	for _, n := range m.Nodes {
		if seeds[n.ID] {
			queue = append(queue, n.ID)
		}
	}
	for len(queue) > 0 {
		id := queue[0]
		queue = queue[1:]
		if !kept[id] {
			kept[id] = true
			queue = append(queue, next[id]...)
		}
	}
	return kept
}

// ways returns the nodes to keep with each node: the way to the host, the objects of an attachment,
// and, of a namespace that is selected itself, its interfaces.
func (m *Map) ways(seeds map[string]bool) map[string][]string {
	next := map[string][]string{}
	add := func(from, to string) { next[from] = append(next[from], to) }
	own := m.Nodes[0].Namespace
	for _, n := range m.Nodes {
		ns := "ns:" + n.Namespace
		switch {
		case n.Kind == Attachment && n.Namespace != "":
			add(n.ID, ns)
		case n.Kind == Interface && n.Namespace != own:
			add(n.ID, ns)
			if seeds[ns] {
				add(ns, n.ID)
			}
		case n.Kind == Interface && n.Device.Uplink:
			add(hostID, n.ID)
		}
	}
	for _, e := range m.Edges {
		switch e.Kind {
		case MemberOf, ParentOf, Forwards:
			add(e.From, e.To)
		case Owns:
			add(e.From, e.To)
			if seeds[e.To] {
				add(e.To, e.From)
			}
		case PeerOf:
			add(e.From, e.To)
			add(e.To, e.From)
		case Routes:
			if e.From == hostID {
				add(hostID, e.To)
			}
		}
	}
	return next
}
