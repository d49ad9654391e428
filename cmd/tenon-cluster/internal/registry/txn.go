package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tenon-cni/tenon/internal/cluster"
)

// Limits of etcd's default configuration, and of the repetition of a transaction.
const (
	maxOps    = 128
	maxValue  = 1_500_000 // bytes of a request
	maxBlocks = 40        // per transaction; each needs at most three compares or operations
	page      = 500       // keys per request of a list
	attempts  = 12
	minPause  = 4 * time.Millisecond
	maxPause  = time.Second
)

// errAgain reports that a compare failed for a reason that another try can overcome.
var errAgain = errors.New("the store changed in between")

// change is a transaction.
type change struct {
	compares  []clientv3.Cmp
	then      []clientv3.Op
	otherwise []clientv3.Op // reads
	bound     bool          // of readIf: ErrForeign if the store has another nonce than Options.Store
}

// put adds the write of a document.
func (c *change) put(key string, document any, opts ...clientv3.OpOption) {
	c.then = append(c.then, clientv3.OpPut(key, encode(document), opts...))
}

// same requires that a key still has a mod revision; 0 means that it is absent.
func (c *change) same(key string, revision int64) {
	c.compares = append(c.compares, clientv3.Compare(clientv3.ModRevision(key), "=", revision))
}

