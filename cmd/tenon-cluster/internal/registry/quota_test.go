package registry

import (
	"errors"
	"testing"
	"testing/synctest"
)

// TestQuotaWithoutNamespace: containers without a namespace have a quota of their own, whatever
// other namespaces use.
func TestQuotaWithoutNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r, s := w.join("a")
		p := w.pool.Pool
		p.Quota = map[string]uint64{"*": 10}
		pool := must(r.Pools.Put(t.Context(), p))(w)
		for _, namespace := range []string{"ns", ""} {
			for i, want := range []uint64{8, 10} {
				got := must(r.Quotas.Draw(t.Context(), s.Node, pool, namespace, 8))(w)
				if got.Count != want {
					t.Errorf("namespace %q, draw %d: %d tokens, want %d", namespace, i, got.Count, want)
				}
			}
			if _, err := r.Quotas.Draw(t.Context(), s.Node, pool, namespace, 8); !errors.Is(err, ErrQuota) {
				t.Errorf("namespace %q: %v", namespace, err)
			}
		}
		want := map[string]uint64{"ns": 10, "": 10}
		drawn := must(r.Quotas.Drawn(t.Context(), "a"))(w)
		for namespace, n := range want {
			if drawn["pods"][namespace] != n {
				t.Errorf("namespace %q has %d tokens, want %d", namespace, drawn["pods"][namespace], n)
			}
		}
	})
}
