// Package memkv is an in-memory store with the semantics of etcd: revisions, transactions,
// leases, watches and compaction. Its clients implement the interfaces KV, Lease and Watcher of
// clientv3. Only simulations and tests use it: all time comes from package time, so that a
// testing/synctest bubble has virtual time, and a client can fail, delay or lose each call.
//
// It has no members, no authentication, no nested transactions and no streamed ranges.
package memkv

import (
	"bytes"
	"cmp"
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Limits of etcd's default configuration.
const (
	maxOps   = 128     // operations per branch, and compares, of a transaction
	maxBytes = 3 << 19 // of a request: 1.5 MiB
)

// Store is the store. Use [New].
type Store struct {
	mu        sync.Mutex
	revision  int64
	compacted int64
	keys      []string // sorted; each has at least one version
	versions  map[string][]version
	log       []event // all events after the compacted revision, oldest first
	leases    map[int64]*lease
	lastLease int64
	watches   map[interval]map[*watch]struct{}
	late      []func() // requests that a fault has delayed until Deliver
}

// version is the value of a key from a revision on; kv is nil after a deletion.
type version struct {
	revision int64
	kv       *mvccpb.KeyValue
}

type event struct {
	revision int64
	kv       *mvccpb.KeyValue // of a deletion: key and revision only
	previous *mvccpb.KeyValue
	deleted  bool
}

// interval is a key, or the keys from key to end. The end "\x00" means all following keys.
type interval struct{ key, end string }

func (i interval) contains(key string) bool {
	switch i.end {
	case "":
		return key == i.key
	case "\x00":
		return key >= i.key
	}
	return i.key <= key && key < i.end
}

// New returns an empty store at revision 1.
func New() *Store {
	return &Store{
		revision: 1,
		versions: map[string][]version{},
		leases:   map[int64]*lease{},
		watches:  map[interval]map[*watch]struct{}{},
	}
}

// Size returns the bytes of the present keys and values, and the bytes with all earlier versions.
func (s *Store) Size() (present, history int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, versions := range s.versions {
		for i, v := range versions {
			if v.kv == nil {
				continue
			}
			size := int64(len(key) + len(v.kv.Value))
			history += size
			if i == len(versions)-1 {
				present += size
			}
		}
	}
	return present, history
}

// at returns the value of a key at a revision, or nil.
func (s *Store) at(key string, revision int64) *mvccpb.KeyValue {
	versions := s.versions[key]
	for i := len(versions) - 1; i >= 0; i-- {
		if versions[i].revision <= revision {
			return versions[i].kv
		}
	}
	return nil
}

// scan yields the values in an interval at a revision, in the order of the keys.
func (s *Store) scan(i interval, revision int64, yield func(*mvccpb.KeyValue)) {
	first, _ := slices.BinarySearch(s.keys, i.key)
	for _, key := range s.keys[first:] {
		if !i.contains(key) {
			return
		}
		if kv := s.at(key, revision); kv != nil {
			yield(kv)
		}
	}
}

// set writes a new version of a key at a revision.
func (s *Store) set(key string, revision int64, kv *mvccpb.KeyValue) {
	if at, found := slices.BinarySearch(s.keys, key); !found {
		s.keys = slices.Insert(s.keys, at, key)
	}
	e := event{revision: revision, kv: kv, previous: s.at(key, revision)}
	if kv == nil {
		e.deleted = true
		e.kv = &mvccpb.KeyValue{Key: []byte(key), ModRevision: revision}
	}
	s.log = append(s.log, e)
	s.versions[key] = append(s.versions[key], version{revision, kv})
}

// put writes a value and moves the key to its lease.
func (s *Store) put(r *pb.PutRequest, revision int64) *pb.PutResponse {
	key := string(r.Key)
	old := s.at(key, revision)
	kv := &mvccpb.KeyValue{
		Key: r.Key, Value: r.Value, Lease: r.Lease,
		CreateRevision: revision, ModRevision: revision, Version: 1,
	}
	if old != nil {
		kv.CreateRevision, kv.Version = old.CreateRevision, old.Version+1
		if r.IgnoreValue {
			kv.Value = old.Value
		}
		if r.IgnoreLease {
			kv.Lease = old.Lease
		}
		s.detach(old)
	}
	if l := s.leases[kv.Lease]; l != nil {
		l.keys[key] = struct{}{}
	}
	s.set(key, revision, kv)
	answer := &pb.PutResponse{Header: s.header()}
	if r.PrevKv {
		answer.PrevKv = old
	}
	return answer
}

func (s *Store) detach(kv *mvccpb.KeyValue) {
	if l := s.leases[kv.Lease]; l != nil {
		delete(l.keys, string(kv.Key))
	}
}

// remove deletes the keys of an interval.
func (s *Store) remove(r *pb.DeleteRangeRequest, revision int64) *pb.DeleteRangeResponse {
	var old []*mvccpb.KeyValue
	s.scan(interval{string(r.Key), string(r.RangeEnd)}, revision, func(kv *mvccpb.KeyValue) {
		old = append(old, kv)
	})
	for _, kv := range old {
		s.detach(kv)
		s.set(string(kv.Key), revision, nil)
	}
	answer := &pb.DeleteRangeResponse{Header: s.header(), Deleted: int64(len(old))}
	if r.PrevKv {
		answer.PrevKvs = old
	}
	return answer
}

// read answers a range request; present is the revision that a request without one means.
func (s *Store) read(r *pb.RangeRequest, present int64) (*pb.RangeResponse, error) {
	revision := r.Revision
	switch {
	case revision > present:
		return nil, rpctypes.ErrGRPCFutureRev
	case revision > 0 && revision < s.compacted:
		return nil, rpctypes.ErrGRPCCompacted
	case revision <= 0:
		revision = present
	}
	var kvs []*mvccpb.KeyValue
	s.scan(interval{string(r.Key), string(r.RangeEnd)}, revision, func(kv *mvccpb.KeyValue) {
		kvs = append(kvs, kv)
	})
	answer := &pb.RangeResponse{Header: s.header(), Count: int64(len(kvs))}
	if r.CountOnly {
		return answer, nil
	}
	kvs = slices.DeleteFunc(kvs, func(kv *mvccpb.KeyValue) bool {
		return r.MinModRevision > 0 && kv.ModRevision < r.MinModRevision ||
			r.MaxModRevision > 0 && kv.ModRevision > r.MaxModRevision ||
			r.MinCreateRevision > 0 && kv.CreateRevision < r.MinCreateRevision ||
			r.MaxCreateRevision > 0 && kv.CreateRevision > r.MaxCreateRevision
	})
	sorted(kvs, r)
	if r.Limit > 0 && int64(len(kvs)) > r.Limit {
		kvs, answer.More = kvs[:r.Limit], true
	}
	for _, kv := range kvs {
		if r.KeysOnly {
			kv = &mvccpb.KeyValue{
				Key: kv.Key, CreateRevision: kv.CreateRevision,
				ModRevision: kv.ModRevision, Version: kv.Version, Lease: kv.Lease,
			}
		}
		answer.Kvs = append(answer.Kvs, kv)
	}
	return answer, nil
}

func sorted(kvs []*mvccpb.KeyValue, r *pb.RangeRequest) {
	if r.SortOrder == pb.RangeRequest_NONE && r.SortTarget == pb.RangeRequest_KEY {
		return
	}
	slices.SortStableFunc(kvs, func(a, b *mvccpb.KeyValue) (order int) {
		switch r.SortTarget {
		case pb.RangeRequest_VERSION:
			order = cmp.Compare(a.Version, b.Version)
		case pb.RangeRequest_CREATE:
			order = cmp.Compare(a.CreateRevision, b.CreateRevision)
		case pb.RangeRequest_MOD:
			order = cmp.Compare(a.ModRevision, b.ModRevision)
		case pb.RangeRequest_VALUE:
			order = bytes.Compare(a.Value, b.Value)
		default:
			order = bytes.Compare(a.Key, b.Key)
		}
		if r.SortOrder == pb.RangeRequest_DESCEND {
			return -order
		}
		return order
	})
}

func (s *Store) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: 1, MemberId: 1, RaftTerm: 1, Revision: s.revision}
}

