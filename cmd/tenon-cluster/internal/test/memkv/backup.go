package memkv

import (
	"maps"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Backup is a copy of a store, like a snapshot of etcd.
type Backup struct {
	revision, compacted int64
	keys                []string
	versions            map[string][]version
	log                 []event
	leases              map[int64]time.Duration
	leased              map[int64]map[string]struct{}
}

// Revision returns the revision of the backup.
func (b *Backup) Revision() int64 { return b.revision }

// Backup returns a copy of the store.
func (s *Store) Backup() *Backup {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &Backup{
		revision: s.revision, compacted: s.compacted, keys: slices.Clone(s.keys),
		versions: map[string][]version{}, log: slices.Clone(s.log),
		leases: map[int64]time.Duration{}, leased: map[int64]map[string]struct{}{},
	}
	for key, versions := range s.versions {
		b.versions[key] = slices.Clone(versions)
	}
	for id, l := range s.leases {
		b.leases[id], b.leased[id] = l.ttl, maps.Clone(l.keys)
	}
	return b
}

// Restore replaces the store by a backup. Revisions go back; leases begin again; watches break.
// Requests that wait for Deliver are lost with their connections.
func (s *Store) Restore(b *Backup) {
	s.mu.Lock()
	s.late = nil
	for _, l := range s.leases {
		l.timer.Stop()
	}
	s.revision, s.compacted, s.keys = b.revision, b.compacted, slices.Clone(b.keys)
	s.versions, s.log = map[string][]version{}, slices.Clone(b.log)
	for key, versions := range b.versions {
		s.versions[key] = slices.Clone(versions)
	}
	s.leases = map[int64]*lease{}
	for id, ttl := range b.leases {
		l := &lease{ttl: ttl, ends: time.Now().Add(ttl), keys: maps.Clone(b.leased[id])}
		l.timer = time.AfterFunc(ttl, func() { _ = s.end(id, l) })
		s.leases[id] = l
	}
	s.mu.Unlock()
	s.breakWatches(nil, rpctypes.ErrGRPCStopped)
}
