package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/lint"
	"github.com/tenon-cni/tenon/internal/ops/netconf"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network/config"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/all"
)

func (a *app) netNew() *cobra.Command {
	r := &settings{app: a}
	var o newOptions
	cmd := &cobra.Command{
		Use:   "new NAME --type PLUGIN [--subnet CIDR ...]",
		Short: "Write the configuration of a network",
		Long: `Writes a network configuration with sensible defaults. A bridge is the default
gateway of its containers; bridge and ptp masquerade traffic that leaves the node;
each container gets an address from each subnet (host-local), or from the DHCP
server on its link (--dhcp, which requires tenon dhcp-daemon). Chained plugins
(--with) add what the runtime requests per container, such as host ports or
bandwidth limits. Never overwrites a file; edit the file for other options.

Without --subnet, bridge and ptp use the first free subnet of 10.88.0.0/16 to
10.127.0.0/16, without 10.96.0.0/12 (Kubernetes services), and with --ipv6 also one
of fd00:88::/64 to fd00:127::/64. A subnet is free if no network in --net-dir and no
address or route of this host uses it. The choice is printed on standard error. An
overlapping --subnet is refused; with --master, addresses and routes of the host do
not count. "--subnet none" creates a network without addresses.

Refuses a configuration in which "tenon net lint" finds errors, and prints its
warnings.`,
		Example: `  tenon net new pods --type bridge
  tenon net new pods --type bridge --subnet 10.88.0.0/16 --subnet fd00:88::/64
  tenon net new web --type bridge --with portmap,firewall,bandwidth
  tenon net new lan --type macvlan --master eth0 --dhcp
  tenon net new edge --type ptp --subnet 10.9.0.0/24 --stdout`,
		Args: arguments(1, "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := r.compose(args[0], o)
			if err != nil {
				return err
			}
			if err := n.Validate(); err != nil {
				return err
			}
			c, err := config.Discover(r.netDir)
			if err != nil {
				return r.needsRoot(err)
			}
			chosen, err := r.number(cmd.Context(), &n, o, c)
			if err != nil {
				return err
			}
			content, err := n.List()
			if err != nil {
				return err
			}
			if err := r.refuseErrors(content, c.Policy); err != nil {
				return err
			}
			if o.stdout {
				_, err := a.stdout.Write(content)
				r.printChosen(chosen, n)
				return err
			}
			path, err := netconf.Write(
				r.netDir,
				cmp.Or(o.file, "10-"+n.Name+".conflist"),
				n.Name,
				content,
			)
			if errors.Is(err, fs.ErrExist) {
				return hint(
					cni.Errorf(cni.CodeInvalidConfig, "%w", err),
					r.command("show the existing files: ", "net", "explain", n.Name),
				)
			}
			if err != nil {
				return r.needsRoot(err)
			}
			r.printChosen(chosen, n)
			if r.output.Structured() {
				return r.printValue(newReport{path, append([]netip.Prefix{}, n.Subnets...), chosen})
			}
			_, err = fmt.Fprintln(a.stdout, path)
			return err
		},
	}
	r.netDirFlag(cmd)
	r.pluginDirFlag(cmd)
	r.outputFlags(cmd)
	o.flags(cmd)
	return cmd
}

// newOptions holds the flags of net new.
type newOptions struct {
	typ      string
	subnets  []string
	ipv6     bool
	overlap  bool
	gateways []string
	dhcp     bool
	master   string
	with     []string
	file     string
	stdout   bool
}

