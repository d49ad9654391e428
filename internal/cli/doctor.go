package cli

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/ops/doctor"
	"github.com/tenon-cni/tenon/internal/ops/plural"
	"github.com/tenon-cni/tenon/internal/ops/table"
	"github.com/tenon-cni/tenon/internal/ops/text"
)

// statusWarnings is the exit status of doctor if it found nothing worse than warnings.
const statusWarnings = 3

func (a *app) doctor() *cobra.Command {
	d := &examination{settings: settings{app: a}}
	cmd := &cobra.Command{
		Use:   "doctor [CHECK ...]",
		Short: "Find what breaks the networking of containers on this host",
		Long: `Examines this host for everything that keeps containers from being attached, stops
their traffic, or will break soon: kernel, sysctls and limits, firewalls, routes,
MTUs, DNS, plugins, configurations, attachments and leftovers. Prints each problem
with its cause, a command that shows it, and the exact fix. Reads only; changes
nothing without --fix.

CHECK is the ID of a check, such as "firewall.forward", or a group, such as
"firewall"; without one, all checks run. A check that cannot run, for example for
lack of privilege, is listed as skipped and never counts as passed.

With --fix, lists the safe fixes, asks, looks at the host again before each one, and
reports the outcome. A fix is safe if it restores objects of Tenon or removes
something without an owner. Other fixes are for you to decide.

Exit status: 0 nothing worse than information, 1 an error, 2 wrong usage, 3 only
warnings.`,
		Example: `  tenon doctor
  tenon doctor firewall mtu
  tenon doctor --fix
  tenon doctor --json | jq '.findings[].title'`,
		ValidArgsFunction: completeChecks,
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.run(cmd.Context(), args)
		},
	}
	d.netDirFlag(cmd)
	d.pluginDirFlag(cmd)
	d.recordFlags(cmd)
	d.outputFlags(cmd)
	d.fromFlag(cmd)
	flags := cmd.Flags()
	flags.BoolVarP(&d.all, "verbose", "v", false, "list every check with its outcome")
	flags.BoolVar(&d.list, "list", false, "list the checks and exit")
	flags.BoolVar(&d.fix, "fix", false, "apply the safe fixes after asking")
	flags.BoolVarP(&d.yes, "yes", "y", false, "apply the safe fixes without asking")
	return cmd
}

// examination is a run of the command.
type examination struct {
	settings
	all, list, fix, yes bool
}

func (d *examination) run(ctx context.Context, args []string) error {
	if d.fix && d.from != "" {
		return usagef("--fix changes this host; it excludes --from")
	}
	checks, err := d.selected(args)
	if err != nil {
		return err
	}
	if d.list {
		return d.printChecks(checks)
	}
	report, err := d.examine(ctx, checks)
	if err != nil {
		return d.needsRoot(err)
	}
	if d.fix {
		return d.applyFixes(ctx, checks, report)
	}
	err = d.print(report, func() error { return text.Doctor(d.stdout, report, d.header(), d.all) })
	if err != nil {
		return err
	}
	return verdict(report)
}

// verdict returns the exit status of a report.
func verdict(r *doctor.Report) error {
	switch r.Worst() {
	case doctor.Error:
		return exitStatus(statusFailure)
	case doctor.Warning:
		return exitStatus(statusWarnings)
	}
	return nil
}

func (d *examination) header() string { return "tenon " + d.version }

// examine reads the state of the host and runs checks on it.
func (d *examination) examine(ctx context.Context, checks []doctor.Check) (*doctor.Report, error) {
	start := time.Now()
	state, err := d.state(ctx)
	if err != nil {
		return nil, err
	}
	p := newProgress(d.stderr.file, len(checks))
	report := doctor.Run(ctx, state, checks, func(r doctor.Result) { p.show(r.ID) })
	p.end()
	report.Seconds = time.Since(start).Seconds()
	return report, nil
}

// state returns the state of this host, or of the one in a support bundle.
func (d *examination) state(ctx context.Context) (*doctor.State, error) {
	if d.from != "" {
		return d.storedState()
	}
	return d.read(ctx)
}

func (d *examination) read(ctx context.Context) (*doctor.State, error) {
	client := d.client()
	records, err := client.ListHost()
	o := doctor.Options{Records: records, NetDir: d.netDir, PluginDirs: d.pluginDirs.list,
		StateDir: d.stateDir, CacheDir: d.cacheDir, Client: client}
	if err != nil {
		o.Damaged = strings.Split(err.Error(), "\n")
	}
	return doctor.Read(ctx, o)
}

