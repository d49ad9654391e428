package cli

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ops/inspect"
)

func (a *app) ipamShow() *cobra.Command {
	r := &settings{app: a}
	cmd := &cobra.Command{
		Use:   "show ADDRESS",
		Short: "Show the holder of an address",
		Long: `Shows the holder of an address, since when it has held the address, and whether the
holder still exists, for each network that contains the address in a range or as a
reservation. States are those of "tenon ipam list" and:
  free      not reserved
  gateway   never allocated
  lost      in a block that this node has lost`,
		Example: `  tenon ipam show 10.88.0.2
  tenon ipam show fd00:88::2 --json`,
		Args: arguments(1, "ADDRESS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			addr, err := address(args[0])
			if err != nil {
				return err
			}
			all, readErr := r.reservations(cmd.Context())
			found := all.show(addr)
			if len(found) == 0 {
				err = hint(
					fmt.Errorf("%s is in no range of a network, and not reserved", addr),
					r.elsewhere(),
				)
				return r.explain(errors.Join(err, readErr), nil)
			}
			err = r.print(found, func() error { return printShown(a.stdout, found) })
			return a.unfinished(cmd, r.explain(errors.Join(err, readErr), nil))
		},
	}
	r.netDirFlag(cmd)
	r.recordFlags(cmd)
	r.outputFlags(cmd)
	return cmd
}

// address parses an argument.
func address(arg string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(arg)
	if err != nil || addr.Zone() != "" {
		return addr, usagef("%q is not an IP address", arg)
	}
	return addr.Unmap(), nil
}

// shown is an address in one network. The members of the lease are absent if the address is not
// reserved.
type shown struct {
	Network    string        `json:"network"`
	Pool       string        `json:"pool,omitempty"` // of a cluster
	DataDir    string        `json:"dataDir"`
	Address    netip.Addr    `json:"address"`
	Range      *rangeEntry   `json:"range,omitempty"` // absent: the address is in no range
	State      string        `json:"state"`
	Container  string        `json:"containerID,omitempty"`
	IfName     string        `json:"ifname,omitempty"`
	Since      time.Time     `json:"since,omitzero"`
	Attachment inspect.State `json:"attachment,omitempty"`

	usage string
	age   time.Duration
}

func (r *reservations) show(addr netip.Addr) []shown {
	var all []shown
	for _, p := range r.pools {
		s := shown{Network: p.Network, DataDir: p.Dir, Address: addr}
		for _, rng := range p.Ranges {
			if rng.Contains(addr) {
				entry := newRangeEntry(rng)
				s.Range, s.State, s.usage = &entry, "free", usage(rng)
				if addr == rng.Gateway {
					s.State = "gateway"
				}
			}
		}
		if l, ok := p.Find(addr); ok {
			e := r.leaseEntry(p.Network, l)
			s.State, s.Container, s.IfName, s.Since, s.Attachment, s.age = e.State, e.Container, e.IfName, e.Since, e.Attachment, l.Age
		}
		if s.State != "" {
			all = append(all, s)
		}
	}
	return append(all, r.showCluster(addr)...)
}

func printShown(w io.Writer, all []shown) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, s := range all {
		if i > 0 {
			fmt.Fprintln(t)
		}
		fmt.Fprintf(t, "address\t%s\n", s.Address)
		switch {
		case s.Pool == "":
			fmt.Fprintf(t, "network\t%s in %s\n", s.Network, s.DataDir)
		case s.Network != "":
			fmt.Fprintf(t, "network\t%s\n", s.Network)
			fallthrough
		default:
			fmt.Fprintf(t, "pool\t%s in %s\n", s.Pool, s.DataDir)
		}
		if s.Range != nil {
			fmt.Fprintf(t, "range\t%s, gateway %s\n", s.usage, s.Range.Gateway)
		}
		fmt.Fprintf(t, "state\t%s\n", s.State)
		if s.Container != "" {
			fmt.Fprintf(t, "container\t%s\n", s.Container)
			fmt.Fprintf(
				t,
				"since\t%s, %s ago\n",
				s.Since.Format(time.RFC3339),
				ipam.FormatAge(s.age),
			)
		}
		for _, optional := range [][2]string{{"interface", s.IfName}, {"attachment", string(s.Attachment)}} {
			if optional[1] != "" {
				fmt.Fprintf(t, "%s\t%s\n", optional[0], optional[1])
			}
		}
	}
	return t.Flush()
}
