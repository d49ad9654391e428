package command

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
)

// removal holds the flags of release and fence.
type removal struct {
	*app
	address, node, evidence string
	dryRun, force, forget   bool
}

func (a *app) release() *cobra.Command {
	r := &removal{app: a}
	cmd := &cobra.Command{
		Use:   "release --node NAME | --address ADDRESS",
		Short: "Reclaim the blocks of a dead node, or free a shared address",
		Long: `With --node, reclaims everything that a dead node holds, so that its blocks become
free after the cooldown. An expired lease proves nothing: containers of an
unreachable node may run and use their addresses. Make sure that the node is off,
and state how you know it with --evidence; etcd keeps the text and your name.
release refuses a node that is alive.

With --address, frees a shared address: a sticky or requested one. An address of a
node's own block belongs to that node; "tenon ipam release" frees it there.`,
		Example: a.examples("release --node n7 --dry-run",
			"release --node n7 --evidence 'powered off by ipmitool'",
			"release --address 10.64.3.9 --forget"),
		Args: arguments(),
		RunE: a.withStore(func(ctx context.Context, s *session, _ []string) error {
			switch {
			case (r.node == "") == (r.address == ""):
				return usagef("give either --node or --address")
			case r.node != "":
				return r.releaseNode(ctx, s)
			}
			return r.releaseAddress(ctx, s)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&r.address, "address", "", "free shared `ADDRESS`")
	flags.StringVar(&r.node, "node", "", "reclaim the blocks of dead node `NAME`")
	flags.StringVar(&r.evidence, "evidence", "", "`TEXT`: why the node uses no address any more")
	flags.BoolVar(&r.dryRun, "dry-run", false, "print what would be released, and change nothing")
	flags.BoolVar(&r.force, "force", false, "free the address although its node is alive")
	flags.BoolVar(&r.forget, "forget", false, "the sticky name loses the address, too")
	return a.jsonFlag(a.yesFlag(cmd))
}

func (a *app) fence() *cobra.Command {
	r := &removal{app: a}
	cmd := &cobra.Command{
		Use:   "fence NODE",
		Short: "Record the evidence that a node is off",
		Long: `Records in etcd that a node uses no address any more, with the evidence and your
name. Its blocks stay claimed; "release --node" reclaims them. Scripts for power
control and cloud hooks call fence after they have switched a node off. fence
refuses a node that is alive.`,
		Example: a.examples("fence n7 --evidence 'instance terminated' --yes"),
		Args:    arguments("NODE"),
		RunE: a.withStore(func(ctx context.Context, s *session, args []string) error {
			r.node = args[0]
			n, err := r.dead(ctx, s)
			if err != nil {
				return err
			}
			if n.State == cluster.NodeFenced {
				a.printf("node %s is fenced already, by %s: %s\n", n.Name, n.Author, n.Evidence)
				return nil
			}
			if n, err = r.fenceNode(ctx, s, n); err != nil {
				return err
			}
			a.printf("fenced node %s, epoch %d; it keeps %s until they are released\n", n.Name, n.Epoch,
				plural(len(n.Blocks), "block"))
			return nil
		}),
	}
	cmd.Flags().StringVar(&r.evidence, "evidence", "", "`TEXT`: why the node uses no address any more")
	return a.yesFlag(cmd)
}

// dead reads the node and refuses one that is alive.
func (r *removal) dead(ctx context.Context, s *session) (registry.Node, error) {
	n, err := s.findNode(ctx, r.app, r.node)
	if err != nil {
		return n, err
	}
	if n.Live {
		err := fmt.Errorf("node %s is alive: etcd heard from its agent within the last 30 s", n.Name)
		return n, hint(err, "to empty a running node: "+r.name+" node drain "+n.Name,
			"if the node was switched off just now, run the command again in a minute")
	}
	return n, nil
}

// fenceNode makes a silent node suspect and then fenced, after confirmation.
func (r *removal) fenceNode(
	ctx context.Context, s *session, n registry.Node,
) (registry.Node, error) {
	if strings.TrimSpace(r.evidence) == "" {
		return n, hint(fmt.Errorf("node %s: evidence that it is off is required", n.Name),
			"switch the node off, then state how: --evidence 'powered off by ipmitool'")
	}
	if err := r.confirmed(fmt.Sprintf("Node %s (%s) must be off. If it runs, its %s would be used "+
		"twice. Fence it?", n.Name, addresses(n), plural(len(n.Blocks), "block"))); err != nil {
		return n, err
	}
	var err error
	if n.State != cluster.NodeSuspect {
		if n, err = s.registry.Nodes.Suspect(ctx, n); errors.Is(err, registry.ErrConflict) {
			return n, hint(fmt.Errorf("node %s: its agent has reported back: %w", r.node, err),
				"nothing was changed; the node is alive")
		} else if err != nil {
			return n, err
		}
	}
	return s.registry.Nodes.Fence(ctx, n, r.evidence, r.author(s.settings))
}

func addresses(n registry.Node) string {
	if len(n.Addresses) == 0 {
		return "no address"
	}
	var list []string
	for _, a := range n.Addresses {
		list = append(list, a.String())
	}
	return strings.Join(list, ", ")
}

// nodeRelease is the output of release --node as JSON.
type nodeRelease struct {
	Node      string             `json:"node"`
	DryRun    bool               `json:"dryRun"`
	Blocks    []cluster.BlockRef `json:"blocks"`
	Addresses []cluster.Holder   `json:"addresses"`
}

func (r *removal) releaseNode(ctx context.Context, s *session) error {
	n, err := r.dead(ctx, s)
	if err != nil {
		return err
	}
	held, err := s.registry.Shared.Held(ctx, n.Name)
	if err != nil {
		return err
	}
	out := nodeRelease{n.Name, r.dryRun, append([]cluster.BlockRef{}, n.Blocks...),
		append([]cluster.Holder{}, held...)}
	if !r.dryRun {
		if n.State != cluster.NodeFenced {
			if n, err = r.fenceNode(ctx, s, n); err != nil {
				return err
			}
		}
		for done := false; !done; {
			if n, done, err = s.registry.Nodes.Reclaim(ctx, n, "node released: "+n.Evidence); err != nil {
				return hint(fmt.Errorf("reclaim the blocks of node %s: %w", r.node, err),
					"the node is fenced; run the command again to go on")
			}
		}
	}
	return r.print(out, func() error {
		verb := map[bool]string{false: "released", true: "would release"}[r.dryRun]
		if r.dryRun && n.State != cluster.NodeFenced {
			r.printf("would fence node %s (%s)\n", n.Name, addresses(n))
		}
		for _, b := range out.Blocks {
			r.printf("%s block %s of pool %s\n", verb, b.Block, b.Pool)
		}
		for _, h := range out.Addresses {
			r.printf("%s address %s of pool %s: %s\n", verb, h.Addr, h.Pool, holderText(h))
		}
		if len(out.Blocks)+len(out.Addresses) == 0 {
			r.printf("node %s holds nothing\n", n.Name)
		}
		return nil
	})
}

// holderText names the holder of a shared address.
func holderText(h cluster.Holder) string {
	text := fmt.Sprintf("container %s interface %s on node %s", h.Container, h.IfName, h.Node)
	if h.Name != "" {
		text += fmt.Sprintf(" (%s/%s)", h.Namespace, h.Name)
	}
	return text
}

func (r *removal) releaseAddress(ctx context.Context, s *session) error {
	addr, err := netip.ParseAddr(r.address)
	if err != nil {
		return usagef("%q is not an IP address", r.address)
	}
	snapshot, err := s.registry.Snapshot(ctx)
	if err != nil {
		return err
	}
	for _, h := range snapshot.Holders {
		if h.Addr == addr {
			return r.releaseHolder(ctx, s, snapshot, h)
		}
	}
	return r.notShared(snapshot, addr)
}

func (r *removal) releaseHolder(ctx context.Context, s *session, snapshot registry.Snapshot,
	h cluster.Holder) error {
	for _, n := range snapshot.Nodes {
		if n.Name == h.Node && n.Live && !r.force {
			return hint(fmt.Errorf("%s is held by %s, and the node is alive", h.Addr, holderText(h)),
				fmt.Sprintf("detach the container on node %s; its agent then frees the address", h.Node),
				"if the container no longer exists, add --force")
		}
	}
	if !r.dryRun {
		if err := r.confirmed(fmt.Sprintf("Free %s, held by %s?", h.Addr, holderText(h))); err != nil {
			return err
		}
		if err := s.registry.Shared.Release(ctx, h, r.forget); err != nil {
			return fmt.Errorf("release %s: %w", h.Addr, err)
		}
	}
	return r.print(map[string]any{"dryRun": r.dryRun, "released": h}, func() error {
		verb := map[bool]string{false: "released", true: "would release"}[r.dryRun]
		r.printf("%s %s of pool %s: %s\n", verb, h.Addr, h.Pool, holderText(h))
		return nil
	})
}

// notShared explains why an address has no holder in etcd.
func (r *removal) notShared(snapshot registry.Snapshot, addr netip.Addr) error {
	for _, b := range snapshot.Blocks {
		if !b.Block.Block.Contains(addr) || b.State == cluster.BlockShared {
			continue
		}
		if b.State == cluster.BlockCooling {
			return fmt.Errorf("%s is in block %s, which cools down", addr, b.Block.Block)
		}
		return hint(fmt.Errorf("%s is in block %s of node %s, and only that node knows its holder", addr,
			b.Block.Block, b.Owner),
			"run on that node: tenon ipam show "+addr.String(),
			"then, if the holder no longer exists: tenon ipam release "+addr.String())
	}
	for _, st := range snapshot.Stickies {
		if st.Addr == addr {
			return fmt.Errorf("%s is in no use; it belongs to the name %s/%s", addr, st.Namespace, st.Name)
		}
	}
	for _, p := range snapshot.Pools {
		if p.Range.Contains(addr) {
			return fmt.Errorf("%s of pool %s is free", addr, p.Name)
		}
	}
	return hint(fmt.Errorf("%s is in no pool", addr), "list the pools: "+r.name+" pools")
}
