package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
)

func (a *app) confirm() *cobra.Command {
	all, restored, node := false, false, ""
	cmd := &cobra.Command{
		Use:   "confirm --restored | --all-nodes | --node NODE",
		Short: "Handle a restored snapshot of etcd, or a copy of a node",
		Long: `A restored snapshot shows blocks as they were when it was taken. The agents notice
that etcd has lost transactions. From then on, no node claims or returns blocks;
each goes on with those that both its files and etcd show. In order:

1. If no node has noticed it, as "check" shows, run "confirm --restored".
2. Start the agents of all nodes, also of those that were off. Run "check" on each
   node, and detach the containers that it reports.
3. Run "confirm --all-nodes". The nodes adopt the blocks that etcd shows for them,
   and claim new ones again.

When two processes use the identity of one node, with a copy of its files or of the
whole virtual machine, both stop and give out no addresses. Stop the copy, end its
containers, and run "node reset" there. Then run "confirm --node NODE" and restart
the agent of the original.`,
		Example: a.examples("confirm --restored", "confirm --all-nodes", "confirm --node n7"),
		Args:    arguments(),
		RunE: a.withStore(func(ctx context.Context, s *session, _ []string) error {
			switch {
			case restored && !all && node == "":
				return a.confirmRestored(ctx, s)
			case all && !restored && node == "":
				return a.confirmNodes(ctx, s)
			case node != "" && !all && !restored:
				return a.confirmNode(ctx, s, node)
			}
			return usagef("give either --restored, --all-nodes or --node")
		}),
	}
	cmd.Flags().BoolVar(&restored, "restored", false, "stop growth: the store was restored")
	cmd.Flags().BoolVar(&all, "all-nodes", false, "let all nodes use the store again")
	cmd.Flags().StringVar(&node, "node", "", "let `NODE` go on: no copy of it runs any more")
	return a.yesFlag(cmd)
}

// confirmNode lets the original of a copied node join again.
func (a *app) confirmNode(ctx context.Context, s *session, node string) error {
	snapshot, err := s.registry.Snapshot(ctx)
	if err != nil {
		return err
	}
	if snapshot.Proofs[node].Contested == "" {
		n, err := s.registry.Node(ctx, node)
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
	if err := s.registry.Settle(ctx, node); err != nil {
		return err
	}
	a.printf("confirmed node %s: the next agent that starts with its identity goes on\n", node)
	a.hint("restart the agent on the node: systemctl restart tenon-cluster.service")
	return nil
}

func (a *app) confirmRestored(ctx context.Context, s *session) error {
	if _, err := s.registry.NewNonce(ctx); err != nil {
		return err
	}
	a.printf("no node claims blocks now\n")
	a.hint("run on each node: " + a.name + " check")
	return nil
}

func (a *app) confirmNodes(ctx context.Context, s *session) error {
	snapshot, err := s.registry.Snapshot(ctx)
	if err != nil {
		return err
	}
	if found := snapshot.Check(); len(found) > 0 {
		return hint(fmt.Errorf("the store has %s", plural(len(found), "finding")),
			"list them: "+a.name+" check")
	}
	var waiting []registry.Node
	for _, n := range snapshot.Nodes {
		if n.Store != snapshot.Meta.Nonce && n.State != cluster.NodeFenced {
			waiting = append(waiting, n)
		}
	}
	if len(waiting) == 0 {
		a.printf("all nodes use the store already\n")
		return s.registry.EndDoubt(ctx, snapshot.Meta.Nonce)
	}
	if err := a.confirmed(fmt.Sprintf("Did check report no other findings on each of %s?",
		plural(len(waiting), "node"))); err != nil {
		return err
	}
	var errs []error
	for _, n := range waiting {
		_, err := s.registry.Update(ctx, n, func(n *cluster.Node) { n.Store = snapshot.Meta.Nonce })
		if err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", n.Name, err))
			continue
		}
		a.printf("confirmed node %s\n", n.Name)
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return s.registry.EndDoubt(ctx, snapshot.Meta.Nonce)
}