// absent requires that a key does not exist.
func (c *change) absent(key string) {
	c.compares = append(c.compares, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
}

// encode writes a document. All documents can be encoded.
func encode(document any) string {
	b, err := json.Marshal(document)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// outcome is the answer to a transaction.
type outcome struct {
	held     bool                // all compares held
	revision int64               // of the store; if held, of the written keys, too
	answers  []*pb.RangeResponse // of change.then if held, otherwise of change.otherwise
}

// commit runs a transaction. The error wraps ErrUnknown if it may have committed or may still
// commit.
func (r *requests) commit(ctx context.Context, what string, c change) (o outcome, err error) {
	if err := c.check(); err != nil {
		return o, fmt.Errorf("%s: %w", what, err)
	}
	meta := clientv3.Compare(clientv3.CreateRevision(r.keys.Meta()), ">", 0)
	if r.o.Store != "" {
		meta = r.hasNonce(r.o.Store)
	}
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	reads := append([]clientv3.Op{clientv3.OpGet(r.keys.Meta())}, c.otherwise...)
	judge := r.o.Seen.request()
	answer, err := r.client.Txn(ctx).If(append([]clientv3.Cmp{meta}, c.compares...)...).
		Then(c.then...).Else(reads...).Commit()
	switch {
	case err != nil && definite(err):
		return o, fmt.Errorf("%s: %w", what, err)
	case err != nil:
		return o, fmt.Errorf("%s: %w: %w", what, ErrUnknown, err)
	}
	judge(answer.Header)
	o.held, o.revision = answer.Succeeded, answer.Header.Revision
	o.answers = ranges(answer.Responses)
	if o.held {
		return o, nil
	}
	if err := r.checkMeta(o.answers[0]); err != nil {
		return o, fmt.Errorf("%s: %w", what, err)
	}
	o.answers = o.answers[1:]
	return o, nil
}

// write is commit for a transaction without reads. It returns errAgain if a compare fails.
func (r *requests) write(ctx context.Context, what string, c change) (revision int64, err error) {
	o, err := r.commit(ctx, what, c)
	if err == nil && !o.held {
		err = errAgain
	}
	return o.revision, err
}

// check refuses a transaction that etcd would refuse.
func (c *change) check() error {
	if n := max(len(c.compares)+1, len(c.then), len(c.otherwise)+1); n > maxOps {
		return fmt.Errorf("the transaction has %d operations, more than %d", n, maxOps)
	}
	size := 0
	for _, op := range c.then {
		size += len(op.KeyBytes()) + len(op.ValueBytes())
	}
	if size > maxValue {
		return fmt.Errorf("the transaction has %d bytes, more than %d", size, maxValue)
	}
	return nil
}

// definite reports that etcd has refused a request, so that it never takes effect.
func definite(err error) bool {
	refusals := []codes.Code{
		codes.InvalidArgument, codes.OutOfRange, codes.NotFound, codes.PermissionDenied,
		codes.Unauthenticated, codes.Unimplemented,
	}
	if known := (rpctypes.EtcdError{}); errors.As(err, &known) {
		return slices.Contains(append(refusals, codes.ResourceExhausted), known.Code())
	}
	s, ok := status.FromError(err)
	return ok && slices.Contains(refusals, s.Code())
}

// read reads keys with one linearizable transaction.
func (r *requests) read(
	ctx context.Context, what string, ops ...clientv3.Op,
) ([]*pb.RangeResponse, error) {
	return r.readIf(ctx, what, change{then: ops})
}

// readIf runs reads under compares. It returns errAgain if a compare fails.
func (r *requests) readIf(ctx context.Context, what string, c change) ([]*pb.RangeResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	bound := c.bound && r.o.Store != ""
	if bound {
		c.compares = append(slices.Clip(c.compares), r.hasNonce(r.o.Store))
		c.otherwise = []clientv3.Op{clientv3.OpGet(r.keys.Meta())}
	}
	judge := r.o.Seen.request()
	answer, err := r.client.Txn(ctx).If(c.compares...).Then(c.then...).Else(c.otherwise...).Commit()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	judge(answer.Header)
	answers := ranges(answer.Responses)
	switch {
	case answer.Succeeded:
		return answers, nil
	case bound:
		if err := r.checkMeta(answers[0]); err != nil {
			return nil, fmt.Errorf("read %s: %w", what, err)
		}
	}
	return nil, errAgain
}

// ranges returns the answers to reads.
func ranges(responses []*pb.ResponseOp) []*pb.RangeResponse {
	answers := make([]*pb.RangeResponse, len(responses))
	for i, one := range responses {
		answers[i] = one.GetResponseRange()
	}
	return answers
}

// list reads all keys with a prefix at one revision, in pages. If a compaction overtakes it, it
// begins again.
func (r *requests) list(
	ctx context.Context, prefix string, opts ...clientv3.OpOption,
) (kvs []*mvccpb.KeyValue, revision int64, err error) {
	for range attempts {
		kvs = nil
		revision, err = r.pages(ctx, prefix, 0, func(page []*mvccpb.KeyValue) bool {
			kvs = append(kvs, page...)
			return true
		}, opts...)
		if !errors.Is(err, rpctypes.ErrCompacted) {
			break
		}
	}
	return kvs, revision, err
}

// pages yields the keys with a prefix at a revision, the present one if it is 0, until yield
// returns false. It returns the revision.
func (r *requests) pages(
	ctx context.Context, prefix string, revision int64,
	yield func(page []*mvccpb.KeyValue) bool, opts ...clientv3.OpOption,
) (int64, error) {
	for from := prefix; ; {
		answer, err := r.get(ctx, from, append([]clientv3.OpOption{
			clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(page),
			clientv3.WithRev(revision),
		}, opts...)...)
		if err != nil {
			return revision, fmt.Errorf("list %s: %w", prefix, err)
		}
		if revision == 0 {
			revision = answer.Header.Revision
		}
		if !yield(answer.Kvs) || !answer.More {
			return revision, nil
		}
		from = string(answer.Kvs[len(answer.Kvs)-1].Key) + "\x00"
	}
}

func (r *requests) get(
	ctx context.Context, key string, opts ...clientv3.OpOption,
) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	judge := r.o.Seen.request()
	answer, err := r.client.Get(ctx, key, opts...)
	if err == nil {
		judge(answer.Header)
	}
	return answer, err
}

// repeat calls try until it succeeds, or fails for a reason that another try does not change.
// Each try reads what it compares, and recognizes by nonces what an earlier one has committed.
// unknown reports that a transaction of an earlier try may have committed, or may still commit.
func (r *requests) repeat(
	ctx context.Context, try func(context.Context) error,
) (unknown bool, err error) {
	for attempt := range attempts {
		err = try(ctx)
		switch {
		case err == nil:
			return unknown, nil
		case errors.Is(err, ErrUnknown):
			unknown = true
		case errors.Is(err, errAgain):
		case !unknown || decided(err):
			return unknown, err
		}
		if pause(ctx, attempt) != nil {
			break
		}
	}
	switch {
	case !unknown && errors.Is(err, errAgain):
		err = fmt.Errorf("%w: %w", ErrConflict, err)
	case unknown && !errors.Is(err, ErrUnknown):
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return unknown, err
}

// decided reports that an error is an answer of the store.
func decided(err error) bool {
	return definite(err) || slices.ContainsFunc([]error{
		ErrConflict, ErrIdentity, ErrFenced, ErrSuspect, ErrLease, ErrFull, ErrNotFound, ErrForeign,
		ErrQuota, ErrInUse, ErrRefused,
	}, func(known error) bool { return errors.Is(err, known) })
}

// gain is repeat for a transaction that gives a node something. If it fails although an attempt
// of it may still commit, gain excludes that: every such transaction compares the node's
// document.
func (r *requests) gain(ctx context.Context, node string, try func(context.Context) error) error {
	unknown, err := r.repeat(ctx, try)
	if err == nil || !unknown || errors.Is(err, ErrUnknown) {
		return err
	}
	_, _, e := Blocks{r}.Exclude(ctx, Node{Node: cluster.Node{Name: node}}, "")
	if e != nil && !errors.Is(e, ErrNotFound) {
		return fmt.Errorf("%w: %w, and %w", ErrUnknown, err, e)
	}
	return err
}

// pause waits with full jitter.
func pause(ctx context.Context, attempt int) error {
	limit := min(minPause<<attempt, maxPause)
	t := time.NewTimer(rand.N(limit))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// lease grants a lease of at least d.
func (r *requests) lease(ctx context.Context, d time.Duration) (clientv3.LeaseID, error) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	answer, err := r.client.Grant(ctx, int64((d+time.Second-1)/time.Second))
	if err != nil {
		return 0, fmt.Errorf("grant a lease: %w", err)
	}
	return answer.ID, nil
}

// revoke ends a lease that no key uses. It is a courtesy: the lease ends by itself.
func (r *requests) revoke(ctx context.Context, id clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.o.Timeout)
	defer cancel()
	_, _ = r.client.Revoke(ctx, id)
}
