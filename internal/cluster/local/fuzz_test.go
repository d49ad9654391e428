package local_test

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// FuzzState: no state file makes an operation panic, and an address that it yields may be allocated
// and lies in a block of the state.
func FuzzState(f *testing.F) {
	prefixes := cluster.Pool{Name: "p", Range: netip.MustParsePrefix("fd00:66::/48"), PrefixBits: 64}
	for _, pool := range []cluster.Pool{{Name: "p", Range: pods.Range}, prefixes} {
		if err := pool.Canonicalize(); err != nil {
			f.Fatal(err)
		}
		pool.Exclude = append(pool.Exclude, netip.PrefixFrom(pool.Range.Addr(), 64))
		block := pool.Block(1)
		b, err := json.Marshal(local.State{Schema: 1, Pool: pool, Boot: bootID,
			Hold: &local.Deadline{Boot: time.Hour, Wall: time.Now().Add(time.Hour)},
			Blocks: []local.Block{
				{Block: block, Phase: local.Owned}, {Block: pool.Block(2), Phase: local.Returning},
			}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"schema":1,"pool":{"name":"p","range":"0.0.0.0/0","blockBits":24},"boot":"` +
		bootID + `","blocks":[{"block":"0.0.0.0/24","phase":"owned"}]}`))
	dir := f.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "pools"), 0o755); err != nil {
		f.Fatal(err)
	}
	store := local.New(local.Options{Dir: dir, BootID: bootID})
	f.Fuzz(func(t *testing.T, state []byte) {
		if err := os.WriteFile(filepath.Join(dir, "pools", "p.json"), state, 0o600); err != nil {
			t.Fatal(err)
		}
		err := locked(store, "p", func(p *local.Pool) error {
			a, err := p.Allocate(ctx, local.Request{Owner: owner("c1")})
			if err == nil {
				checkAllocation(t, p, a)
			}
			_, _, err = p.Usage(ctx)
			_, releaseErr := p.Release(ctx, owner("c1"))
			if leases, leasesErr := p.Leases(ctx); leasesErr != nil || len(leases) > 0 {
				t.Errorf("left %v, %v", leases, leasesErr)
			}
			if err == nil {
				err = releaseErr
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func checkAllocation(t *testing.T, p *local.Pool, a local.Allocation) {
	first := a.Addr.Addr()
	if p.State.Pool.PrefixBits > 0 {
		first = a.Addr.Masked().Addr()
	}
	b := p.State.BlockOf(first)
	if b == nil || b.Phase != local.Owned || p.State.Pool.Allocatable(first) != nil {
		t.Errorf("allocated %s", a.Addr)
	}
}
