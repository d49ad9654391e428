package registry

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/internal/cluster"
)

// Finding is a violated invariant.
type Finding struct {
	Invariant int    `json:"invariant"` // its number in docs/cluster.md
	Text      string `json:"text"`
	Hint      string `json:"hint,omitempty"`
}

// The numbers of the invariants. A snapshot cannot show 11, 13 and 14, which are about histories,
// and only the part of 1, 2 and 12 that is in the store.
const (
	oneHolder   = 1
	inOwnBlock  = 2
	oneOwner    = 3
	sameLists   = 4
	epochs      = 5
	fencedGains = 6
	cooldown    = 7
	dynamic     = 8
	stickyNames = 9
	quotas      = 10
	leftovers   = 12
)

// checker collects the findings of a snapshot.
type checker struct {
	Snapshot
	pools    map[string]Pool
	nodes    map[string]Node
	blocks   map[string]Block // by key
	holders  map[string]cluster.Holder
	sticky   map[string]cluster.Sticky // by the key of the name
	reserved map[string]bool           // keys of addresses that belong to a sticky name
	findings []Finding
}

// Check returns the violated invariants of a snapshot, sorted.
func (s Snapshot) Check() []Finding {
	c := checker{
		Snapshot: s, pools: map[string]Pool{}, nodes: map[string]Node{},
		blocks: map[string]Block{}, holders: map[string]cluster.Holder{},
		sticky: map[string]cluster.Sticky{}, reserved: map[string]bool{},
	}
	for _, sticky := range s.Stickies {
		c.sticky[s.keys.Sticky(sticky.Pool, sticky.Namespace, sticky.Name)] = sticky
		c.reserved[s.keys.Addr(sticky.Pool, sticky.Addr)] = true
	}
	for _, p := range s.Pools {
		c.pools[p.Name] = p
	}
	for _, n := range s.Nodes {
		c.nodes[n.Name] = n
	}
	for _, b := range s.Blocks {
		c.blocks[s.keys.Block(b.Pool, b.Block.Block)] = b
	}
	for _, h := range s.Holders {
		c.holders[s.keys.Addr(h.Pool, h.Addr)] = h
	}
	for _, wrong := range s.Wrong {
		c.find(leftovers, "", "%s", wrong)
	}
	c.checkPools()
	for _, b := range s.Blocks {
		c.checkBlock(b)
	}
	for _, n := range s.Nodes {
		c.checkNode(n)
	}
	for _, h := range s.Holders {
		c.checkHolder(h)
	}
	c.checkStickies()
	c.checkTokens()
	slices.SortFunc(c.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Invariant, b.Invariant), cmp.Compare(a.Text, b.Text))
	})
	return slices.Compact(c.findings)
}

// Doubts returns findings about the store as a whole: it was restored or replaced, and nodes or an
// operator have not confirmed it. A confirmation needs the findings of Check, not these, to be
// corrected first.
func (s Snapshot) Doubts() (found []Finding) {
	const way = "run `tenon cluster confirm`: it asks all nodes, and says what to do"
	if d := s.Doubt; d != nil {
		found = append(found, Finding{oneHolder, fmt.Sprintf(
			"the store was restored or replaced, and no node gets blocks: %s, %s: %s", d.Author,
			d.Since.UTC().Format(time.RFC3339), d.Cause), way})
	}
	for _, node := range slices.Sorted(maps.Keys(s.Proofs)) {
		if cause := s.Proofs[node].Contested; cause != "" {
			found = append(found, Finding{oneHolder, fmt.Sprintf(
				"node %s gives out no addresses: two processes used its identity: %s", node, cause),
				"stop the copy, end its containers and run `tenon cluster node reset` there; then run " +
					"`tenon cluster confirm --node " + node + "`, and restart the agent of the other"})
		}
	}
	for _, n := range s.Nodes {
		if n.Store != "" && n.Store != s.Meta.Nonce && n.State != cluster.NodeFenced {
			found = append(found, Finding{oneHolder, fmt.Sprintf(
				"node %s gets no blocks: an operator has not confirmed the store for it", n.Name), way})
		}
	}
	return found
}

func (c *checker) find(invariant int, hint, format string, args ...any) {
	c.findings = append(c.findings, Finding{invariant, fmt.Sprintf(format, args...), hint})
}