func (o *newOptions) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.typ, "type", "", "`PLUGIN` that creates the interfaces; required")
	flags.StringArrayVar(
		&o.subnets,
		"subnet",
		nil,
		"allocate addresses from `CIDR`, or none; repeatable (default for bridge and ptp: a free subnet)",
	)
	flags.BoolVar(&o.ipv6, "ipv6", false, "also choose a free IPv6 subnet if --subnet is not given")
	flags.BoolVar(&o.overlap, "allow-overlap", false, "accept a --subnet that is already in use")
	flags.StringArrayVar(
		&o.gateways,
		"gateway",
		nil,
		"use `IP` as the gateway of its subnet (default: the first address); repeatable",
	)
	flags.BoolVar(&o.dhcp, "dhcp", false, "get addresses from the DHCP server on the link")
	flags.StringVar(
		&o.master,
		"master",
		"",
		"parent interface `LINK` on the host, for macvlan, ipvlan and vlan; the bridge, for ovs",
	)
	flags.StringSliceVar(
		&o.with,
		"with",
		nil,
		"append the chained `PLUGINS`, separated by commas; repeatable",
	)
	flags.StringVar(&o.file, "file", "", "file `NAME` (default: 10-NAME.conflist)")
	flags.BoolVar(&o.stdout, "stdout", false, "print the configuration instead of writing it")
	_ = cmd.RegisterFlagCompletionFunc(
		"type",
		cobra.FixedCompletions(pluginNames(), cobra.ShellCompDirectiveNoFileComp),
	)
	_ = cmd.RegisterFlagCompletionFunc(
		"with",
		cobra.FixedCompletions(chainedNames(), cobra.ShellCompDirectiveNoFileComp),
	)
}

// noSubnet is the value of --subnet for a network without addresses.
const noSubnet = "none"

// newReport is the output of net new as JSON.
type newReport struct {
	Path    string         `json:"path"`
	Subnets []netip.Prefix `json:"subnets"`
	Chosen  bool           `json:"chosen"` // the subnets were not given
}

// number gives a network the first free subnets if it needs some and none is given. Otherwise it
// refuses subnets that are in use.
func (r *settings) number(
	ctx context.Context,
	n *netconf.Draft,
	o newOptions,
	c *config.Catalog,
) (chosen bool, err error) {
	choose := n.Numbered() && len(o.subnets) == 0
	if !choose && (o.overlap || len(n.Subnets) == 0) {
		if o.ipv6 {
			return false, usagef(
				"--ipv6 requires --type bridge or ptp, without --dhcp, --master and --gateway",
			)
		}
		return false, nil
	}
	uses, err := n.Uses(ctx, c)
	if err != nil {
		return false, err
	}
	if !choose {
		if err := n.Overlap(uses); err != nil {
			return false, r.overlapping(err, *n, o, uses)
		}
		return false, nil
	}
	families := []bool{false}
	if o.ipv6 {
		families = append(families, true)
	}
	for _, ipv6 := range families {
		s, err := netconf.Free(uses, ipv6)
		if err != nil {
			return false, hint(err, r.again("name a subnet: ", "--subnet", "CIDR"))
		}
		n.Subnets = append(n.Subnets, s)
	}
	return true, nil
}

// printChosen prints the subnets on standard error if tenon has chosen them.
func (r *settings) printChosen(chosen bool, n netconf.Draft) {
	for _, s := range n.Subnets {
		if chosen {
			fmt.Fprintf(r.stderr, "chosen: free subnet %s\n", s)
		}
	}
}

// overlapping adds a hint to the error about a subnet that is in use: the command with a free one.
func (r *settings) overlapping(err error, n netconf.Draft, o newOptions, uses []netconf.Use) error {
	for i, s := range n.Subnets {
		one := n
		one.Subnets = []netip.Prefix{s}
		free, freeErr := netconf.Free(uses, !s.Addr().Is4())
		if one.Overlap(uses) != nil && freeErr == nil {
			err = hint(err, r.instead("use a free one:", o.subnets[i], free.String()))
			break
		}
	}
	return hint(
		err,
		"use --allow-overlap to accept it; containers then cannot reach hosts with the same addresses elsewhere",
	)
}

