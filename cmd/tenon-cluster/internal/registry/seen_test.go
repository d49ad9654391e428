package registry

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/tenon-cni/tenon/internal/cluster"
)

func TestSeen(t *testing.T) {
	t.Parallel()
	header := func(etcd uint64, revision int64) *pb.ResponseHeader {
		return &pb.ResponseHeader{ClusterId: etcd, Revision: revision}
	}
	for _, row := range []struct {
		name   string
		steps  func(s *Seen)
		doubt  bool
		newest cluster.Mark
	}{
		{"answers in order", func(s *Seen) {
			s.request()(header(1, 5))
			s.request()(header(1, 5))
			s.request()(header(1, 8))
		}, false, cluster.Mark{Etcd: 1, Revision: 8}},
		{"a request that began before a newer answer", func(s *Seen) {
			slow := s.request()
			s.request()(header(1, 8))
			slow(header(1, 5))
		}, false, cluster.Mark{Etcd: 1, Revision: 8}},
		{"an older answer", func(s *Seen) {
			s.request()(header(1, 8))
			s.request()(header(1, 7))
			s.request()(header(1, 9))
		}, true, cluster.Mark{Etcd: 1, Revision: 8}},
		{"an answer older than an event", func(s *Seen) {
			s.request()(header(1, 5))
			s.event(8)
			s.request()(header(1, 7))
		}, true, cluster.Mark{Etcd: 1, Revision: 8}},
		{"an answer of another cluster", func(s *Seen) {
			s.request()(header(1, 8))
			s.request()(header(2, 9))
		}, true, cluster.Mark{Etcd: 1, Revision: 8}},
		{"an older answer than an earlier process has seen", func(s *Seen) {
			s.Reset(cluster.Mark{Etcd: 1, Revision: 8})
			s.request()(header(1, 7))
		}, true, cluster.Mark{Etcd: 1, Revision: 8}},
		{"a request from before an operator's confirmation", func(s *Seen) {
			s.request()(header(1, 8))
			slow := s.request()
			s.request()(header(1, 5))
			s.Reset(s.Latest())
			slow(header(1, 5))
			s.request()(header(1, 6))
		}, false, cluster.Mark{Etcd: 1, Revision: 6}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := new(Seen)
			row.steps(s)
			if got := s.Restored(); (got != "") != row.doubt {
				t.Errorf("evidence %q, expected %t", got, row.doubt)
			}
			if got := s.Newest(); got != row.newest {
				t.Errorf("newest state %+v, expected %+v", got, row.newest)
			}
		})
	}
}
