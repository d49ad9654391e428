package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenon-cni/tenon/internal/cluster"
)

// View is what a node needs to know of the others.
type View struct {
	Pools   []Pool           // sorted by name
	Nodes   []Node           // with their block lists, sorted by name; Live is not set
	Holders []cluster.Holder // shared addresses need routes of their own; sorted by key
}

// settle is the time that Watch waits after an event for more of them.
const settle = 100 * time.Millisecond

// minResync is the shortest pause before Watch lists again after an error.
const minResync = time.Second

// Watch calls changed with the present view and after each batch of changes, until ctx ends. It
// lists and compares again after a compaction, a lost watch, and every resync interval, so that
// no deletion is lost. While it cannot read the store, or decode a document, it calls changed with
// the last view and the error. It returns only when ctx has ended.
func (r *Registry) Watch(ctx context.Context, resync time.Duration, changed func(View, error)) {
	w := watcher{r: r.requests, changed: changed}
	for failures := 0; ctx.Err() == nil; {
		err := w.run(ctx, resync)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			failures = 0
			continue
		}
		w.changed(w.view(), err)
		failures++
		wait(ctx, minResync/2+rand.N(min(minResync<<min(failures, 5), max(resync, minResync))))
	}
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// watcher is the state of a Watch: the decoded documents by their keys.
type watcher struct {
	r       *requests
	changed func(View, error)
	pools   map[string]Pool
	nodes   map[string]Node
	holders map[string]cluster.Holder
	wrong   map[string]error // why a document cannot be decoded
}

// run lists the keys and watches them until it is time to list again. It returns nil then, and
// after a compaction or the end of a watch.
func (w *watcher) run(ctx context.Context, resync time.Duration) error {
	revision, err := w.list(ctx)
	if err != nil {
		return err
	}
	w.report()
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	events := make(chan clientv3.WatchResponse)
	for _, prefix := range w.prefixes() {
		watch := w.r.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(revision+1))
		go forward(ctx, watch, events)
	}
	again := time.NewTimer(resync + rand.N(resync/4+1)) // agents do not list at the same time
	defer again.Stop()
	return w.follow(ctx, events, again.C)
}

// forward sends the responses of a watch to events, and a canceled one when the watch has ended.
func forward(ctx context.Context, watch clientv3.WatchChan, events chan<- clientv3.WatchResponse) {
	for {
		response, ok := <-watch
		if !ok {
			response.Canceled, response.CancelReason = true, "the watch has ended"
		}
		select {
		case events <- response:
		case <-ctx.Done():
			return
		}
		if !ok {
			return
		}
	}
}

// follow applies events and calls changed after each batch.
func (w *watcher) follow(
	ctx context.Context, events <-chan clientv3.WatchResponse, again <-chan time.Time,
) error {
	var batch <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-again:
			return nil
		case <-batch:
			batch = nil
			w.report()
		case response := <-events:
			if response.CompactRevision != 0 {
				return nil
			}
			if err := response.Err(); err != nil {
				return fmt.Errorf("watch the store: %w", err)
			}
			for _, e := range response.Events {
				w.r.o.Seen.event(e.Kv.ModRevision)
				w.apply(e.Kv, e.Type == clientv3.EventTypeDelete)
			}
			if len(response.Events) > 0 && batch == nil {
				batch = time.After(settle)
			}
		}
	}
}

// report calls changed with the view and the errors of documents that cannot be decoded.
func (w *watcher) report() { w.changed(w.view(), errors.Join(sortedByKey(w.wrong)...)) }

// list replaces the documents with the present ones, read at one revision.
func (w *watcher) list(ctx context.Context) (revision int64, err error) {
	fresh := watcher{
		r: w.r, pools: map[string]Pool{}, nodes: map[string]Node{},
		holders: map[string]cluster.Holder{}, wrong: map[string]error{},
	}
	for _, prefix := range w.prefixes() {
		revision, err = w.r.pages(ctx, prefix, revision, func(page []*mvccpb.KeyValue) bool {
			for _, kv := range page {
				fresh.apply(kv, false)
			}
			return true
		})
		if err != nil {
			return 0, err
		}
	}
	w.pools, w.nodes, w.holders, w.wrong = fresh.pools, fresh.nodes, fresh.holders, fresh.wrong
	return revision, nil
}

// prefixes returns the prefixes of the documents of a view.
func (w *watcher) prefixes() []string {
	return []string{w.r.keys.Pools(), w.r.keys.Nodes(), w.r.keys.Addrs("")}
}

// apply changes one document.
func (w *watcher) apply(kv *mvccpb.KeyValue, deleted bool) {
	key := string(kv.Key)
	delete(w.wrong, key)
	if deleted {
		delete(w.pools, key)
		delete(w.nodes, key)
		delete(w.holders, key)
		return
	}
	var err error
	switch {
	case strings.HasPrefix(key, w.r.keys.Pools()):
		err = keep(w.pools, kv, decodePool)
	case strings.HasPrefix(key, w.r.keys.Nodes()):
		err = keep(w.nodes, kv, decodeNode)
	default:
		err = keep(w.holders, kv, decode[cluster.Holder])
	}
	if err != nil {
		w.wrong[key] = err
	}
}

// keep decodes a document into a map by its key. After an error the map has the earlier document.
func keep[T any](
	all map[string]T, kv *mvccpb.KeyValue, decode func(*mvccpb.KeyValue) (T, error),
) error {
	v, err := decode(kv)
	if err == nil {
		all[string(kv.Key)] = v
	}
	return err
}

// view returns a copy of the documents.
func (w *watcher) view() View {
	return View{
		Pools: sortedByKey(w.pools), Nodes: sortedByKey(w.nodes), Holders: sortedByKey(w.holders),
	}
}

func sortedByKey[T any](all map[string]T) (values []T) {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		values = append(values, all[key])
	}
	return values
}
