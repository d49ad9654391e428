package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/conformance/judge"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/statefile"
)

func (a *app) conform() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "conform",
		Short: "Judge whether plugins and runtimes obey the specification",
		Long: `Runs plugins and runtimes as black boxes in namespaces of their own, and reports each
violation of the specification with the rule, the expected and the actual behavior,
and commands that reproduce it. Nothing outside those namespaces changes.

Needs root, or a kernel that lets users create user namespaces; then some checks
are skipped, and the report lists them.

The exit status of "plugin" and "runtime" is 0 without a finding that the profile counts, 1 with
findings, 2 for wrong usage or wrong waivers, 3 if required checks could not be made.`,
		Example: `  tenon conform plugin ./my-plugin
  tenon conform plugin /opt/cni/bin --profile spec-1.1
  tenon conform runtime --driver ./my-driver
  tenon conform replay f-3a91c07e`,
	}
	cmd.AddCommand(conformPlugin(a), conformRuntime(a), conformReplay(a), conformDriver(a))
	return parent(cmd)
}

// lastReport returns the path of the report of the last run.
func lastReport() (string, error) {
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "tenon", "conform.json"), err
}

func keepReport(r *report.Report) error {
	path, err := lastReport()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := report.JSON(&b, r); err != nil {
		return err
	}
	return statefile.Replace(path, b.Bytes(), 0o600, nil)
}

// readReport reads a report; an empty path stands for the one of the last run.
func readReport(path string) (*report.Report, error) {
	if path == "" {
		var err error
		if path, err = lastReport(); err != nil {
			return nil, err
		}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := report.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

func conformReplay(a *app) *cobra.Command {
	file, shell := "", false
	cmd := &cobra.Command{
		Use:   "replay FINDING",
		Short: "Run the scenario of a finding again, and show each call",
		Long: `Runs the scenario of a finding again, with the configuration in the report, and
prints its commands and calls with environment, input and output. FINDING is an ID
in a report, and may be shortened.

The exit status is 1 if the finding shows again, 0 if not. With --shell, prints a
script that reproduces the finding without tenon, and runs nothing.`,
		Example: `  tenon conform replay f-3a91c07e
  tenon conform replay f-3a91 --report report.json
  tenon conform replay f-3a91 --shell | sudo sh`,
		Args: arguments(1, "FINDING"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return completeFindings(file, args), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := readReport(file)
			if err != nil {
				return hint(err, "give the report with --report, or run tenon conform plugin or runtime first")
			}
			s, f, err := judge.Finding(r, args[0])
			if err != nil {
				return hint(err, "use the ID of a finding of the report")
			}
			if shell {
				_, err := fmt.Fprint(a.stdout, f.Replay)
				return err
			}
			return replay(cmd.Context(), a, s, f)
		},
	}
	cmd.Flags().StringVar(&file, "report", "", "take the finding from the JSON report `FILE` (default: the last run)")
	cmd.Flags().BoolVar(&shell, "shell", false, "print a script that reproduces the finding without tenon")
	_ = cmd.MarkFlagFilename("report", "json") // the flag exists
	return cmd
}

func completeFindings(file string, args []string) (list []cobra.Completion) {
	r, err := readReport(file)
	if err != nil || len(args) > 0 {
		return nil
	}
	for _, s := range r.Subjects {
		for _, f := range s.Findings {
			list = append(list, cobra.CompletionWithDesc(f.ID, s.Name+": "+f.Title))
		}
	}
	return list
}

// replay runs the scenario of a finding and prints what happened.
func replay(ctx context.Context, a *app, s *report.Subject, f *report.Finding) error {
	again, err := judge.Replay(ctx, s, f)
	if err != nil {
		return err
	}
	if again.Changed {
		a.warn("%s is not the file that was judged", s.Path)
	}
	if err := again.Transcript(a.stdout); err != nil {
		return err
	}
	if again.Found == nil {
		_, err := fmt.Fprintf(a.stdout, "\nnot reproduced: %s %s: %s\n", f.Row, s.Name, f.Title)
		return err
	}
	shown := *again.Found
	shown.ID, shown.Counts = f.ID, true
	if err := report.TextFinding(a.stdout, &shown, report.TextOptions{Color: a.stdout.Coloured()}); err != nil {
		return err
	}
	return exitStatus(statusFailure)
}
