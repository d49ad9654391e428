package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/tenon-cni/tenon/internal/cluster"
)

// Snapshot is the store at one revision.
type Snapshot struct {
	Revision int64
	Meta     cluster.Meta
	Doubt    *cluster.Doubt // nil if there is none
	Pools    []Pool
	Nodes    []Node
	Blocks   []Block
	Holders  []cluster.Holder
	Stickies []cluster.Sticky
	Tokens   map[string]map[string]cluster.Tokens // pool, then namespace and node: "NS/N"
	Proofs   map[string]cluster.Proof             // by node
	Size     int64                                // bytes of keys and values
	Wrong    []string                             // keys that cannot be decoded, and why

	keys      cluster.Keys
	revisions map[string]int64 // mod revisions of holders and tokens by key
	cools     map[string]bool  // keys
}

// Snapshot reads the store at one revision, in pages. A document that cannot be decoded is in
// Wrong. ErrNotFound: the cluster does not exist.
func (r *Registry) Snapshot(ctx context.Context) (s Snapshot, err error) {
	for range attempts {
		if s, err = r.snapshot(ctx); !errors.Is(err, rpctypes.ErrCompacted) {
			break
		}
	}
	if err == nil && s.Meta.Nonce == "" && len(s.Wrong) == 0 {
		err = fmt.Errorf("cluster %s is not initialized: %w", r.o.Cluster, ErrNotFound)
	}
	return s, err
}

func (r *Registry) snapshot(ctx context.Context) (s Snapshot, err error) {
	s = Snapshot{
		Tokens: map[string]map[string]cluster.Tokens{}, Proofs: map[string]cluster.Proof{}, keys: r.keys,
		revisions: map[string]int64{}, cools: map[string]bool{},
	}
	lives := map[string]bool{}
	for _, prefix := range []string{
		r.keys.Meta(), r.keys.Doubt(), r.keys.Pools(), r.keys.Nodes(), r.keys.Lives(), r.keys.Proofs(),
		r.keys.Blocks(""), r.keys.Cools(""), r.keys.Addrs(""), r.keys.Stickies(""), r.keys.Quotas("", ""),
	} {
		s.Revision, err = r.pages(ctx, prefix, s.Revision, func(page []*mvccpb.KeyValue) bool {
			for _, kv := range page {
				s.Size += int64(len(kv.Key) + len(kv.Value))
				if err := s.add(r.requests, kv, lives); err != nil {
					s.Wrong = append(s.Wrong, err.Error())
				}
			}
			return true
		})
		if err != nil {
			return s, err
		}
	}
	for i, n := range s.Nodes {
		s.Nodes[i].Live = lives[n.Name]
	}
	for i, b := range s.Blocks {
		s.Blocks[i].Cool = s.cools[r.keys.Cool(b.Pool, b.Block.Block)]
	}
	s.sort()
	return s, nil
}

// add decodes one key.
func (s *Snapshot) add(r *requests, kv *mvccpb.KeyValue, lives map[string]bool) error {
	key := string(kv.Key)
	under := func(prefix string) bool { return strings.HasPrefix(key, prefix) }
	var err error
	switch {
	case key == r.keys.Meta():
		s.Meta, err = cluster.Decode[cluster.Meta](key, kv.Value)
	case key == r.keys.Doubt():
		s.Doubt = new(cluster.Doubt)
		*s.Doubt, err = cluster.Decode[cluster.Doubt](key, kv.Value)
	case under(r.keys.Pools()):
		err = collect(&s.Pools, kv, decodePool)
	case under(r.keys.Nodes()):
		err = collect(&s.Nodes, kv, decodeNode)
	case under(r.keys.Lives()):
		lives[cluster.Last(key)] = true
	case under(r.keys.Proofs()):
		s.Proofs[cluster.Last(key)], err = decode[cluster.Proof](kv)
	case under(r.keys.Blocks("")):
		err = collect(&s.Blocks, kv, decodeBlock)
	case under(r.keys.Cools("")):
		s.cools[key] = true
	case under(r.keys.Addrs("")):
		s.revisions[key] = kv.ModRevision
		err = collect(&s.Holders, kv, decode[cluster.Holder])
	case under(r.keys.Stickies("")):
		err = collect(&s.Stickies, kv, decode[cluster.Sticky])
	case under(r.keys.Quotas("", "")):
		t, pool, wrong := r.decodeTokens(kv)
		if err = wrong; err != nil {
			break
		}
		if s.Tokens[pool] == nil {
			s.Tokens[pool] = map[string]cluster.Tokens{}
		}
		s.Tokens[pool][t.Namespace+"/"+t.Node] = t
		s.revisions[key] = kv.ModRevision
	}
	return err
}

func decode[T any](kv *mvccpb.KeyValue) (T, error) {
	return cluster.Decode[T](string(kv.Key), kv.Value)
}

func collect[T any](all *[]T, kv *mvccpb.KeyValue, decode func(*mvccpb.KeyValue) (T, error)) error {
	v, err := decode(kv)
	if err == nil {
		*all = append(*all, v)
	}
	return err
}

func (s *Snapshot) sort() {
	slices.SortFunc(s.Pools, func(a, b Pool) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Blocks, func(a, b Block) int {
		if c := strings.Compare(a.Pool, b.Pool); c != 0 {
			return c
		}
		return a.Block.Block.Compare(b.Block.Block)
	})
	slices.SortFunc(s.Holders, func(a, b cluster.Holder) int {
		if c := strings.Compare(a.Pool, b.Pool); c != 0 {
			return c
		}
		return a.Addr.Compare(b.Addr)
	})
}
