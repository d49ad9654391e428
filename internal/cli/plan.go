package cli

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/journal"
	"github.com/tenon-cni/tenon/internal/ops/plan"
	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/internal/trace"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
	"github.com/tenon-cni/tenon/plugins/all"
)

// planInside is the hidden command that runs an operation in the scratch world.
const planInside = "plan-inside"

// statusChanges is the exit status of "tenon plan --detailed-exitcode" if there are changes.
const statusChanges = 3

func (a *app) plan() *cobra.Command {
	cmd := parent(&cobra.Command{
		Use:   "plan",
		Short: "Show what add, del, gc or repair would change",
		Long: `Prints what a command would change, in order: links, addresses, routes, rules,
sysctls, leases and attachment records, each with its owner and the reason. Runs the
command in a copy of the network namespaces concerned, with a private view of all
files. Nothing on this host changes, no packet leaves the copy, and no daemon is asked.

Each line begins with + (add), ~ (change), - (delete) or ? (call with unknown effect),
and the place: "host", or the container. An address from a pool is a prediction, marked
with a question mark: another operation can take it first. Plugins of other projects
do not run, and plugins that need a daemon (dhcp, cluster, ovs, and firewall with
firewalld) do not ask it: the plan lists them with "effect unknown", and the changes
after them are uncertain.

Exit status: 0 the command would succeed, 1 it would fail or cannot be planned, 2
wrong usage; with --detailed-exitcode also 3: it would succeed and change something.`,
		Example: `  tenon plan add pods web
  tenon plan del pods web
  tenon plan gc pods --keep-running
  tenon plan repair --drift`,
	})
	for _, c := range []struct {
		of           *cobra.Command
		use, example string
	}{
		{a.add(), "add NETWORK NETNS", "  tenon plan add pods web\n  tenon plan add pods web --json"},
		{a.del(), "del NETWORK [NETNS|-]",
			"  tenon plan del pods web\n  tenon plan del pods - --id web-1"},
		{a.gc(), "gc [NETWORK]", "  tenon plan gc\n  tenon plan gc pods --keep-running"},
		{a.repair(), "repair [NETWORK ...]",
			"  tenon plan repair\n  tenon plan repair pods --drift --detailed-exitcode"},
	} {
		cmd.AddCommand(a.planOf(c.of, c.use, c.example))
	}
	return cmd
}

// planOf turns the command of an operation into the command that plans it.
func (a *app) planOf(cmd *cobra.Command, use, example string) *cobra.Command {
	p := &planning{settings: settings{app: a}, operation: cmd.Name(), flags: cmd.Flags()}
	p.cmd = cmd
	cmd.Use, cmd.Example = use, example
	cmd.Short = "Show what \"tenon " + p.operation + "\" would change"
	cmd.Long = `Prints what "tenon ` + p.operation + `" would change, with the same arguments and flags, and
changes nothing. "tenon plan --help" explains the output and the exit status.`
	if p.operation == "gc" {
		cmd.Long += `
Without NETWORK, prints what "tenon prune" would change.`
		cmd.Args = arguments(0, "NETWORK")
	}
	for _, name := range []string{"dry-run", "verbose"} {
		if f := p.flags.Lookup(name); f != nil {
			f.Hidden = true
		}
	}
	p.flags.BoolVar(&p.drift, "drift", false,
		"list differences between attachment records and the host that would remain")
	p.flags.BoolVar(&p.detailed, "detailed-exitcode", false, "exit with status 3 if there are changes")
	cmd.RunE = p.run
	return cmd
}

// planning is a run of "tenon plan".
type planning struct {
	settings
	operation       string
	flags           *pflag.FlagSet
	drift, detailed bool
}

// value returns a flag of the operation, "" if it has none of that name.
func (p *planning) value(name string) string {
	if f := p.flags.Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}

