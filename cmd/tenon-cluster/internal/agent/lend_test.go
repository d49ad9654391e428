package agent_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/memkv"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// lenders is a pool of two blocks with a node each; the block of the second is full.
func lenders(w *world) (owner, borrower *node) {
	w.Helper()
	w.pool(cluster.Pool{Range: prefix("10.64.0.0/27"), BlockBits: 28, Borrow: true,
		Cooldown: cluster.Duration(time.Minute)})
	owner, borrower = w.node("n1").start(), w.node("n2").start()
	pass(time.Second)
	owner.mustAdd("pods", "own")
	for i := range 13 {
		borrower.mustAdd("pods", fmt.Sprint("c", i))
	}
	pass(30 * time.Second)
	return owner, borrower
}

// lent returns the withdrawn addresses in the files of a node, sorted.
func (n *node) lent() (all []netip.Addr) {
	for _, b := range n.state("pods").Blocks {
		for addr := range b.Lent {
			all = append(all, addr)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// granted returns the addresses that a node has lent and borrowed, by the store.
func (n *node) granted() (lent, borrowed []netip.Addr) {
	n.Helper()
	doc, blocks, err := n.admin.Owned(context.Background(), n.name)
	if err != nil {
		n.Fatal(err)
	}
	for i, ref := range doc.Blocks {
		if ref.Block.IsSingleIP() {
			borrowed = append(borrowed, ref.Block.Addr())
			continue
		}
		for addr := range blocks[i].Grants {
			lent = append(lent, addr)
		}
	}
	slices.SortFunc(lent, netip.Addr.Compare)
	return lent, borrowed
}

// borrowedBlocks returns the borrowed addresses in the files.
func (n *node) borrowedBlocks() (all []netip.Addr) {
	for _, b := range n.state("pods").Blocks {
		if b.Phase == local.Borrowed {
			all = append(all, b.Block.Addr())
		}
	}
	return all
}

// balanced fails the test if files and store differ about loans, or an invariant is violated.
func balanced(owner, borrower *node) {
	owner.Helper()
	owner.agree()
	granted, _ := owner.granted()
	_, borrowed := borrower.granted()
	if !slices.Equal(granted, owner.lent()) || !slices.Equal(granted, borrowed) ||
		!slices.Equal(borrowed, borrower.borrowedBlocks()) {
		owner.Errorf("lent by the store %v, withdrawn %v, borrowed by the store %v, in the files %v",
			granted, owner.lent(), borrowed, borrower.borrowedBlocks())
	}
}

func TestBorrow(t *testing.T) {
	inWorld(t, func(w *world) {
		owner, borrower := lenders(w)
		addr := borrower.mustAdd("pods", "over")
		balanced(owner, borrower)
		if lent := owner.lent(); len(lent) != 1 || lent[0] != addr {
			w.Fatalf("the borrower uses %s, the owner has lent %v", addr, lent)
		}
		seen := map[netip.Addr]bool{addr: true}
		for i := range 11 { // 13 addresses, of which it uses one and has lent one
			got := owner.mustAdd("pods", fmt.Sprint("o", i))
			if seen[got] {
				w.Errorf("%s has two holders", got)
			}
			seen[got] = true
		}
		if got, err := owner.add("pods", "one too many"); err == nil {
			w.Errorf("the owner got %s from a full pool", got)
		}
		borrower.del("pods", "over")
		pass(3 * time.Minute)
		balanced(owner, borrower)
		if lent := owner.lent(); len(lent) != 0 {
			w.Errorf("an unused address is still lent: %v", lent)
		}
		if got := owner.mustAdd("pods", "last"); got != addr {
			w.Errorf("the owner got %s, want the repaid %s", got, addr)
		}
	})
}

func TestBorrowNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		owner, borrower := lenders(w)
		for i := range 6 { // fewer than keepFree are left
			owner.mustAdd("pods", fmt.Sprint("o", i))
		}
		if got, err := borrower.add("pods", "over"); err == nil {
			w.Errorf("the borrower got %s, and the owner needs its addresses", got)
		}
		pass(time.Minute)
		balanced(owner, borrower)
	})
}

