package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/settings"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/agentcall"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

func (a *app) node() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "List nodes, drain them, and let them rejoin or leave",
		Example: a.examples("node list", "node drain n7", "node undrain n7", "node rejoin",
			"node reset", "node leave n7"),
	}
	cmd.AddCommand(a.nodeList(), a.nodeDrain(), a.nodeUndrain(), a.nodeRejoin(), a.nodeReset(),
		a.nodeLeave())
	return parent(cmd)
}

// nodeEntry is a node as JSON.
type nodeEntry struct {
	cluster.Node
	Live bool `json:"live"`
}

func (a *app) nodeList() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "list",
		Short: "List nodes",
		Long: `Lists the nodes. CONTACT says whether etcd has heard from the agent within the last
30 s; a node without contact may still run containers.

States:
  active    the node uses its blocks
  draining  it gets no new blocks and no new attachments
  suspect   etcd does not hear from it; it may be alive
  fenced    evidence says that it uses no address any more`,
		Example: a.examples("node list", "node list --json"),
		Args:    arguments(),
		RunE: a.withStore(func(ctx context.Context, s *session, _ []string) error {
			snapshot, err := s.registry.Snapshot(ctx)
			if err != nil {
				return err
			}
			list := []nodeEntry{}
			rows := [][]string{{"NODE", "STATE", "CONTACT", "EPOCH", "BLOCKS", "ADDRESSES", "ROUTES",
				"EVIDENCE"}}
			for _, n := range snapshot.Nodes {
				list = append(list, nodeEntry{n.Node, n.Live})
				contact := map[bool]string{false: "no", true: "yes"}[n.Live]
				evidence := n.Evidence
				if evidence != "" {
					evidence += " (" + n.Author + ")"
				}
				rows = append(rows, []string{n.Name, string(n.State), contact,
					strconv.FormatUint(n.Epoch, 10), strconv.Itoa(len(n.Blocks)), addresses(n), n.Mode, evidence})
			}
			return a.print(list, func() error { return a.table(rows) })
		}),
	})
}

func (a *app) nodeDrain() *cobra.Command {
	return a.setState("drain NODE", "Let a node attach no more containers",
		`Marks a node as draining: it gets no new blocks, ADD fails there with code 11, and
it returns blocks when they are empty. Attached containers keep their addresses.`,
		cluster.NodeDraining, "node %s drains: it returns its blocks when containers have ended (%s)\n")
}

func (a *app) nodeUndrain() *cobra.Command {
	return a.setState("undrain NODE", "End the draining of a node",
		"Marks a draining node as active again.", cluster.NodeActive, "node %s is active (%s)\n")
}

func (a *app) setState(
	use, short, long string, state cluster.NodeState, done string,
) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long,
		Example: a.examples("node " + strings.Replace(use, "NODE", "n7", 1)),
		Args:    arguments("NODE"),
		RunE: a.withStore(func(ctx context.Context, s *session, args []string) error {
			n, err := s.findNode(ctx, a, args[0])
			if err != nil {
				return err
			}
			if n.State != cluster.NodeActive && n.State != cluster.NodeDraining {
				return hint(fmt.Errorf("node %s is %s", n.Name, n.State),
					"a suspect node becomes active when its agent reports back; a fenced node rejoins")
			}
			n, err = s.registry.Nodes.Update(ctx, n, func(n *cluster.Node) { n.State = state })
			if err != nil {
				return err
			}
			a.printf(done, n.Name, plural(len(n.Blocks), "block"))
			return nil
		}),
	}
}

func (s *session) findNode(ctx context.Context, a *app, name string) (registry.Node, error) {
	n, err := s.registry.Nodes.Read(ctx, name)
	if errors.Is(err, registry.ErrNotFound) {
		snapshot, listErr := s.registry.Snapshot(ctx)
		if unknown := a.known(snapshot, name, ""); unknown != nil {
			err = errors.Join(unknown, listErr)
		}
	}
	return n, err
}

func (a *app) nodeRejoin() *cobra.Command {
	return a.yesFlag(&cobra.Command{
		Use:   "rejoin",
		Short: "Let this fenced node rejoin although reservations are left",
		Long: `Run it on a node that was fenced while it was unreachable. Its blocks are lost:
other nodes may use the addresses of its containers. The node rejoins by itself
when the last of these containers is detached. With rejoin you confirm that none
of the listed containers runs any more; the node then frees their addresses, and
its agent joins with the next epoch.`,
		Example: a.examples("node rejoin"),
		Args:    arguments(),
		RunE: a.withStore(func(ctx context.Context, s *session, _ []string) error {
			n, err := s.findNode(ctx, a, s.settings.Node)
			if err != nil {
				return err
			}
			if n.State != cluster.NodeFenced {
				a.printf("node %s is %s: it need not rejoin\n", n.Name, n.State)
				return nil
			}
			store := s.local()
			count := 0
			err = eachPool(ctx, store, func(name string, p *local.Pool) error {
				leases, err := p.Leases(ctx)
				for _, l := range leases {
					a.printf("pool %s: %s\n", name, l)
				}
				count += len(leases)
				return err
			})
			if err != nil {
				return err
			}
			if count > 0 {
				if err := a.confirmed("Do all of these containers no longer run?"); err != nil {
					return err
				}
			}
			if err := forgetLost(ctx, store); err != nil {
				return err
			}
			a.printf("freed %s of earlier containers; the agent rejoins by itself\n",
				plural(count, "address"))
			return nil
		}),
	})
}