func (p *planning) run(cmd *cobra.Command, args []string) error {
	p.netDir, p.stateDir, p.cacheDir = p.value("net-dir"), p.value("state-dir"), p.value("cache-dir")
	p.output = *outputOf(cmd)
	inner, apply, err := p.commands(args)
	if err != nil {
		return err
	}
	client := p.client()
	records, err := client.ListHost()
	if err != nil {
		p.warn("some attachments are unknown: %v", err)
	}
	about, options := p.concerns(args, records)
	about.Apply = apply
	dirs, _ := client.RecordDirs() // ListHost has returned the error
	for _, dir := range dirs {     // the locks are in its parent
		about.StateDirs = append(about.StateDirs, filepath.Dir(dir))
		options.Writable = append(options.Writable, filepath.Dir(dir))
	}
	options.Program = append([]string{"/proc/self/exe", planInside}, inner...)
	options.Stderr = p.stderr
	options.Env = []string{journal.Env + "=" + journal.Off, trace.Variable + "="}
	slow := time.AfterFunc(time.Second, func() {
		p.progress("planning in a copy of the network namespaces")
	})
	defer slow.Stop()
	outcome, err := plan.Run(cmd.Context(), options)
	slow.Stop()
	if err != nil {
		return p.needsRoot(err)
	}
	if p.drift || p.operation == "repair" {
		if about.Drift, err = p.findDrift(cmd, records, args, outcome); err != nil {
			return err
		}
	}
	result := plan.New(about, outcome)
	show := func() error { return text.Plan(p.stdout, result, p.drift) }
	if err := p.print(result, show); err != nil {
		return err
	}
	switch {
	case result.Failure != nil:
		return exitStatus(statusFailure)
	case p.detailed && result.Summary.Changes():
		return exitStatus(statusChanges)
	}
	return nil
}

// progress prints a line on a terminal.
func (p *planning) progress(line string) {
	if p.stderr.terminal {
		_ = writeLine(p.stderr, "", line)
	}
}

// commands returns the arguments with which the process inside runs the operation, and the command
// line with which a user does.
func (p *planning) commands(args []string) (inner []string, apply string, err error) {
	name := p.operation
	if name == "gc" && len(args) == 0 {
		name = "prune"
	}
	own := []string{"drift", "detailed-exitcode", "json", "output", "dry-run"}
	var flags, typed []string
	add := func(name, value string) {
		flags, typed = append(flags, "--"+name+"="+value), append(typed, "--"+name, value)
	}
	p.flags.Visit(func(f *pflag.Flag) {
		switch values, several := f.Value.(pflag.SliceValue); {
		case slices.Contains(own, f.Name):
		case name == "prune" && strings.HasPrefix(f.Name, "keep"):
			err = usagef("--%s needs NETWORK", f.Name)
		case several:
			for _, v := range values.GetSlice() {
				add(f.Name, v)
			}
		case f.Value.Type() == "bool" && f.Value.String() == "true":
			flags, typed = append(flags, "--"+f.Name), append(typed, "--"+f.Name)
		default:
			add(f.Name, f.Value.String())
		}
	})
	inner = slices.Concat([]string{name, "--json"}, flags, []string{"--"}, args)
	return inner, commandLine("tenon", []string{name}, args, typed), err
}

// concerns finds the namespaces, directories and attachments that the operation can concern.
func (p *planning) concerns(args []string, records []network.Record) (a plan.About, o plan.Options) {
	a = plan.About{Command: p.operation, Names: map[string]string{}, Drift: []plan.Drift{}}
	own := ""
	if (p.operation == "add" || p.operation == "del") && len(args) > 1 && args[1] != gone {
		own, _ = netnsPath(args[1]) // the operation reports it
	}
	id := p.value("id")
	if id == "" && own != "" {
		id = defaultID(own)
	}
	if own != "" {
		o.Netns, a.Names[own] = append(o.Netns, own), id
	}
	name := ""
	if len(args) > 0 {
		name = args[0]
		if n := p.network(args[0]); n != nil {
			name = n.Name
			for _, c := range n.Plugins {
				addDataDirs(&o, c)
				encoded, _ := c.MarshalJSON() // the operation reports it
				a.Input += string(encoded)
			}
		}
		if id != "" {
			key := cni.Attachment{Network: name, Container: id, IfName: p.value("ifname")}
			a.Known = append(a.Known, key)
		}
	}
	for _, r := range records {
		p.concernsRecord(&a, &o, r, func() bool {
			switch p.operation {
			case "add", "del":
				return r.Attachment.Container == id || r.Netns == own
			case "gc":
				return (name == "" || r.Attachment.Network == name) && p.stale(r)
			}
			return false
		})
	}
	a.Requested = p.requested()
	a.Input += strings.Join(p.args, " ") + os.Getenv("CAP_ARGS") + os.Getenv("CNI_ARGS")
	return a, o
}

// network returns the network that an argument names, nil if it cannot be loaded. The operation
// reports the error.
func (p *planning) network(arg string) *config.Network {
	if isPath(arg) {
		n, _ := config.LoadFile(arg)
		return n
	}
	c, err := config.Discover(p.netDir)
	if err != nil {
		return nil
	}
	n, _, _ := c.Lookup(arg)
	return n
}