// TestDrainingNodeIgnoresARequest: a request that a node may not answer is no problem of the node.
func TestDrainingNodeIgnoresARequest(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		third := w.node("n3").start()
		owner, borrower := lenders(w)
		_, err := w.admin.Update(w.Context(), third.stored(), func(n *cluster.Node) {
			n.State = cluster.NodeDraining
		})
		if err != nil {
			w.Fatal(err)
		}
		pass(time.Minute)
		borrower.mustAdd("pods", "over")
		pass(10 * time.Second)
		balanced(owner, borrower)
		if s := third.status(); len(s.Problems) > 0 {
			w.Errorf("problems of the draining node: %q", s.Problems)
		}
	})
}

func TestBorrowerIsFenced(t *testing.T) {
	inWorld(t, func(w *world) {
		owner, borrower := lenders(w)
		addr := borrower.mustAdd("pods", "over")
		borrower.kill()
		w.kv.ExpireKey(cluster.NewKeys("c").Live("n2"))
		doc, err := w.admin.Suspect(w.Context(), borrower.stored())
		if err == nil {
			doc, err = w.admin.Fence(w.Context(), doc, "off", "test")
		}
		for done := false; err == nil && !done; {
			doc, done, err = w.admin.Reclaim(w.Context(), doc, "dead")
		}
		if err != nil {
			w.Fatal(err)
		}
		pass(30 * time.Second)
		if lent := owner.lent(); len(lent) != 1 {
			w.Errorf("%s is free before it has cooled down: %v", addr, lent)
		}
		pass(time.Minute)
		if lent := owner.lent(); len(lent) != 0 {
			w.Errorf("%s has cooled down and is not free: %v", addr, lent)
		}
		owner.agree()
	})
}

// TestLendInterrupted loses each call of the owner or the borrower during a loan, alone or with
// all later ones, and kills the agent. Afterwards files and store agree.
func TestLendInterrupted(t *testing.T) {
	testnet.Long(t)
	lost := rpctypes.ErrGRPCTimeout
	faults := map[string]memkv.Fault{
		"lost request": {Error: lost},
		"lost answer":  {Error: lost, Commit: memkv.Now},
		"late commit":  {Error: lost, Commit: memkv.Later, After: 3 * time.Second},
	}
	calls := map[string]int{}
	run := func(w *world, at int, f memkv.Fault, who, after string) {
		owner, borrower := lenders(w)
		nodes := map[string]*node{"owner": owner, "borrower": borrower}
		n := nodes[who]
		before, struck := n.client.Calls(), false
		n.client.Fault(func(c memkv.Call) memkv.Fault {
			struck = struck || c.Number-before == at
			switch {
			case c.Number-before == at:
				return f
			case struck && after != "":
				return memkv.Fault{Error: errKilled}
			}
			return memkv.Fault{}
		})
		_, err := borrower.add("pods", "over")
		calls[who] = max(calls[who], n.client.Calls()-before)
		if after == "killed" {
			n.kill()
			n.start()
		}
		n.client.Fault(nil)
		pass(5 * time.Second)
		if err == nil {
			pass(30 * time.Second)
			balanced(owner, borrower)
			borrower.del("pods", "over")
		}
		pass(5 * time.Minute)
		balanced(owner, borrower)
		if lent := owner.lent(); len(lent) > 0 {
			w.Errorf("%v are lent and not used", lent)
		}
	}
	for _, who := range []string{"owner", "borrower"} {
		t.Run(who, func(t *testing.T) {
			inWorld(t, func(w *world) { run(w, 0, memkv.Fault{}, who, "") })
			for name, f := range faults {
				for at := 1; at <= calls[who]; at++ {
					for _, after := range []string{"", "cut off", "killed"} {
						if after != "" && f.Commit != memkv.Later { // the hardest case
							continue
						}
						t.Run(fmt.Sprintf("%s at call %d, %s", name, at, after), func(t *testing.T) {
							inWorld(t, func(w *world) { run(w, at, f, who, after) })
						})
					}
				}
			}
		})
	}
}
