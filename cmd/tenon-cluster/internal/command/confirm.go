package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/internal/cluster"
)

func (a *app) confirm() *cobra.Command {
	all, restored, node, wait := false, false, "", 45*time.Second
	cmd := &cobra.Command{
		Use:   "confirm [--all-nodes | --restored | --node NODE]",
		Short: "Handle a restored snapshot of etcd, or a copy of a node",
		Long: `A restored snapshot shows blocks as they were when it was taken. The agents notice
that etcd has lost transactions. From then on, no node claims or returns blocks;
each goes on with those that both its files and etcd show. There is no hurry.

Without a flag, confirm asks every node which addresses it uses that etcd does not
show, prints the answers and the next step, and confirms nothing. Repeat it until
all nodes agree with etcd. With --all-nodes, it asks again, and refuses if a node
has not answered or uses such an address. Otherwise the nodes adopt the blocks that
etcd shows for them, and claim new ones again.

If no node has noticed a restore that you know of, run "confirm --restored" first.

When two processes use the identity of one node, with a copy of its files or of the
whole virtual machine, both stop and give out no addresses. Stop the copy, end its
containers, and run "node reset" there. Then run "confirm --node NODE" and restart
the agent of the original.

Exit status: 0 all nodes agree, or are confirmed; 1 otherwise; 2 wrong usage.`,
		Example: a.examples("confirm", "confirm --all-nodes", "confirm --restored",
			"confirm --node n7"),
		Args: arguments(),
		RunE: a.withStore(func(ctx context.Context, s *session, _ []string) error {
			switch {
			case node != "" && (all || restored), all && restored:
				return usagef("give only one of --all-nodes, --restored and --node")
			case wait < 0:
				return usagef("--wait %v is negative", wait)
			case a.json && (node != "" || all || restored):
				return usagef("--json works only without another flag")
			case node != "":
				return a.confirmNode(ctx, s, node)
			case restored:
				return a.confirmRestored(ctx, s)
			case all:
				return a.confirmNodes(ctx, s, wait)
			}
			return a.review(ctx, s, wait)
		}),
	}
	cmd.Flags().BoolVar(&all, "all-nodes", false, "let all nodes use the store again")
	cmd.Flags().BoolVar(&restored, "restored", false, "stop growth: the store was restored")
	cmd.Flags().StringVar(&node, "node", "", "let `NODE` go on: no copy of it runs any more")
	cmd.Flags().DurationVar(&wait, "wait", wait, "longest `TIME` to wait for the answers of nodes")
	return a.jsonFlag(a.yesFlag(cmd))
}

// confirmNode lets the original of a copied node join again.
func (a *app) confirmNode(ctx context.Context, s *session, node string) error {
	snapshot, err := s.registry.Snapshot(ctx)
	if err != nil {
		return err
	}
	if snapshot.Proofs[node].Contested == "" {
		n, err := s.registry.Nodes.Read(ctx, node)
		if err != nil {
			return err
		}
		a.printf("the store does not show that a copy of node %s has run\n", node)
		if n.Live {
			return nil // its agent runs
		}
	}
	err = a.confirmed(fmt.Sprintf("Is every copy of node %s stopped and reset, and have the "+
		"containers of the copy ended?", node))
	if err != nil {
		return err
	}
	if err := s.registry.Nodes.Settle(ctx, node); err != nil {
		return err
	}
	a.printf("confirmed node %s: the next agent that starts with its identity goes on\n", node)
	a.hint("restart the agent on the node: systemctl restart tenon-cluster.service")
	return nil
}

func (a *app) confirmRestored(ctx context.Context, s *session) error {
	if _, err := s.registry.Meta.NewNonce(ctx); err != nil {
		return err
	}
	a.printf("no node claims blocks now\n")
	a.hint("ask the nodes what they use: " + a.name + " confirm")
	return nil
}

func (a *app) confirmNodes(ctx context.Context, s *session, wait time.Duration) error {
	r, err := a.ask(ctx, s, wait)
	if err != nil {
		return err
	}
	if obstacle := r.obstacle(); obstacle != "" {
		return hint(fmt.Errorf("%s; nothing was changed", obstacle),
			"what to do about it: "+a.name+" confirm")
	}
	waiting := r.waiting()
	if len(waiting) == 0 {
		a.printf("all nodes use the store already\n")
		return s.registry.Meta.EndDoubt(ctx, r.snapshot.Meta.Nonce)
	}
	if err := a.confirmed(fmt.Sprintf("%s with the store. Nodes that joined after the snapshot "+
		"are not among them while they are off. Have all been started?",
		agree(len(waiting)))); err != nil {
		return err
	}
	var errs []error
	for _, n := range waiting {
		_, err := s.registry.Nodes.Update(ctx, n,
			func(n *cluster.Node) { n.Store = r.snapshot.Meta.Nonce })
		if err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", n.Name, err))
			continue
		}
		a.printf("confirmed node %s\n", n.Name)
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return s.registry.Meta.EndDoubt(ctx, r.snapshot.Meta.Nonce)
}