// concernsRecord adds the directories and the namespace of an attachment. concerned reports whether
// the operation can change it.
func (p *planning) concernsRecord(
	a *plan.About, o *plan.Options, r network.Record, concerned func() bool,
) {
	a.Known, a.Recorded = append(a.Known, r.Attachment), append(a.Recorded, r.Attachment)
	if r.List != nil {
		for _, c := range r.List.Plugins {
			addDataDirs(o, c)
			if encoded, err := c.MarshalJSON(); err == nil && plan.AsksFirewalld(c.Type, encoded) {
				a.AsksFirewalld = true
			}
		}
	}
	if a.Names[r.Netns] == "" {
		a.Names[r.Netns] = r.Attachment.Container
	}
	switch {
	case r.Netns == "" || slices.Contains(o.Netns, r.Netns):
	case concerned():
		o.Netns = append(o.Netns, r.Netns)
	case p.operation == "repair" || onParent(r):
		o.Light = append(o.Light, r.Netns)
	default:
		o.Recorded = append(o.Recorded, r.Netns)
	}
}

// stale reports whether GC can detach an attachment that has a namespace.
func (p *planning) stale(r network.Record) bool {
	if r.State != network.Attached { // interrupted
		return true
	}
	var keep []string
	if f := p.flags.Lookup("keep"); f != nil {
		keep = f.Value.(pflag.SliceValue).GetSlice()
	}
	return (len(keep) > 0 || p.value("keep-none") == "true") &&
		!slices.Contains(keep, r.Attachment.Container+"/"+r.Attachment.IfName)
}

// onParent reports whether an attachment has a link on a link of the host, where it excludes
// others.
func onParent(r network.Record) bool {
	return r.List != nil && slices.ContainsFunc(r.List.Plugins, func(c *cni.PluginConfig) bool {
		return slices.Contains([]string{"vlan", "macvlan", "ipvlan"}, c.Type)
	})
}

// addDataDirs adds the directories that the configuration of a plugin names for its data.
func addDataDirs(o *plan.Options, c *cni.PluginConfig) {
	var conf struct {
		DataDir string `json:"dataDir"`
		IPAM    struct {
			DataDir string `json:"dataDir"`
		} `json:"ipam"`
	}
	encoded, err := c.MarshalJSON()
	if err == nil {
		_ = json.Unmarshal(encoded, &conf) // the plugin reports it
	}
	if conf.DataDir != "" {
		o.Data = append(o.Data, conf.DataDir)
	}
	for _, dir := range []string{conf.DataDir, conf.IPAM.DataDir} {
		if dir != "" && !slices.Contains(o.Writable, dir) {
			o.Writable = append(o.Writable, dir)
		}
	}
}

// requested returns the addresses in the arguments and capabilities of the operation.
func (p *planning) requested() (list []netip.Addr) {
	for _, name := range []string{"arg", "cap"} {
		text := p.value(name) + "," + os.Getenv("CNI_ARGS") + "," + os.Getenv("CAP_ARGS")
		for _, word := range strings.FieldsFunc(text, func(r rune) bool {
			return strings.ContainsRune(` ,;="'[]{}`, r)
		}) {
			if a, err := netip.ParseAddr(strings.Split(word, "/")[0]); err == nil {
				list = append(list, a)
			}
		}
	}
	return list
}

// findDrift compares the records of the networks with the host that the operation leaves.
func (p *planning) findDrift(
	cmd *cobra.Command, records []network.Record, args []string, out *plan.Outcome,
) ([]plan.Drift, error) {
	kept := records
	if p.operation == "repair" && len(args) > 0 {
		names := slices.Clone(args)
		for i, arg := range args {
			if n := p.network(arg); n != nil {
				names[i] = n.Name
			}
		}
		kept = slices.DeleteFunc(slices.Clone(records), func(r network.Record) bool {
			return !slices.Contains(names, r.Attachment.Network)
		})
	}
	drift, err := plan.ReadDrift(cmd.Context(), kept, out)
	return drift, p.needsRoot(err)
}

// planInside is the command of the process in the scratch world.
func (a *app) planInside() *cobra.Command {
	return &cobra.Command{
		Use:                planInside,
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := plan.Enter()
			if err != nil {
				return err
			}
			a.caller, a.described = w.Caller(all.Described()), w.Watched(all.Described())
			a.args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { // for hints
				return arg == "--json" || arg == "--"
			})
			root := a.root()
			root.SetArgs(args)
			root.SetOut(a.stdout)
			root.SetErr(a.stderr)
			_, err = root.ExecuteContextC(cmd.Context())
			var hints []string
			if h := (hinted{}); errors.As(err, &h) {
				hints = h.hints
			}
			if u := (usageError{}); errors.As(err, &u) {
				err = cni.Errorf(cni.CodeInvalidEnvironment, "%w", err)
			}
			return w.End(err, hints)
		},
	}
}
