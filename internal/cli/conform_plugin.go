package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/conformance/judge"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/ops/spelling"
	"github.com/tenon-cni/tenon/internal/ops/table"
)

// judging is a run of "tenon conform plugin" or "tenon conform runtime".
type judging struct {
	settings
	options judge.Options
	profile string
	waivers string
	files   []string // to write the report to, each in the format of its suffix
	list    bool
	// scenarios returns all scenarios for subjects of this kind.
	scenarios func() []judge.Scenario
}

// reportFormats write a report in the formats that only this command has.
var reportFormats = map[string]func(io.Writer, *report.Report) error{
	"badge":    report.Badge,
	"html":     report.HTML,
	"junit":    report.JUnit,
	"markdown": report.Markdown,
	"sarif":    report.SARIF,
}

// reportSuffixes are the writers for files.
var reportSuffixes = map[string]func(io.Writer, *report.Report) error{
	".html": report.HTML, ".json": report.JSON, ".md": report.Markdown, ".sarif": report.SARIF,
	".svg": report.Badge, ".xml": report.JUnit,
}

func conformPlugin(a *app) *cobra.Command {
	r := &judging{settings: settings{app: a}, scenarios: judge.PluginScenarios}
	cmd := &cobra.Command{
		Use:   "plugin PATH|NAME|DIR...",
		Short: "Judge plugins",
		Long: `Judges plugins, given by their paths, by names in --plugin-dir, or by directories.
In a directory, it judges each file that answers VERSION, and lists the other ones.

Runs each plugin in each version that it announces. The configurations of well-known
plugins are built in. For other plugins, trial calls find out whether a plugin creates
interfaces, changes them, allocates addresses, or calls other plugins; describe a
plugin that needs a configuration in a file for --config.

--report writes the report to a file too; the suffix selects the format: .html for a
page that loads nothing, .json, .md for Markdown, .sarif, .svg for a badge, .xml for
JUnit.

Prints the progress to standard error, and keeps the report for "tenon conform
replay". The exit status is 0 without a finding that the profile counts, 1 with
findings, 2 for wrong usage or wrong waivers, 3 if required checks could not be made
or a file could not be written.`,
		Example: `  tenon conform plugin ./my-plugin
  tenon conform plugin bridge --profile spec-1.1
  tenon conform plugin ./my-plugin --config my-plugin.json --only life
  tenon conform plugin /opt/cni/bin --waivers waivers.json --json
  tenon conform plugin ./my-plugin --report junit.xml --report report.html`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("missing PATH, NAME or DIR")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context(), args) },
	}
	r.pluginDirFlag(cmd)
	r.outputFlags(cmd, slices.Sorted(maps.Keys(reportFormats))...)
	r.flags(cmd)
	r.pluginFlags(cmd)
	return cmd
}

// pluginFlags adds the flags that concern only plugins.
func (r *judging) pluginFlags(cmd *cobra.Command) {
	flags, o := cmd.Flags(), &r.options
	flags.StringVar(&o.Config, "config", "", "use the plugin as `FILE` describes: role, configuration, preparation")
	flags.StringVar(&o.Role, "role", "", "judge only as `ROLE`: "+strings.Join(judge.Roles(), ", "))
	flags.BoolVar(&o.Faults, "faults", false,
		"also kill the plugin before each system call that changes something, and let the call fail")
	// The flags exist.
	_ = cmd.MarkFlagFilename("config", "json")
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions(judge.Roles(), cobra.ShellCompDirectiveNoFileComp))
}

