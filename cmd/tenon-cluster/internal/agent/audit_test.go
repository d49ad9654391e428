package agent_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/agent"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/memkv"
	"github.com/tenon-cni/tenon/internal/cluster"
)

// audited reads the events that the store has of a day, as text.
func (w *world) audited(day string) (all []string) {
	w.Helper()
	batches, err := w.admin.Audit(w.Context(), day)
	if err != nil {
		w.Fatal(err)
	}
	for _, b := range batches {
		for line := range bytes.Lines(b) {
			var r agent.AuditRecord
			if err := json.Unmarshal(line, &r); err != nil {
				w.Fatal(err)
			}
			all = append(all, fmt.Sprintf("%s %s %s %s", r.Node, r.Event, r.Addr, r.Container))
		}
	}
	return all
}

func TestAudit(t *testing.T) {
	for name, f := range map[string]memkv.Fault{
		"no fault":     {},
		"lost request": {Error: rpctypes.ErrGRPCTimeout},
		"lost answer":  {Error: rpctypes.ErrGRPCTimeout, Commit: memkv.Now},
	} {
		for _, kill := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, killed %t", name, kill), func(t *testing.T) {
				inWorld(t, func(w *world) { testAudit(w, f, kill) })
			})
		}
	}
}

func testAudit(w *world, f memkv.Fault, kill bool) {
	w.pool(cluster.Pool{Range: prefix("10.64.0.0/22"), Audit: true})
	n := w.node("n1").start()
	pass(2 * time.Minute)
	key := cluster.NewKeys("c").Audits("")
	struck := 0
	n.client.Fault(func(c memkv.Call) memkv.Fault {
		for _, k := range c.Keys {
			if f.Error != nil && bytes.HasPrefix([]byte(k), []byte(key)) && struck < 20 {
				struck++
				return f
			}
		}
		return memkv.Fault{}
	})
	day := time.Now().UTC().Format(time.DateOnly)
	var want []string
	for i := range 3 {
		addr := n.mustAdd("pods", fmt.Sprint("c", i))
		want = append(want, fmt.Sprintf("n1 add %s c%d", addr, i))
	}
	pass(2 * time.Minute)
	if kill {
		n.kill()
		n.start()
	}
	n.del("pods", "c1")
	pass(5 * time.Minute)
	got := w.audited(day)
	if len(got) != 4 || fmt.Sprint(got[:3]) != fmt.Sprint(want) || got[3][:6] != "n1 del" {
		w.Errorf("audit %v, want %v and the release of c1", got, want)
	}
}