// eachPool calls body with every pool of this node, locked.
func eachPool(
	ctx context.Context, store *local.Store, body func(name string, p *local.Pool) error,
) error {
	names, err := store.Pools()
	if err != nil {
		return err
	}
	for _, name := range names {
		p, err := store.Open(ctx, name, false)
		if err != nil {
			return fmt.Errorf("pool %s: %w", name, err)
		}
		if err := errors.Join(body(name, p), p.Close()); err != nil {
			return fmt.Errorf("pool %s: %w", name, err)
		}
	}
	return nil
}

// forgetLost frees all addresses of this node and removes its lost blocks.
func forgetLost(ctx context.Context, store *local.Store) error {
	return eachPool(ctx, store, func(_ string, p *local.Pool) error {
		leases, err := p.Leases(ctx)
		for _, l := range leases {
			_, releaseErr := p.Release(ctx, l.Owner)
			err = errors.Join(err, releaseErr)
		}
		if err != nil {
			return err
		}
		p.State.Blocks = slices.DeleteFunc(p.State.Blocks,
			func(b local.Block) bool { return b.Phase == local.Lost })
		return p.Save()
	})
}

func (a *app) nodeReset() *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Make this node forget its identity, for copied disks",
		Long: `Removes the cluster state of this node: identity, blocks and samples. Use it once on
a computer with a copied disk, before its agent starts; otherwise two nodes would
claim to be the same one. Stop the agent first. reset refuses if addresses are
reserved; with --force it removes these reservations, too.`,
		Example: a.examples("node reset"),
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf, err := settings.Load(cmd.Flags(), a.Lookup)
			if err != nil {
				return err
			}
			return a.resetNode(cmd.Context(), conf, force)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also remove reservations")
	return a.yesFlag(cmd)
}

func (a *app) resetNode(ctx context.Context, conf settings.Settings, force bool) error {
	s := &session{settings: conf}
	store := s.local()
	node, err := store.Node()
	if errors.Is(err, fs.ErrNotExist) {
		a.printf("this node has no identity in %s\n", conf.Dir)
		return nil
	}
	if err != nil && !force {
		return err
	}
	ask, cancel := context.WithTimeout(ctx, agentPatience)
	defer cancel()
	q := agentcall.Request{Verb: agentcall.Report}
	if _, err := agentcall.Call(ask, conf.Socket, q); err == nil {
		return hint(errors.New("the agent runs"), "stop it first: systemctl stop tenon-cluster.service")
	}
	reserved := 0
	err = eachPool(ctx, store, func(_ string, p *local.Pool) error {
		leases, err := p.Leases(ctx)
		reserved += len(leases)
		return err
	})
	if err != nil && !force {
		return err
	}
	if reserved > 0 && !force {
		return hint(fmt.Errorf("%s reserved on this node", plural(reserved, "address")),
			"list them: tenon ipam list", "if no container of them runs here, add --force")
	}
	if err := a.confirmed(fmt.Sprintf("Forget that this is node %s of cluster %s?", node.Name,
		node.Cluster)); err != nil {
		return err
	}
	if err := os.RemoveAll(conf.Dir); err != nil {
		return err
	}
	a.printf("removed %s; the agent joins as a new node, which needs a name that no other node has\n",
		conf.Dir)
	return nil
}

func (a *app) nodeLeave() *cobra.Command {
	return a.yesFlag(&cobra.Command{
		Use:   "leave NODE",
		Short: "Remove a node that holds nothing any more",
		Long: `Removes a node from the cluster. First drain it and stop its agent, or release it.
leave refuses a node that is alive or has blocks. A node that joins later under
the same name starts anew.`,
		Example: a.examples("node leave n7"),
		Args:    arguments("NODE"),
		RunE: a.withStore(func(ctx context.Context, s *session, args []string) error {
			n, err := s.findNode(ctx, a, args[0])
			if err != nil {
				return err
			}
			if n.Live {
				return hint(fmt.Errorf("node %s is alive", n.Name), "drain it: "+a.name+" node drain "+
					n.Name, "then stop its agent and run the command again after 30 s")
			}
			if len(n.Blocks) > 0 {
				return hint(fmt.Errorf("node %s has %s", n.Name, plural(len(n.Blocks), "block")),
					"list them: "+a.name+" blocks --node "+n.Name,
					"if the node is off: "+a.name+" release --node "+n.Name)
			}
			if err := a.confirmed(fmt.Sprintf("Remove node %s?", n.Name)); err != nil {
				return err
			}
			if err := s.registry.Nodes.Delete(ctx, n.Name); err != nil {
				return err
			}
			a.printf("removed node %s\n", n.Name)
			return nil
		}),
	})
}
