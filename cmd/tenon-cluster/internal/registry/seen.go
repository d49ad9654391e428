package registry

import (
	"fmt"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/tenon-cni/tenon/internal/cluster"
)

// Seen is the newest state of the store that a program has seen. All requests of the program are
// linearizable, so that an answer that is older than the newest state at the start of its request
// shows that the store was restored from a snapshot. Seen keeps this evidence until Reset.
//
// The zero Seen has seen nothing. It is safe for concurrent use.
type Seen struct {
	mu     sync.Mutex
	past   *past
	latest cluster.Mark // of the last answer, also of a restored store
}

// past is what was seen since the last Reset.
type past struct {
	newest   cluster.Mark
	restored string // the first evidence that the store was restored
}

// Reset makes mark the newest state. It forgets the evidence, and ignores the answers to requests
// that have begun before.
func (s *Seen) Reset(mark cluster.Mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.past = &past{newest: mark}
}

// Newest returns the newest state.
func (s *Seen) Newest() cluster.Mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.present().newest
}

// Latest returns the state of the last answer.
func (s *Seen) Latest() cluster.Mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest
}

// Restored returns the evidence that the store was restored, or "".
func (s *Seen) Restored() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.present().restored
}

// Doubt records evidence that the store was restored.
func (s *Seen) Doubt(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.present().doubt(format, args...)
}

// request returns a function that judges the answer to a request that begins now. s may be nil.
func (s *Seen) request() func(*pb.ResponseHeader) {
	if s == nil {
		return func(*pb.ResponseHeader) {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.present()
	before := p.newest
	return func(h *pb.ResponseHeader) {
		s.mu.Lock()
		defer s.mu.Unlock()
		answer := cluster.Mark{Etcd: h.GetClusterId(), Revision: h.GetRevision()}
		s.latest = answer
		switch {
		case before.Etcd != 0 && before.Etcd != answer.Etcd:
			p.doubt("the ID of etcd's cluster was %x and is %x", before.Etcd, answer.Etcd)
		case answer.Revision < before.Revision:
			p.doubt("the revision of the store was %d and is %d", before.Revision, answer.Revision)
		}
		p.note(answer)
	}
}

// event records the revision of an event of a watch. The events of a watch may be older than the
// newest answer.
func (s *Seen) event(revision int64) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.present()
	p.note(cluster.Mark{Etcd: p.newest.Etcd, Revision: revision})
}

func (s *Seen) present() *past {
	if s.past == nil {
		s.past = new(past)
	}
	return s.past
}

// note records a state, unless the store is restored: its revisions then mean nothing.
func (p *past) note(m cluster.Mark) {
	if p.restored == "" {
		p.newest = cluster.Mark{Etcd: m.Etcd, Revision: max(m.Revision, p.newest.Revision)}
	}
}

func (p *past) doubt(format string, args ...any) {
	if p.restored == "" {
		p.restored = fmt.Sprintf(format, args...)
	}
}
