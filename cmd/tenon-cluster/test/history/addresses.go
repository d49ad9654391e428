package history

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Addresses is the merged history of the allocations and releases of all nodes. It orders them by
// their number, because many happen at one instant of virtual time.
type Addresses struct {
	mu    sync.Mutex
	calls int // of Allocated, Releasing and Died
	spans []*span
	live  map[Attachment][]*span
	start time.Time
}

// Attachment is an interface of a container on a node.
type Attachment struct{ Node, Container string }

// span is the time in which an attachment surely uses an address: from the end of its allocation to
// the beginning of its release.
type span struct {
	addr     netip.Addr
	who      Attachment
	from, to int           // numbers of calls; to is 0 while it uses the address
	since    time.Duration // for messages
}

// NewAddresses returns an empty history. In a bubble of testing/synctest its clock is the virtual
// one.
func NewAddresses() *Addresses {
	return &Addresses{live: map[Attachment][]*span{}, start: time.Now()}
}

// Allocated records that an attachment has got an address. Call it when the allocation has
// returned.
func (h *Addresses) Allocated(who Attachment, a netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	s := &span{addr: a, who: who, from: h.calls, since: time.Since(h.start)}
	h.spans, h.live[who] = append(h.spans, s), append(h.live[who], s)
}

// Releasing records that an attachment no longer uses its addresses. Call it before the release.
func (h *Addresses) Releasing(who Attachment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	h.end(who)
}

func (h *Addresses) end(who Attachment) {
	for _, s := range h.live[who] {
		s.to = h.calls
	}
	delete(h.live, who)
}

// Died records that all attachments of a node have ended: it is off.
func (h *Addresses) Died(node string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	for who := range h.live {
		if who.Node == node {
			h.end(who)
		}
	}
}

// Live returns the attachments that use addresses.
func (h *Addresses) Live() map[Attachment][]netip.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[Attachment][]netip.Addr{}
	for who, spans := range h.live {
		for _, s := range spans {
			all[who] = append(all[who], s.addr)
		}
	}
	return all
}

// Len returns the number of allocations.
func (h *Addresses) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.spans)
}

// Check returns a text for each pair of attachments that used one address at the same time.
func (h *Addresses) Check() (wrong []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.Clone(h.spans)
	slices.SortStableFunc(all, func(a, b *span) int {
		return cmp.Or(a.addr.Compare(b.addr), cmp.Compare(a.from, b.from))
	})
	var holder *span // of the same address, the one that ends last
	for _, s := range all {
		if holder != nil && holder.addr == s.addr && (holder.to == 0 || s.from < holder.to) {
			wrong = append(wrong, fmt.Sprintf("%s: %v since %v, and %v since %v", s.addr,
				holder.who, holder.since, s.who, s.since))
		}
		if holder == nil || holder.addr != s.addr ||
			holder.to != 0 && (s.to == 0 || s.to > holder.to) {
			holder = s
		}
	}
	return wrong
}
