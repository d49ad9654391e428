package memkv

import (
	"context"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// minTTL is the shortest lease that etcd grants with its default election timeout.
const minTTL = 2 * time.Second

type lease struct {
	ttl   time.Duration
	ends  time.Time
	timer *time.Timer
	keys  map[string]struct{}
}

// maxTTL is the longest lease of etcd, in seconds.
const maxTTL = 9_000_000_000

func (s *Store) grant(seconds int64) (id int64, ttl time.Duration, err error) {
	if seconds > maxTTL {
		return 0, 0, rpctypes.ErrGRPCLeaseTTLTooLarge
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastLease++
	id = 1<<40 + s.lastLease
	ttl = max(time.Duration(seconds)*time.Second, minTTL)
	l := &lease{ttl: ttl, ends: time.Now().Add(ttl), keys: map[string]struct{}{}}
	l.timer = time.AfterFunc(ttl, func() { _ = s.end(id, l) })
	s.leases[id] = l
	return id, ttl, nil
}

// end ends a lease and deletes its keys in one revision. If only is set, the lease must be that
// one.
func (s *Store) end(id int64, only *lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[id]
	switch {
	case l == nil || only != nil && l != only:
		return rpctypes.ErrGRPCLeaseNotFound
	case only != nil && time.Now().Before(l.ends): // a renewal raced with the timer
		return nil
	}
	s.endLocked(id, l)
	return nil
}

func (s *Store) endLocked(id int64, l *lease) {
	l.timer.Stop()
	next, first := s.revision+1, len(s.log)
	keys := make([]string, 0, len(l.keys))
	for key := range l.keys {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	delete(s.leases, id)
	for _, key := range keys {
		s.set(key, next, nil)
	}
	if len(keys) > 0 {
		s.commit(next, first)
	}
}

// ExpireKey ends the lease of a key at once, as a wrong revocation does. It reports whether the
// key has a lease.
func (s *Store) ExpireKey(key string) bool {
	s.mu.Lock()
	kv := s.at(key, s.revision)
	s.mu.Unlock()
	return kv != nil && kv.Lease != 0 && s.end(kv.Lease, nil) == nil
}

func (s *Store) renew(id int64) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[id]
	if l == nil {
		return 0, rpctypes.ErrLeaseNotFound
	}
	l.ends = time.Now().Add(l.ttl)
	l.timer.Reset(l.ttl)
	return l.ttl, nil
}

// Grant implements [clientv3.Lease].
func (c *Client) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	call := Call{Method: "Grant", Write: true}
	return do(ctx, c, call, func() (*clientv3.LeaseGrantResponse, error) {
		id, granted, err := c.store.grant(ttl)
		if err != nil {
			return nil, err
		}
		return &clientv3.LeaseGrantResponse{
			ResponseHeader: c.store.newHeader(), ID: clientv3.LeaseID(id),
			TTL: int64(granted / time.Second),
		}, nil
	})
}

// Revoke implements [clientv3.Lease].
func (c *Client) Revoke(
	ctx context.Context, id clientv3.LeaseID,
) (*clientv3.LeaseRevokeResponse, error) {
	call := Call{Method: "Revoke", Write: true}
	return do(ctx, c, call, func() (*clientv3.LeaseRevokeResponse, error) {
		if err := c.store.end(int64(id), nil); err != nil {
			return nil, err
		}
		return (*clientv3.LeaseRevokeResponse)(&pb.LeaseRevokeResponse{Header: c.store.newHeader()}), nil
	})
}

// TimeToLive implements [clientv3.Lease]. It always returns the keys.
func (c *Client) TimeToLive(
	ctx context.Context, id clientv3.LeaseID, _ ...clientv3.LeaseOption,
) (*clientv3.LeaseTimeToLiveResponse, error) {
	call := Call{Method: "TimeToLive"}
	return do(ctx, c, call, func() (*clientv3.LeaseTimeToLiveResponse, error) {
		c.store.mu.Lock()
		defer c.store.mu.Unlock()
		answer := &clientv3.LeaseTimeToLiveResponse{
			ResponseHeader: c.store.header(), ID: id, TTL: -1,
		}
		if l := c.store.leases[int64(id)]; l != nil {
			answer.TTL = int64(time.Until(l.ends) / time.Second)
			answer.GrantedTTL = int64(l.ttl / time.Second)
			for key := range l.keys {
				answer.Keys = append(answer.Keys, []byte(key))
			}
		}
		return answer, nil
	})
}

// Leases implements [clientv3.Lease].
func (c *Client) Leases(ctx context.Context) (*clientv3.LeaseLeasesResponse, error) {
	call := Call{Method: "Leases"}
	return do(ctx, c, call, func() (*clientv3.LeaseLeasesResponse, error) {
		c.store.mu.Lock()
		defer c.store.mu.Unlock()
		answer := &clientv3.LeaseLeasesResponse{ResponseHeader: c.store.header()}
		for id := range c.store.leases {
			answer.Leases = append(answer.Leases, clientv3.LeaseStatus{ID: clientv3.LeaseID(id)})
		}
		return answer, nil
	})
}

// KeepAliveOnce implements [clientv3.Lease].
func (c *Client) KeepAliveOnce(
	ctx context.Context, id clientv3.LeaseID,
) (*clientv3.LeaseKeepAliveResponse, error) {
	call := Call{Method: "KeepAliveOnce"}
	return do(ctx, c, call, func() (*clientv3.LeaseKeepAliveResponse, error) {
		ttl, err := c.store.renew(int64(id))
		if err != nil {
			return nil, err
		}
		return &clientv3.LeaseKeepAliveResponse{
			ResponseHeader: c.store.newHeader(), ID: id, TTL: int64(ttl / time.Second),
		}, nil
	})
}

// KeepAlive implements [clientv3.Lease]: it renews the lease three times per TTL until ctx ends
// or the lease is gone, and drops answers that the caller does not read.
func (c *Client) KeepAlive(
	ctx context.Context, id clientv3.LeaseID,
) (<-chan *clientv3.LeaseKeepAliveResponse, error) {
	answers := make(chan *clientv3.LeaseKeepAliveResponse, clientv3.LeaseResponseChSize)
	go func() {
		defer close(answers)
		for {
			answer, err := c.KeepAliveOnce(ctx, id)
			if err != nil {
				return
			}
			select {
			case answers <- answer:
			default:
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Duration(answer.TTL) * time.Second / 3):
			}
		}
	}()
	return answers, nil
}

// newHeader is header for callers that do not hold the lock.
func (s *Store) newHeader() *pb.ResponseHeader {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.header()
}