func (c *checker) checkPools() {
	for i, p := range c.Pools {
		for _, o := range c.Pools[i+1:] {
			if p.Range.Overlaps(o.Range) {
				c.find(oneOwner, "delete one of them", "pools %s (%s) and %s (%s) overlap", p.Name,
					p.Range, o.Name, o.Range)
			}
		}
	}
}

func (c *checker) checkBlock(b Block) {
	p, ok := c.pools[b.Pool]
	switch {
	case !ok:
		c.find(leftovers, "", "block %s belongs to pool %s, which does not exist", b.Block.Block, b.Pool)
		return
	case !p.IsBlock(b.Block.Block):
		c.find(oneOwner, "", "%s is no block of pool %s (%s, blocks of /%d)", b.Block.Block, p.Name,
			p.Range, p.BlockBits)
	}
	switch b.State {
	case cluster.BlockOwned:
		c.checkOwned(b)
	case cluster.BlockCooling:
		if b.Owner != "" || len(b.Grants) > 0 {
			c.find(cooldown, "", "block %s cools down and has owner %q and %d grants", b.Block.Block,
				b.Owner, len(b.Grants))
		}
	case cluster.BlockShared:
		if b.Owner != "" {
			c.find(oneOwner, "", "block %s is shared and has owner %s", b.Block.Block, b.Owner)
		}
		if len(b.Grants) == 0 {
			c.find(leftovers, "", "block %s is shared and has no address in use", b.Block.Block)
		}
	default:
		c.find(oneOwner, "", "block %s has the unknown state %q", b.Block.Block, b.State)
	}
	for a, g := range b.Grants {
		c.checkGrant(b, a, g)
	}
}

func (c *checker) checkOwned(b Block) {
	n, ok := c.nodes[b.Owner]
	ref := cluster.BlockRef{Pool: b.Pool, Block: b.Block.Block, Nonce: b.Nonce}
	switch {
	case !ok:
		c.find(sameLists, "run `tenon cluster release --node "+b.Owner+"`",
			"block %s belongs to node %s, which does not exist", b.Block.Block, b.Owner)
	case !slices.Contains(n.Blocks, ref):
		c.find(sameLists, "", "block %s belongs to node %s and is not in its list", b.Block.Block,
			b.Owner)
	case b.Epoch != n.Epoch:
		c.find(epochs, "", "block %s has epoch %d, its node %s has %d", b.Block.Block, b.Epoch,
			n.Name, n.Epoch)
	case b.Generation > n.Revision:
		c.find(fencedGains, "", "block %s was claimed after the last change of node %s (%s)",
			b.Block.Block, n.Name, n.State)
	}
	if b.Cool {
		c.find(cooldown, "", "block %s cools down and belongs to node %s", b.Block.Block, b.Owner)
	}
}

// checkGrant checks an address of a shared block that is in use or reserved.
func (c *checker) checkGrant(b Block, a netip.Addr, g cluster.Grant) {
	if !b.Block.Block.Contains(a) {
		c.find(inOwnBlock, "", "%s is granted by block %s, which does not contain it", a, b.Block.Block)
	}
	_, held := c.holders[c.keys.Addr(b.Pool, a)]
	switch {
	case b.State != cluster.BlockShared:
		c.find(sameLists, "", "%s is granted by block %s, which is %s", a, b.Block.Block, b.State)
	case g.Node != "" && !held:
		c.find(leftovers, "", "%s is granted to node %s, which does not have it", a, g.Node)
	case g.Node == "" && !c.reserved[c.keys.Addr(b.Pool, a)]:
		c.find(leftovers, "", "%s is reserved in block %s for no sticky name", a, b.Block.Block)
	}
}

func (c *checker) checkNode(n Node) {
	if !slices.IsSortedFunc(n.Blocks, compareRefs) {
		c.find(sameLists, "", "the list of node %s is not sorted", n.Name)
	}
	for i, ref := range n.Blocks {
		if i > 0 && compareRefs(n.Blocks[i-1], ref) == 0 {
			c.find(sameLists, "", "block %s is twice in the list of node %s", ref.Block, n.Name)
		}
		b, ok := c.blocks[c.keys.Block(ref.Pool, ref.Block)]
		if !ok || b.State != cluster.BlockOwned || b.Owner != n.Name || b.Nonce != ref.Nonce {
			c.find(sameLists, "", "node %s lists block %s, which is %s of %q", n.Name, ref.Block,
				cmp.Or(string(b.State), "free"), b.Owner)
		}
	}
	if n.State == cluster.NodeFenced && (n.Evidence == "" || n.Author == "") {
		c.find(fencedGains, "", "node %s is fenced without evidence", n.Name)
	}
}