// refuseErrors lints a configuration. It returns the findings with severity error as an error, and
// prints warnings.
func (r *settings) refuseErrors(content []byte, policy *config.Policy) error {
	found, err := lint.Content(content, policy)
	if err != nil {
		return err
	}
	var wrong []string
	var hints []string
	for _, f := range found {
		switch {
		case f.Severity == lint.Error:
			wrong = append(wrong, fmt.Sprintf("%s [%s]", f.Message, f.Rule))
			if f.Hint != "" {
				hints = append(hints, f.Hint)
			}
		case f.Severity == lint.Warning:
			r.warn("%s [%s]", f.Message, f.Rule)
		}
	}
	if wrong == nil {
		return nil
	}
	err = cni.Errorf(cni.CodeInvalidConfig, "nothing written: %s", strings.Join(wrong, "\n"))
	return hint(err, hints...)
}

// compose turns the options into a draft.
func (r *settings) compose(name string, o newOptions) (netconf.Draft, error) {
	n := netconf.Draft{Name: name, Type: o.typ, DHCP: o.dhcp, Master: o.master}
	if n.Type == "" {
		return n, hint(usagef("missing --type"), r.again("for example: ", "--type", "bridge"))
	}
	if err := r.isPlugin(n.Type); err != nil {
		return n, err
	}
	if d := all.Find(n.Type); d != nil && d.Role == plugin.RoleIPAM {
		return n, hint(
			usagef("%s is an IPAM plugin and creates no interface", n.Type),
			"for example --type bridge",
		)
	}
	if n.Type == "ovs" && n.Master == "" {
		return n, hint(
			usagef("--type ovs requires --master, the name of a bridge of Open vSwitch"),
			r.again("for example: ", "--master", "br0"),
		)
	}
	for _, typ := range o.with {
		c, err := r.chained(typ)
		if err != nil {
			return n, err
		}
		n.Chained = append(n.Chained, c)
	}
	if o.file != "" && (isPath(o.file) || filepath.Ext(o.file) != ".conflist") {
		return n, usagef("--file %q must be a file name that ends in .conflist", o.file)
	}
	if len(o.subnets) > 0 && o.ipv6 {
		return n, usagef("--ipv6 and --subnet exclude each other")
	}
	for _, text := range o.subnets {
		if text == noSubnet && len(o.subnets) == 1 {
			continue
		}
		s, err := netip.ParsePrefix(text)
		if err != nil {
			return n, usagef("--subnet %q must have the form ADDRESS/LENGTH", text)
		}
		n.Subnets = append(n.Subnets, s)
	}
	for _, text := range o.gateways {
		gw, err := netip.ParseAddr(text)
		if err != nil {
			return n, usagef("--gateway %q is not an IP address", text)
		}
		n.Gateways = append(n.Gateways, gw)
	}
	return n, nil
}

// isPlugin returns an error if a plugin is neither built in nor installed.
func (r *settings) isPlugin(typ string) error {
	if _, err := invoke.Lookup(r.caller, r.pluginDirs.list, typ); err != nil && all.Find(typ) == nil {
		return hint(
			r.didYouMean(usagef("unknown plugin %q", typ), typ, pluginNames()),
			fmt.Sprintf("it is neither built in nor in %v", &r.pluginDirs),
		)
	}
	return nil
}

// chained returns a chained plugin with all capabilities that it supports, as far as they are
// known.
func (r *settings) chained(typ string) (netconf.Chained, error) {
	if err := r.isPlugin(typ); err != nil {
		return netconf.Chained{}, err
	}
	c := netconf.Chained{Type: typ}
	if d := all.Find(typ); d != nil {
		if d.Role != plugin.RoleChained {
			return c, hint(
				usagef("%s is not a chained plugin", typ),
				fmt.Sprintf("chained plugins: %s", strings.Join(chainedNames(), ", ")),
			)
		}
		c.Capabilities = d.Capabilities
	}
	return c, nil
}

// chainedNames returns the names of the built-in chained plugins.
func chainedNames() (names []string) {
	for _, d := range all.Described() {
		if d.Role == plugin.RoleChained {
			names = append(names, d.Name)
		}
	}
	return names
}