// commit makes the events of a new revision visible to the watches.
func (s *Store) commit(revision int64, firstEvent int) {
	s.revision = revision
	for i, watches := range s.watches {
		changed := slices.ContainsFunc(s.log[firstEvent:], func(e event) bool {
			return i.contains(string(e.kv.Key))
		})
		if !changed {
			continue
		}
		for w := range watches {
			w.wake()
		}
	}
}

// Compact forgets the history before a revision, like automatic compaction.
func (s *Store) Compact(revision int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.compact(revision)
}

// Revision returns the present revision.
func (s *Store) Revision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

func (s *Store) compact(revision int64) error {
	switch {
	case revision <= s.compacted:
		return rpctypes.ErrGRPCCompacted
	case revision > s.revision:
		return rpctypes.ErrGRPCFutureRev
	}
	s.compacted = revision
	s.keys = slices.DeleteFunc(s.keys, func(key string) bool {
		versions := s.versions[key]
		keep := 0 // the version at the compacted revision is still readable
		for i, v := range versions {
			if v.revision <= revision {
				keep = i
			}
		}
		if v := versions[keep]; v.kv == nil && v.revision <= revision {
			keep++
		}
		if keep == len(versions) {
			delete(s.versions, key)
			return true
		}
		s.versions[key] = slices.Clone(versions[keep:])
		return false
	})
	at, _ := slices.BinarySearchFunc(s.log, revision, func(e event, r int64) int {
		return cmp.Compare(e.revision, r)
	})
	s.log = slices.Clone(s.log[at:])
	for _, watches := range s.watches {
		for w := range watches {
			w.wake()
		}
	}
	return nil
}