// selected returns the checks that the arguments name, all without arguments.
func (d *examination) selected(args []string) (checks []doctor.Check, err error) {
	all := doctor.Checks()
	if len(args) == 0 {
		return all, nil
	}
	for _, c := range all {
		if slices.Contains(args, c.ID) || slices.Contains(args, c.Group()) {
			checks = append(checks, c)
		}
	}
	names := checkNames(all)
	for _, arg := range args {
		if !slices.Contains(names, arg) {
			err := usagef("no check or group of checks %q", arg)
			return nil, hint(d.didYouMean(err, arg, names), "list the checks: tenon doctor --list")
		}
	}
	return checks, nil
}

// checkNames returns the groups and the IDs of checks.
func checkNames(checks []doctor.Check) (names []string) {
	for _, c := range checks {
		if !slices.Contains(names, c.Group()) {
			names = append(names, c.Group())
		}
		names = append(names, c.ID)
	}
	return names
}

// completeChecks completes groups and IDs of checks.
func completeChecks(
	_ *cobra.Command, args []string, _ string,
) (words []cobra.Completion, _ cobra.ShellCompDirective) {
	for _, c := range doctor.Checks() {
		if !slices.Contains(args, c.ID) {
			words = append(words, cobra.CompletionWithDesc(c.ID, c.Title))
		}
		if !slices.Contains(args, c.Group()) && !slices.Contains(words, c.Group()) {
			words = append(words, c.Group())
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// checkEntry is a check as JSON.
type checkEntry struct {
	ID    string `json:"id"`
	Title string `json:"title"`
}

func (d *examination) printChecks(checks []doctor.Check) error {
	entries := []checkEntry{}
	rows := [][]string{{"CHECK", "LOOKS FOR"}}
	for _, c := range checks {
		entries = append(entries, checkEntry{c.ID, c.Title})
		rows = append(rows, []string{c.ID, c.Title})
	}
	return d.print(entries, func() error { return table.Write(d.stdout, rows) })
}

// fixed is the outcome of a run with --fix as JSON.
type fixed struct {
	*doctor.Report
	Fixed []doctor.Applied `json:"fixed"`
}

// applyFixes applies the safe fixes of the findings.
func (d *examination) applyFixes(
	ctx context.Context, checks []doctor.Check, report *doctor.Report,
) error {
	safe := doctor.Safe(report)
	if len(safe) == 0 {
		if err := d.print(fixed{report, []doctor.Applied{}}, func() error {
			if err := text.Doctor(d.stdout, report, d.header(), d.all); err != nil {
				return err
			}
			_, err := fmt.Fprintln(d.stdout, "\n nothing to fix: no finding has a safe fix")
			return err
		}); err != nil {
			return err
		}
		return verdict(report)
	}
	if !d.output.Structured() {
		if err := text.Doctor(d.stdout, report, d.header(), d.all); err != nil {
			return err
		}
		text.SafeFixes(d.stdout, safe)
	}
	if err := d.confirm(len(safe)); err != nil {
		return err
	}
	applied := doctor.Apply(ctx, safe, checks, d.read)
	if err := d.print(fixed{report, applied}, func() error {
		text.Applied(d.stdout, applied)
		return nil
	}); err != nil {
		return err
	}
	if slices.ContainsFunc(applied, func(a doctor.Applied) bool { return a.Error != "" }) {
		return exitStatus(statusFailure)
	}
	return verdict(doctor.Rest(report, applied))
}

// confirm asks whether to apply fixes, unless --yes is given.
func (d *examination) confirm(n int) error {
	if d.yes {
		return nil
	}
	return d.confirmed(fmt.Sprintf("Apply %s?", plural.Count(n, "fix")))
}

// confirmed asks a question on the terminal. It returns an error unless the answer is yes.
func (r *settings) confirmed(question string) error {
	if !isTerminal(os.Stdin) || r.output.Structured() {
		return hint(usagef("the command asks before it continues, and there is no terminal"),
			r.again("continue without asking: ", "--yes"))
	}
	fmt.Fprintf(r.stderr, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n') // no answer means no
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		fmt.Fprintln(r.stderr, "nothing changed")
		return exitStatus(statusFailure)
	}
	return nil
}

// progress prints a line for each check on a terminal, one over the other.
type progress struct {
	file     *os.File // nil: not a terminal
	all, ran int
}

func newProgress(f *os.File, all int) *progress {
	if !isTerminal(f) {
		f = nil
	}
	return &progress{file: f, all: all}
}

const clearLine = "\r\x1b[K"

// show notes that one more part has ended.
func (p *progress) show(name string) {
	p.ran++
	if p.file != nil {
		fmt.Fprintf(p.file, "%s %d/%d %s", clearLine, p.ran, p.all, name)
	}
}

func (p *progress) end() {
	if p.file != nil {
		fmt.Fprint(p.file, clearLine)
	}
}

// isTerminal reports whether a file is a terminal.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
