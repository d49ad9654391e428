package agent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/agent"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/test/memkv"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// dieAt lets the process of the agent die at a call to the store: before the store executes it,
// after that, or so that the store executes it later. It reports through dead that this happened.
func (n *node) dieAt(call int, commit memkv.Commit, dead chan<- struct{}) {
	n.client.Fault(func(c memkv.Call) memkv.Fault {
		switch {
		case c.Number < call:
			return memkv.Fault{}
		case c.Number > call:
			return memkv.Fault{Error: errKilled}
		}
		close(dead)
		return memkv.Fault{Error: errKilled, Commit: commit, After: time.Second}
	})
}

// life is what an agent does between its start and a return of a block. The attachments fail while
// the agent is dead.
func (n *node) life() {
	containers := []string{"c1", "c2", "c3", "c4", "c5", "c6", "c7"}
	for _, c := range containers {
		_, _ = n.add("pods", c)
	}
	pass(3 * time.Minute)
	for _, c := range containers {
		n.del("pods", c)
	}
	pass(17 * time.Minute)
}

// TestDeathAtEachCall kills the agent at each of its calls to the store, in the three ways, and
// starts it again.
func TestDeathAtEachCall(t *testing.T) {
	t.Parallel()
	for name, commit := range map[string]memkv.Commit{
		"before the call": memkv.Never, "after the call": memkv.Now, "the call commits later": memkv.Later,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call, more := 1, true
			for ; more && call < 200; call++ {
				more = deathAt(t, call, commit)
			}
			t.Logf("died at %d calls", call-2)
		})
	}
}

// deathAt kills the agent at a call. It reports whether the agent made so many calls.
func deathAt(t *testing.T, call int, commit memkv.Commit) (died bool) {
	inWorld(t, func(w *world) {
		w.pool(cluster.Pool{Range: prefix("10.64.0.0/16"), BlockBits: 29})
		n := w.node("n1")
		n.change = func(o *agent.Options) { o.TTL = 6 * time.Minute } // few renewals
		client := n.kv.Client(n.name)
		n.client = client
		dead := make(chan struct{})
		n.dieAt(call, commit, dead)
		n.startWith(client)
		pass(4 * time.Minute) // other nodes have had their time
		n.life()
		select {
		case <-dead:
			died = true
		default: // the life has fewer calls
			n.client.Fault(nil)
			n.matches()
			if blocks := n.blocks("pods"); len(blocks) != 1 {
				w.Errorf("blocks after a life without death: %q, expected one", blocks)
			}
			return
		}
		n.kill()
		n.start()
		pass(9 * time.Minute)
		n.mustAdd("pods", "after")
		pass(3 * time.Minute)
		n.matches()
		if s := n.status(); len(s.Problems) != 0 || s.Epoch != 1 {
			w.Errorf("call %d: status after the restart: %+v", call, s)
		}
		if w.Failed() {
			w.Fatalf("call %d", call)
		}
	})
	return died && !t.Failed()
}

// matches fails the test unless the node's files and the store show the same blocks, and no intent
// is left.
func (n *node) matches() {
	n.Helper()
	n.check()
	var stored, files []string
	for _, b := range n.stored().Blocks {
		stored = append(stored, fmt.Sprint(b.Pool, b.Block, b.Nonce))
	}
	for _, b := range n.state("pods").Blocks {
		if b.Phase != local.Owned {
			n.Errorf("block %s is %s", b.Block, b.Phase)
		}
		files = append(files, fmt.Sprint("pods", b.Block, b.Nonce))
	}
	slices.Sort(stored)
	slices.Sort(files)
	if !slices.Equal(stored, files) {
		n.Errorf("the files show %q, the store %q", files, stored)
	}
	left, err := filepath.Glob(filepath.Join(n.dir, "intents", "*"))
	if err != nil || len(left) > 0 {
		n.Errorf("intents left: %q, %v", left, err)
	}
}

// edit changes the state of a pool.
func (n *node) edit(pool string, change func(*local.State)) {
	n.Helper()
	p, err := n.files.Open(context.Background(), pool, false)
	if err != nil {
		n.Fatal(err)
	}
	defer p.Close()
	change(&p.State)
	if err := p.Save(); err != nil {
		n.Fatal(err)
	}
}

// TestRestartAtACrashPoint starts the agent with the files of each crash point that is not a call
// to the store.
func TestRestartAtACrashPoint(t *testing.T) {
	t.Parallel()
	points := map[string]func(n *node){
		"an intent is half written": func(n *node) {
			dir := filepath.Join(n.dir, "intents")
			err := os.MkdirAll(dir, 0o700)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, ".claim-x.json1"), []byte("{"), 0o600)
			}
			if err != nil {
				n.Fatal(err)
			}
		},
		"claim committed, files unaware, no intent": func(n *node) {
			n.edit("pods", func(st *local.State) { st.Blocks = nil })
		},
		"claim recorded, intent left": func(n *node) {
			b := n.state("pods").Blocks[0]
			text := fmt.Sprintf(`{"schema":1,"kind":"claim","nonce":%q,"pool":"pods"}`, b.Nonce)
			path := filepath.Join(n.dir, "intents", "claim-"+b.Nonce+".json")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				n.Fatal(err)
			}
		},
		"marked as returning": func(n *node) {
			n.edit("pods", func(st *local.State) { st.Blocks[0].Phase = local.Returning })
		},
		"return committed, files unaware": func(n *node) {
			n.edit("pods", func(st *local.State) {
				b := st.Blocks[0]
				b.Block, b.Nonce, b.Phase = prefix("10.64.77.0/29"), "gone", local.Returning
				st.Blocks = append(st.Blocks, b)
			})
		},
		"state damaged": func(n *node) {
			path := filepath.Join(n.dir, "pools", "pods.json")
			if err := os.WriteFile(path, []byte(`{"schema":`), 0o600); err != nil {
				n.Fatal(err)
			}
		},
		"state removed": func(n *node) {
			if err := os.Remove(filepath.Join(n.dir, "pools", "pods.json")); err != nil {
				n.Fatal(err)
			}
		},
	}
	for name, damage := range points {
		for _, running := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, running %v", name, running), func(t *testing.T) {
				t.Parallel()
				inWorld(t, func(w *world) {
					w.pool(cluster.Pool{Range: prefix("10.64.0.0/16"), BlockBits: 29})
					n := w.node("n1").start()
					n.mustAdd("pods", "c1")
					n.del("pods", "c1")
					if !running {
						n.kill()
					}
					damage(n)
					if !running {
						n.start()
					}
					pass(time.Minute)
					for i := range 5 {
						n.mustAdd("pods", fmt.Sprint("d", i))
					}
					pass(time.Minute)
					n.matches()
				})
			})
		}
	}
}
