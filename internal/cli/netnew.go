package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/compose"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/all"
)

func (a *app) netNew() *cobra.Command {
	r := &settings{app: a}
	var o newOptions
	cmd := &cobra.Command{
		Use:   "new NAME --type PLUGIN [--subnet CIDR ...]",
		Short: "Write the configuration of a network",
		Long: `Writes a configuration that usually does: a bridge is the default gateway of its containers, bridge
and ptp hide their network behind the host, and each container gets an address out of each subnet
(host-local), or one of the DHCP server on its link (--dhcp), for which tenon dhcp-daemon has to run.
Plugins behind it (--with) do what the runtime asks of them for each container, such as ports and
limits of bandwidth. Everything else can be edited in the file, which is never overwritten.`,
		Example: `  tenon net new pods --type bridge --subnet 10.88.0.0/16 --subnet fd00:88::/64
  tenon net new pods --type bridge --subnet 10.88.0.0/16 --with portmap,firewall,bandwidth,tuning
  tenon net new lan --type macvlan --master eth0 --dhcp
  tenon net new edge --type ptp --subnet 10.9.0.0/24 --gateway 10.9.0.254 --stdout`,
		Args: arguments(1, "NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			n, err := r.compose(args[0], o)
			if err != nil {
				return err
			}
			content, err := n.List()
			if err != nil {
				return err
			}
			if o.stdout {
				_, err := a.stdout.Write(content)
				return err
			}
			path, err := compose.Write(r.netDir, o.fileName(n.Name), n.Name, content)
			if errors.Is(err, fs.ErrExist) {
				return hint(cni.Errorf(cni.CodeInvalidConfig, "%w", err), r.command("see what is there: ", "net", "explain", n.Name))
			}
			if err != nil {
				return r.needsRoot(err)
			}
			_, err = fmt.Fprintln(a.stdout, path)
			return err
		},
	}
	r.netDirFlag(cmd)
	r.pluginDirFlag(cmd)
	o.flags(cmd)
	return cmd
}

// newOptions are the flags of net new.
type newOptions struct {
	typ      string
	subnets  []string
	gateways []string
	dhcp     bool
	master   string
	with     []string
	file     string
	stdout   bool
}

func (o *newOptions) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.typ, "type", "", "`PLUGIN` that makes the interfaces; needed")
	flags.StringArrayVar(&o.subnets, "subnet", nil, "give each container an address of `CIDR`; repeatable")
	flags.StringArrayVar(&o.gateways, "gateway", nil, "use `IP` as gateway of its subnet (default: its first address); repeatable")
	flags.BoolVar(&o.dhcp, "dhcp", false, "addresses are those of the DHCP server on the link")
	flags.StringVar(&o.master, "master", "", "interface of the host, for plugins that have a `LINK` above theirs")
	flags.StringSliceVar(&o.with, "with", nil, "put `PLUGINS`, separated by commas, behind it; repeatable")
	flags.StringVar(&o.file, "file", "", "`NAME` of the file (default: 10-NAME.conflist)")
	flags.BoolVar(&o.stdout, "stdout", false, "print the configuration instead of writing it")
	_ = cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(builtInNames(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("with", cobra.FixedCompletions(chainedNames(), cobra.ShellCompDirectiveNoFileComp))
}

func (o *newOptions) fileName(name string) string {
	if o.file == "" {
		return "10-" + name + ".conflist"
	}
	return o.file
}

// compose reads the options.
func (r *settings) compose(name string, o newOptions) (compose.Network, error) {
	n := compose.Network{Name: name, Type: o.typ, DHCP: o.dhcp, Master: o.master}
	if n.Type == "" {
		return n, hint(usagef("missing --type"), r.again("for example: ", "--type", "bridge"))
	}
	if err := r.isPlugin(n.Type); err != nil {
		return n, err
	}
	if i := slices.Index(builtInNames(), n.Type); i >= 0 && all.Plugins[i].Role == plugin.RoleIPAM {
		return n, hint(usagef("%s manages addresses for plugins that make interfaces", n.Type), "for example --type bridge --subnet 10.88.0.0/16")
	}
	for _, typ := range o.with {
		c, err := r.chained(typ)
		if err != nil {
			return n, err
		}
		n.Chained = append(n.Chained, c)
	}
	if o.file != "" && (isPath(o.file) || filepath.Ext(o.file) != ".conflist") {
		return n, usagef("--file %q is not the name of a file that ends in .conflist", o.file)
	}
	for _, text := range o.subnets {
		s, err := netip.ParsePrefix(text)
		if err != nil {
			return n, usagef("--subnet %q is not of the form ADDRESS/LENGTH", text)
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

// isPlugin fails if there is no such plugin.
func (r *settings) isPlugin(typ string) error {
	if _, err := invoke.Lookup(r.caller, r.pluginDirs.list, typ); err != nil && !builtIn(typ) {
		return hint(r.didYouMean(usagef("there is no plugin %q", typ), typ, builtInNames()), fmt.Sprintf("it is neither built in nor in %v", &r.pluginDirs))
	}
	return nil
}

// chained reads a plugin that is to stand behind another. It gets all that it can get from the runtime, as far as known.
func (r *settings) chained(typ string) (compose.Chained, error) {
	if err := r.isPlugin(typ); err != nil {
		return compose.Chained{}, err
	}
	c := compose.Chained{Type: typ}
	if i := slices.Index(builtInNames(), typ); i >= 0 {
		if all.Plugins[i].Role != plugin.RoleChained {
			return c, hint(usagef("%s does not work on what another plugin has made", typ), fmt.Sprintf("these do: %s", strings.Join(chainedNames(), ", ")))
		}
		c.Capabilities = all.Plugins[i].Capabilities
	}
	return c, nil
}

// chainedNames are the built-in plugins that stand behind another.
func chainedNames() (names []string) {
	for _, d := range all.Plugins {
		if d.Role == plugin.RoleChained {
			names = append(names, d.Name)
		}
	}
	return names
}
