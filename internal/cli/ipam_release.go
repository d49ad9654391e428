package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ops/inspect"
)

// release holds the flags of the command.
type release struct {
	settings
	network   string
	container string
	ifName    string
	dryRun    bool
	force     bool

	addr netip.Addr // the argument
}

func (a *app) ipamRelease() *cobra.Command {
	r := &release{settings: settings{app: a}}
	cmd := &cobra.Command{
		Use:   "release ADDRESS | --id ID",
		Short: "Release addresses of holders that no longer exist",
		Long: `Releases the reservation of an address, or all reservations of a container, also
those in the old format, which names no interface. Use it for holders that will
never be detached; "tenon del" and "tenon gc" clean up more. Unless --force is given,
refuses to release addresses of attachments that any runtime of this host has
recorded, and addresses that an interface in a network namespace still has. Finds the
namespaces in /run/netns, /run/docker/netns and those of processes and attachments.`,
		Example: `  tenon ipam release 10.88.0.2 --dry-run
  tenon ipam release 10.88.0.2 --network pods
  tenon ipam release --id web-1 --ifname eth0`,
		Args: arguments(0, "ADDRESS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.parse(args); err != nil {
				return err
			}
			all, readErr := r.reservations(cmd.Context())
			if err := r.run(cmd, &all); err != nil {
				return r.explain(errors.Join(err, readErr), nil)
			}
			return nil
		},
	}
	r.netDirFlag(cmd)
	r.recordFlags(cmd)
	r.outputFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&r.network, "network", "", "only in network `NAME`")
	flags.StringVar(&r.container, "id", "", "release all addresses of container `ID`")
	flags.StringVar(&r.ifName, "ifname", "", "with --id: only addresses of interface `NAME`")
	flags.BoolVar(&r.dryRun, "dry-run", false, "print what would be released, and change nothing")
	flags.BoolVar(&r.force, "force", false, "also release addresses in use")
	return cmd
}

func (r *release) parse(args []string) (err error) {
	if (len(args) == 1) == (r.container != "") {
		return usagef("give either ADDRESS or --id")
	}
	if r.ifName != "" && r.container == "" {
		return usagef("--ifname requires --id")
	}
	if len(args) == 1 {
		r.addr, err = address(args[0])
	}
	return err
}

// chosen is a lease to release.
type chosen struct {
	network string
	dir     string
	lease   ipam.Lease
	free    func(context.Context) error
}

func (r *release) run(cmd *cobra.Command, all *reservations) error {
	leases := r.choose(all)
	if len(leases) == 0 {
		return hint(
			errors.New(r.notReserved()),
			r.command("list reservations: ", "ipam", "list"),
		)
	}
	if r.addr.IsValid() && len(leases) > 1 {
		return hint(
			fmt.Errorf(
				"%s is reserved in networks %s and %s",
				r.addr,
				leases[0].network,
				leases[1].network,
			),
			r.again("choose a network: ", "--network", leases[0].network),
		)
	}
	if err := r.refuse(cmd.Context(), leases, all); err != nil && !r.force {
		err = hint(err, r.again("release it anyway: ", "--force"))
		if r.dryRun {
			return r.wouldRefuse(err)
		}
		return err
	}
	released := []releasedEntry{}
	var errs []error
	for _, c := range leases {
		if !r.dryRun {
			if err := c.free(cmd.Context()); err != nil {
				errs = append(errs, fmt.Errorf("network %s: %w", c.network, err))
				continue
			}
		}
		released = append(
			released,
			releasedEntry{c.network, c.dir, all.leaseEntry(c.network, c.lease)},
		)
		if !r.output.Structured() {
			verb := map[bool]string{false: "released", true: "would release"}[r.dryRun]
			fmt.Fprintf(r.stdout, "%s in network %s: %s\n", verb, c.network, c.lease)
		}
	}
	if r.output.Structured() {
		if err := r.printValue(released); err != nil {
			return err
		}
	}
	return r.unfinished(cmd, r.explain(errors.Join(errs...), nil))
}

// notReserved is the error that the arguments match no reservation.
func (r *release) notReserved() string {
	text := fmt.Sprintf("%s is not reserved", r.addr)
	if r.container != "" {
		text = fmt.Sprintf("container %s has no reservations", r.container)
	}
	if r.network != "" {
		text += " in network " + r.network
	}
	return text
}

// wouldRefuse prints why nothing would be released.
func (r *release) wouldRefuse(err error) error {
	w := io.Writer(r.stdout)
	if r.output.Structured() {
		if err := r.printValue([]releasedEntry{}); err != nil {
			return err
		}
		w = r.stderr
	}
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(w, "would release nothing: %s\n", strings.TrimSpace(line))
	}
	r.printHints(err)
	return nil
}

// releasedEntry is a released address as JSON.
type releasedEntry struct {
	Network string `json:"network"`
	DataDir string `json:"dataDir"`
	leaseEntry
}

func (r *release) choose(all *reservations) []chosen {
	var list []chosen
	for i := range all.pools {
		p := &all.pools[i]
		for _, l := range p.Leases {
			if r.names(p.Network, l) {
				free := func(ctx context.Context) error { return p.Free(ctx, l) }
				list = append(list, chosen{p.Network, p.Dir, l, free})
			}
		}
	}
	for _, p := range all.cluster {
		for _, l := range p.leases {
			if r.names(l.Owner.Network, l) {
				free := func(ctx context.Context) error { return p.free(ctx, l) }
				list = append(list, chosen{l.Owner.Network, p.dir, l, free})
			}
		}
	}
	return list
}

// names reports whether the arguments name a lease of a network.
func (r *release) names(network string, l ipam.Lease) bool {
	if r.network != "" && r.network != network {
		return false
	}
	if r.container == "" {
		return l.Addr == r.addr
	}
	return l.Owner.Container == r.container &&
		(r.ifName == "" || l.Owner.IfName == "" || l.Owner.IfName == r.ifName)
}

// refuse returns an error that lists the addresses of recorded attachments and those that an
// interface of this host has. Recorded addresses that were reserved before the node was restarted
// are not in use.
func (r *release) refuse(ctx context.Context, leases []chosen, all *reservations) error {
	if all.recordsErr != nil {
		return errors.New("cannot determine whether the holder is recorded")
	}
	holders, err := inspect.ReadHolders(ctx, all.attachments)
	if err != nil {
		return fmt.Errorf("cannot determine whether a network namespace has the address: %w", err)
	}
	var errs []error
	var hints []string
	for _, c := range leases {
		holder, ok := inspect.Holder(all.attachments, c.network, c.lease)
		if ok && c.lease.Boot != ipam.BootEarlier {
			key := holder.Attachment
			errs = append(errs,
				fmt.Errorf("%s is held by %v (state: %s)", c.lease.Addr, key, holder.State))
			hints = append(hints, r.detaching(holder.Record))
			continue
		}
		for _, link := range holders.Find(c.network, c.lease.Addr) {
			errs = append(errs, fmt.Errorf("%s is in use by interface %s", c.lease.Addr, link))
		}
	}
	return hint(errors.Join(errs...), slices.Compact(hints)...)
}
