package agent_test

import (
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/test/memkv"
)

// This file has what decision 0020 does not tolerate, and what it demands of operators. A simulation
// does nothing that these rules forbid.

// leaseTime is the lease of all agents of the simulation, and rivalTime the time after which two
// processes with one identity have found each other, if both reach the store.
const (
	leaseTime = 30 * time.Second
	rivalTime = 40 * time.Second
)

// witnesses returns the hosts with an agent that has changed its own document in the transactions
// that a restore of the backup loses, or that has evidence of an earlier restore on its disk. One of
// them must look at the store twice in the next lease time.
func (s *simulation) witnesses(b *memkv.Backup) (all []*host) {
	for _, h := range s.hosts {
		verdict := h.running && !h.alive() // another process with the identity may end this one, too
		if h.gone || h.copied || h.files == nil || verdict || s.pairOf(h) != nil || !h.undamaged() {
			continue
		}
		doc, err := h.files.Node()
		if err == nil && (doc.Restored != "" || doc.Revision > b.Revision()) {
			all = append(all, h)
		}
	}
	return all
}

// undamaged reports whether the directory is the one with which the agent has started.
func (h *host) undamaged() bool {
	doc, err := h.files.Node()
	return err == nil && h.files.CheckPlace(doc.Place) == nil
}

// pair is a node and a copy of it that nothing in its files shows to be one.
type pair struct {
	original, copied *host
	// doubled means that both may allocate from the same blocks: after a copy with the memory, and
	// after each restore while both exist, until both have replaced and compared their proofs.
	doubled bool
	// restored means that the store was restored while both existed.
	restored bool
	since    time.Time // of doubled, or of the last disturbance of either process
	ran      map[*host]bool
}

// pairOf returns the pair of a host, or nil.
func (s *simulation) pairOf(h *host) *pair {
	i := slices.IndexFunc(s.pairs, func(p *pair) bool { return p.original == h || p.copied == h })
	if i < 0 {
		return nil
	}
	return s.pairs[i]
}

// double begins the time in which the two may not know each other.
func (p *pair) double() {
	p.doubled, p.since = true, time.Now()
	p.ran = map[*host]bool{p.original: p.original.alive(), p.copied: p.copied.alive()}
}

// disturbed begins the time again if the process of a host was started or ended, or its connection
// changed.
func (s *simulation) disturbed(h *host) {
	p := s.pairOf(h)
	switch {
	case p == nil:
	case p.doubled:
		p.since = time.Now()
		p.ran[h] = p.ran[h] || h.alive()
	case p.restored && h.alive():
		ran := h
		p.double()
		p.ran[ran] = true
	}
}

// update ends the time in which the two may not know each other: both have run since it began, with
// contact or until they ended because of the other.
func (p *pair) update() {
	for _, h := range []*host{p.original, p.copied} {
		judged := h.running && (!h.alive() || h.healthy())
		if !h.off && !(p.ran[h] && judged) {
			return
		}
	}
	if time.Since(p.since) >= rivalTime {
		p.doubled = false
	}
}

// mayAdd reports whether the addresses that a host gives out now have to be unique.
func (s *simulation) mayAdd(h *host) bool {
	p := s.pairOf(h)
	return !h.off && !h.gone && (p == nil || !p.doubled)
}