// flags adds the flags of a run of the judge.
func (r *judging) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	usage := "count the rows of profile `NAME`: "
	var profiles []cobra.Completion
	for i, p := range report.Profiles() {
		if i > 0 {
			usage += "; "
		}
		usage += fmt.Sprintf("%s: %s", p.Profile, p.Counts)
		profiles = append(profiles, cobra.CompletionWithDesc(string(p.Profile), p.Counts))
	}
	o := &r.options
	flags.StringVar(&r.profile, "profile", string(report.Strict), usage)
	flags.StringVar(&r.waivers, "waivers", "",
		"accept the findings that `FILE` lists with reasons; a waiver without a finding is an error")
	flags.StringArrayVar(&r.files, "report", nil,
		"also write the report to `FILE`, in the format of its suffix; repeatable")
	flags.StringSliceVar(&o.Only, "only", nil,
		"run only the scenarios, or those for the rows, in `NAMES`; repeatable")
	flags.IntVar(&o.Jobs, "jobs", 0, "run `N` scenarios at the same time (default: the number of processors)")
	flags.BoolVar(&r.list, "list", false, "list the scenarios and rows, and run none")
	// The flags exist.
	_ = cmd.RegisterFlagCompletionFunc("profile", cobra.FixedCompletions(profiles, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.MarkFlagFilename("waivers", "json")
	_ = cmd.MarkFlagFilename("report", "html", "json", "md", "sarif", "svg", "xml")
	_ = cmd.RegisterFlagCompletionFunc("only", func(_ *cobra.Command, _ []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return completeScenarios(r.scenarios(), word[:strings.LastIndexByte(word, ',')+1]), cobra.ShellCompDirectiveNoFileComp
	})
}

// completeScenarios returns the names of scenarios, and the rows that they judge. before is the part of
// the list that is complete: "life,".
func completeScenarios(list []judge.Scenario, before string) (out []cobra.Completion) {
	in := map[string][]string{} // scenarios by rows
	var rows []string
	for _, s := range list {
		out = append(out, cobra.CompletionWithDesc(before+s.Name, "scenario for "+strings.Join(s.Rows, " ")))
		for _, row := range s.Rows {
			if in[row] == nil {
				rows = append(rows, row)
			}
			in[row] = append(in[row], s.Name)
		}
	}
	slices.Sort(rows)
	for _, row := range rows {
		out = append(out, cobra.CompletionWithDesc(before+row, "row of "+strings.Join(in[row], ", ")))
	}
	return out
}

func (r *judging) run(ctx context.Context, words []string) error {
	o := &r.options
	if err := r.checkFlags(); err != nil {
		return err
	}
	if o.Role != "" && !slices.Contains(judge.Roles(), o.Role) {
		return usagef("--role %q is none of %s", o.Role, strings.Join(judge.Roles(), ", "))
	}
	paths, leftOut, err := judge.Find(ctx, words, r.pluginDirs.list)
	switch {
	case errors.Is(err, judge.ErrNoPlugin):
		return usageError{err}
	case err != nil:
		return r.needsRoot(err)
	case r.list:
		return r.printCases(judge.List(ctx, paths, *o))
	}
	out, err := r.judged(len(paths), func(o judge.Options) (*report.Report, error) {
		return judge.Plugins(ctx, paths, o)
	})
	if err != nil {
		return err
	}
	out.LeftOut = leftOut
	return r.conclude(out)
}

// judged runs the judge for a number of subjects, and shows the progress.
func (r *judging) judged(subjects int, run func(judge.Options) (*report.Report, error)) (*report.Report, error) {
	shown := &judgeProgress{app: r.app, live: r.stderr.terminal, several: subjects > 1}
	o := r.options
	o.Version, o.Progress, o.Judged = r.version, shown.progress, shown.judged
	out, err := run(o)
	shown.end()
	if err != nil {
		return nil, r.judgeError(err)
	}
	return out, nil
}

// checkFlags reads the profile and the waivers, and returns an error for flags that no run can have.
func (r *judging) checkFlags() error {
	if err := r.readRules(); err != nil {
		return usageError{err}
	}
	if err := r.checkFiles(); err != nil {
		return err
	}
	format := r.output.String()
	switch {
	case r.list && reportFormats[format] != nil:
		return usagef("--list has no format %s; use json, yaml or go-template", format)
	case r.options.Jobs < 0:
		return usagef("--jobs %d is negative", r.options.Jobs)
	}
	return nil
}

// readRules sets the profile and the waivers of the options.
func (r *judging) readRules() (err error) {
	if r.options.Profile, err = report.ParseProfile(r.profile); err != nil || r.waivers == "" {
		return err
	}
	r.options.Waivers, err = report.ReadWaivers(r.waivers)
	return err
}

// checkFiles returns an error if a file for the report has an unknown suffix or no directory,
// because a run takes minutes.
func (r *judging) checkFiles() error {
	for _, file := range r.files {
		if suffix := filepath.Ext(file); reportSuffixes[suffix] == nil {
			known := slices.Sorted(maps.Keys(reportSuffixes))
			return hint(usagef("--report %s: unknown suffix %q", file, suffix),
				"the suffixes are "+strings.Join(known, ", "))
		}
		if info, err := os.Stat(filepath.Dir(file)); err != nil || !info.IsDir() {
			return usagef("--report %s: no directory %s", file, filepath.Dir(file))
		}
	}
	return nil
}

// writeFiles writes the report to the files of --report. It continues after an error.
func (r *judging) writeFiles(out *report.Report) error {
	var errs []error
	for _, file := range r.files {
		var b bytes.Buffer
		err := reportSuffixes[filepath.Ext(file)](&b, out)
		if err == nil {
			err = os.WriteFile(file, b.Bytes(), 0o644)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// show prints the report in the format of --output, by default as text.
func (r *judging) show(out *report.Report) error {
	if write := reportFormats[r.output.String()]; write != nil {
		return write(r.stdout, out)
	}
	return r.print(out, func() error {
		return report.Text(r.stdout, out, report.TextOptions{Color: r.stdout.Coloured()})
	})
}

// conclude keeps the report for "tenon conform replay", writes it and ends with its exit status.
func (r *judging) conclude(out *report.Report) error {
	r.checkWaivers(out)
	if err := keepReport(out); err != nil {
		r.warn("cannot keep the report for tenon conform replay: %v", err)
	}
	if err := r.show(out); err != nil {
		return err
	}
	if err := r.writeFiles(out); err != nil {
		r.complain(r.cmd, err)
		return exitStatus(report.StatusIncomplete)
	}
	if s := out.Status(); s != report.StatusPass {
		return exitStatus(s)
	}
	return nil
}

// judgeError returns the error of a run of the judge for the user.
func (r *judging) judgeError(err error) error {
	if !errors.Is(err, judge.ErrUnknownName) {
		return r.needsRoot(err)
	}
	var known []string
	for _, s := range r.scenarios() {
		known = append(append(known, s.Name), s.Rows...)
	}
	wrapped := usagef("--only: %w; list them with --list", err)
	for _, name := range r.options.Only {
		if !slices.Contains(known, name) {
			return r.didYouMean(wrapped, name, known)
		}
	}
	return wrapped
}

// printCases lists scenarios: as a table, or as JSON if a flag asks for it.
func (r *judging) printCases(list []judge.Case, err error) error {
	if err != nil {
		return r.judgeError(err)
	}
	if r.output.Structured() {
		return r.printValue(list)
	}
	rows := [][]string{{"SUBJECT", "SCENARIO", "ROLE", "VERSIONS", "ROWS"}}
	for _, c := range list {
		what := strings.Join(c.Rows, " ")
		if c.Reason != "" {
			what = "not run: " + c.Reason
		}
		rows = append(rows, []string{c.Subject, c.Scenario, cmp.Or(c.Role, "-"), cmp.Or(strings.Join(c.Versions, ","), "-"), what})
	}
	return table.Write(r.stdout, rows)
}

// checkWaivers warns about waivers for subjects that the run has under a similar name only.
func (r *judging) checkWaivers(out *report.Report) {
	var names []string
	for _, s := range out.Subjects {
		names = append(names, s.Name)
	}
	for _, w := range out.Unused {
		if near := spelling.Nearest(w.Subject, names); !slices.Contains(names, w.Subject) && near != "" {
			r.warn("%s is not used", w)
			r.printHint(fmt.Sprintf("did you mean %q?", near))
		}
	}
}