func (c *checker) checkHolder(h cluster.Holder) {
	p, block := c.pools[h.Pool], Block{}
	if b, ok := p.BlockOf(h.Addr); ok {
		block = c.blocks[c.keys.Block(h.Pool, b)]
	}
	revision := c.revisions[c.keys.Addr(h.Pool, h.Addr)]
	n, ok := c.nodes[h.Node]
	switch {
	case block.State != cluster.BlockShared:
		c.find(oneHolder, "", "%s has holder %s, and its block is %s of %q", h.Addr, h.Container,
			cmp.Or(string(block.State), "free"), block.Owner)
	case block.Grants[h.Addr].Nonce != h.Nonce || block.Grants[h.Addr].Node != h.Node:
		c.find(inOwnBlock, "", "%s has a holder on node %s, and its block lists node %q", h.Addr,
			h.Node, block.Grants[h.Addr].Node)
	}
	switch {
	case !ok:
		c.find(leftovers, "run `tenon cluster release --address "+h.Addr.String()+"`",
			"%s is held on node %s, which does not exist", h.Addr, h.Node)
	case h.Epoch != n.Epoch:
		c.find(epochs, "", "%s is held in epoch %d of node %s, which has %d", h.Addr, h.Epoch, h.Node,
			n.Epoch)
	case n.State == cluster.NodeFenced && revision > n.Revision:
		c.find(fencedGains, "", "node %s acquired %s after it was fenced", h.Node, h.Addr)
	}
	if err := p.Allocatable(h.Addr); err != nil && revision > p.Revision {
		c.find(dynamic, "", "%s is held: %v", h.Addr, err)
	}
	if h.Name != "" && c.sticky[c.keys.Sticky(h.Pool, h.Namespace, h.Name)].Addr != h.Addr {
		c.find(stickyNames, "", "%s is held for %s/%s, which has another address", h.Addr,
			h.Namespace, h.Name)
	}
}

func (c *checker) checkStickies() {
	names := map[string]string{}
	for _, s := range c.Stickies {
		name, key := s.Namespace+"/"+s.Name, c.keys.Addr(s.Pool, s.Addr)
		if other, ok := names[key]; ok {
			c.find(stickyNames, "", "%s belongs to %s and %s", s.Addr, other, name)
		}
		names[key] = name
		p := c.pools[s.Pool]
		b, _ := p.BlockOf(s.Addr)
		block := c.blocks[c.keys.Block(s.Pool, b)]
		if _, ok := block.Grants[s.Addr]; !ok || block.State != cluster.BlockShared {
			c.find(stickyNames, "", "%s of %s is not reserved in its block", s.Addr, name)
		}
		if h, ok := c.holders[key]; ok && (h.Name != s.Name || h.Namespace != s.Namespace) {
			c.find(stickyNames, "", "%s of %s is held for %s/%s", s.Addr, name, h.Namespace, h.Name)
		}
	}
}

func (c *checker) checkTokens() {
	for _, pool := range slices.Sorted(maps.Keys(c.Tokens)) {
		p := c.pools[pool]
		totals, latest := map[string]uint64{}, map[string]int64{}
		for _, t := range c.Tokens[pool] {
			totals[t.Namespace] += t.Count
			key := c.keys.Quota(pool, t.Namespace, t.Node)
			latest[t.Namespace] = max(latest[t.Namespace], c.revisions[key])
			n, ok := c.nodes[t.Node]
			switch {
			case !ok:
				c.find(leftovers, "", "node %s has tokens of namespace %s and does not exist", t.Node,
					t.Namespace)
			case t.Epoch != n.Epoch:
				c.find(epochs, "", "node %s has tokens of namespace %s of epoch %d, its epoch is %d",
					t.Node, t.Namespace, t.Epoch, n.Epoch)
			}
		}
		for namespace, total := range totals {
			// After an operator has lowered a limit, nodes give tokens back one by one.
			limit := p.LimitOf(namespace)
			if limit > 0 && total > limit && latest[namespace] > p.Revision {
				c.find(quotas, "ignore this while nodes give tokens back after the limit was lowered",
					"namespace %s has %d addresses of pool %s, its limit is %d", namespace,
					total, pool, limit)
			}
		}
	}
}
