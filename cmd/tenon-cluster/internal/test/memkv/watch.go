package memkv

import (
	"cmp"
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// batch is the largest number of events in a response of a watch.
const batch = 1000

type watch struct {
	client   *Client
	interval interval
	next     int64 // revision
	previous bool
	woken    chan struct{} // buffered
	broken   chan error    // buffered
}

func (w *watch) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// Watch implements [clientv3.Watcher]. A partition silences the watch; the events follow when it
// ends, or ErrCompacted.
func (c *Client) Watch(
	ctx context.Context, key string, opts ...clientv3.OpOption,
) clientv3.WatchChan {
	op := clientv3.OpGet(key, opts...)
	w := &watch{
		client:   c,
		interval: interval{key, string(op.RangeBytes())},
		next:     op.Rev(),
		previous: op.IsPrevKV(),
		woken:    make(chan struct{}, 1),
		broken:   make(chan error, 1),
	}
	s := c.store
	s.mu.Lock()
	if w.next == 0 {
		w.next = s.revision + 1
	}
	if s.watches[w.interval] == nil {
		s.watches[w.interval] = map[*watch]struct{}{}
	}
	s.watches[w.interval][w] = struct{}{}
	s.mu.Unlock()
	w.wake()
	out := make(chan clientv3.WatchResponse)
	go w.run(ctx, out, op.IsCreatedNotify())
	return out
}

func (w *watch) run(ctx context.Context, out chan<- clientv3.WatchResponse, created bool) {
	defer close(out)
	defer w.remove()
	send := func(r clientv3.WatchResponse) bool {
		select {
		case out <- r:
			return true
		case <-ctx.Done():
			return false
		}
	}
	if created && !send(clientv3.WatchResponse{Created: true, Header: w.client.store.newHeader()}) {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-w.broken:
			send(canceled(err))
			return
		case <-w.woken:
		}
		if w.client.connected(ctx) != nil {
			return
		}
		for more := true; more; {
			var r clientv3.WatchResponse
			r, more = w.collect()
			if len(r.Events)+int(r.CompactRevision) > 0 && !send(r) || r.Canceled {
				return
			}
		}
	}
}

// canceled is the last response of a watch that a server or a client ends. The client of etcd
// sets its private closeErr; a cancel reason has the same effect on Err.
func canceled(err error) clientv3.WatchResponse {
	return clientv3.WatchResponse{Canceled: true, CancelReason: status.Convert(err).Message()}
}

// collect returns the next events of a watch, whole revisions only.
func (w *watch) collect() (r clientv3.WatchResponse, more bool) {
	s := w.client.store
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Header = s.header()
	if w.next < s.compacted {
		r.Canceled, r.CompactRevision = true, s.compacted
		return r, false
	}
	at, _ := slices.BinarySearchFunc(s.log, w.next, func(e event, revision int64) int {
		return cmp.Compare(e.revision, revision)
	})
	last := s.revision
	for _, e := range s.log[at:] {
		if len(r.Events) >= batch && e.revision != last {
			more = true
			break
		}
		last = e.revision
		if w.interval.contains(string(e.kv.Key)) {
			r.Events = append(r.Events, e.public(w.previous))
		}
	}
	w.next = max(w.next, s.revision+1)
	if more {
		w.next = last + 1
	}
	return r, more
}

func (e event) public(previous bool) *clientv3.Event {
	public := &clientv3.Event{Type: mvccpb.Event_PUT, Kv: e.kv}
	if e.deleted {
		public.Type = mvccpb.Event_DELETE
	}
	if previous {
		public.PrevKv = e.previous
	}
	return public
}

func (w *watch) remove() {
	s := w.client.store
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watches[w.interval], w)
	if len(s.watches[w.interval]) == 0 {
		delete(s.watches, w.interval)
	}
}

// BreakWatches ends the watches of all clients with an error, as a member without leader does.
func (s *Store) BreakWatches() { s.breakWatches(nil, rpctypes.ErrGRPCNoLeader) }

func (s *Store) breakWatches(only *Client, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, watches := range s.watches {
		for w := range watches {
			if only != nil && w.client != only {
				continue
			}
			select {
			case w.broken <- err:
			default:
			}
		}
	}
}

// RequestProgress implements [clientv3.Watcher]; it does nothing.
func (c *Client) RequestProgress(context.Context) error { return nil }

// Close implements [clientv3.Lease] and [clientv3.Watcher]: it ends the watches of the client.
func (c *Client) Close() error {
	c.store.breakWatches(c, status.Error(codes.Canceled, "memkv: client closed"))
	return nil
}
