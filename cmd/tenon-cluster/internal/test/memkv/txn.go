package memkv

import (
	"bytes"
	"cmp"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// txn runs a transaction.
func (s *Store) txn(r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := checkTxn(r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	holds := !slices.ContainsFunc(r.Compare, func(c *pb.Compare) bool { return !s.holds(c) })
	ops := r.Failure
	if holds {
		ops = r.Success
	}
	if err := s.checkLeases(ops); err != nil {
		return nil, err
	}
	next, first := s.revision+1, len(s.log)
	answer := &pb.TxnResponse{Succeeded: holds}
	for _, op := range ops {
		one, err := s.apply(op, next, len(s.log) > first)
		if err != nil {
			return nil, err
		}
		answer.Responses = append(answer.Responses, one)
	}
	if len(s.log) > first {
		s.commit(next, first)
	}
	answer.Header = s.header()
	return answer, nil
}

// apply runs one operation. wrote reports that an earlier one of the transaction made a revision.
func (s *Store) apply(op *pb.RequestOp, next int64, wrote bool) (*pb.ResponseOp, error) {
	switch {
	case op.GetRequestPut() != nil:
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{
			ResponsePut: s.put(op.GetRequestPut(), next)}}, nil
	case op.GetRequestDeleteRange() != nil:
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{
			ResponseDeleteRange: s.remove(op.GetRequestDeleteRange(), next)}}, nil
	}
	present := s.revision
	if wrote {
		present = next
	}
	answer, err := s.read(op.GetRequestRange(), present)
	return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: answer}}, err
}

// checkLeases refuses a transaction that attaches a key to an unknown lease, and one that reads
// at a revision that is not available, before anything changes.
func (s *Store) checkLeases(ops []*pb.RequestOp) error {
	for _, op := range ops {
		if put := op.GetRequestPut(); put != nil && put.Lease != 0 && s.leases[put.Lease] == nil {
			return rpctypes.ErrGRPCLeaseNotFound
		}
		if get := op.GetRequestRange(); get != nil {
			if get.Revision > s.revision {
				return rpctypes.ErrGRPCFutureRev
			}
			if get.Revision > 0 && get.Revision < s.compacted {
				return rpctypes.ErrGRPCCompacted
			}
		}
		if put := op.GetRequestPut(); put != nil && (put.IgnoreValue || put.IgnoreLease) &&
			s.at(string(put.Key), s.revision) == nil {
			return rpctypes.ErrGRPCKeyNotFound
		}
	}
	return nil
}

// holds reports whether a compare holds for every key of its range. An absent key has revisions,
// version and lease 0, and no value.
func (s *Store) holds(c *pb.Compare) bool {
	empty, all := true, true
	s.scan(interval{string(c.Key), string(c.RangeEnd)}, s.revision, func(kv *mvccpb.KeyValue) {
		empty, all = false, all && holdsFor(c, kv)
	})
	if empty {
		return c.Target != pb.Compare_VALUE && holdsFor(c, &mvccpb.KeyValue{})
	}
	return all
}

func holdsFor(c *pb.Compare, kv *mvccpb.KeyValue) bool {
	var order int
	switch c.Target {
	case pb.Compare_VALUE:
		order = bytes.Compare(kv.Value, c.GetValue())
	case pb.Compare_CREATE:
		order = cmp.Compare(kv.CreateRevision, c.GetCreateRevision())
	case pb.Compare_MOD:
		order = cmp.Compare(kv.ModRevision, c.GetModRevision())
	case pb.Compare_VERSION:
		order = cmp.Compare(kv.Version, c.GetVersion())
	case pb.Compare_LEASE:
		order = cmp.Compare(kv.Lease, c.GetLease())
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return order == 0
	case pb.Compare_NOT_EQUAL:
		return order != 0
	case pb.Compare_GREATER:
		return order > 0
	default:
		return order < 0
	}
}

// checkTxn checks a transaction as etcd does before it looks at the store.
func checkTxn(r *pb.TxnRequest) error {
	if max(len(r.Compare), len(r.Success), len(r.Failure)) > maxOps {
		return rpctypes.ErrGRPCTooManyOps
	}
	if proto.Size(r) > maxBytes {
		return rpctypes.ErrGRPCRequestTooLarge
	}
	if slices.ContainsFunc(r.Compare, func(c *pb.Compare) bool { return len(c.Key) == 0 }) {
		return rpctypes.ErrGRPCEmptyKey
	}
	for _, branch := range [][]*pb.RequestOp{r.Success, r.Failure} {
		if err := checkOps(branch); err != nil {
			return err
		}
	}
	return nil
}

// checkOps refuses two puts to a key, and a put to a key that the same branch deletes.
func checkOps(ops []*pb.RequestOp) error {
	puts := map[string]bool{}
	var deletes []interval
	for _, op := range ops {
		switch {
		case op.GetRequestTxn() != nil:
			return status.Error(codes.Unimplemented, "memkv: nested transactions")
		case op.GetRequestPut() != nil:
			key := string(op.GetRequestPut().Key)
			if key == "" {
				return rpctypes.ErrGRPCEmptyKey
			}
			if puts[key] {
				return rpctypes.ErrGRPCDuplicateKey
			}
			puts[key] = true
		case op.GetRequestDeleteRange() != nil:
			d := op.GetRequestDeleteRange()
			deletes = append(deletes, interval{string(d.Key), string(d.RangeEnd)})
		}
	}
	for _, d := range deletes {
		for key := range puts {
			if d.contains(key) {
				return rpctypes.ErrGRPCDuplicateKey
			}
		}
	}
	return nil
}

// one runs a single operation as a transaction.
func (s *Store) one(op *pb.RequestOp) (*pb.ResponseOp, error) {
	answer, err := s.txn(&pb.TxnRequest{Success: []*pb.RequestOp{op}})
	if err != nil {
		return nil, err
	}
	first := answer.Responses[0]
	switch {
	case first.GetResponsePut() != nil:
		first.GetResponsePut().Header = answer.Header
	case first.GetResponseDeleteRange() != nil:
		first.GetResponseDeleteRange().Header = answer.Header
	}
	return first, nil
}
