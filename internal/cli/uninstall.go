package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/install"
)

func (a *app) uninstall() *cobra.Command {
	r := &settings{app: a}
	var request install.Removal
	dryRun := false
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the plugins and all their state from this host",
		Long: `Removes Tenon's plugins from --plugin-dir, Tenon's nftables tables, and the files
that only Tenon's plugins and "tenon add" use. Keeps network configurations and
address reservations, because the upstream plugins use them too. Does not touch
other files in --plugin-dir. Restores the files that "tenon install" or a package of
Tenon replaced. Removes the programs, manual pages, completions and units too if the
install script installed them, and keeps those that have changed since. If a package
of Tenon has been installed since, removes only these files: attachments and state
belong to the package.

Refuses while containers are attached, unless one of these flags is given:
  --keep-attachments  hand attachments over to the upstream plugins: recreate
                      masquerading, host ports and firewall rules in iptables,
                      as the upstream plugins create them, before the nftables
                      tables are removed. Traffic continues, and upstream CHECK
                      and DEL find what they expect. Writes the attachments of
                      "tenon add" to --cache-dir, as libcni does.
  --detach            run DEL for the attachments of "tenon add" first;
                      attachments of other runtimes still block

Lists everything before it removes anything; with --dry-run it only lists. If no
upstream plugins are restored, install them before or directly afterwards: until
then, runtimes find no plugins.`,
		Example: `  tenon uninstall --dry-run
  tenon uninstall --keep-attachments
  tenon uninstall --detach`,
		Args: arguments(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if request.Lists, err = r.lists(); err != nil {
				return r.needsRoot(err)
			}
			request.Client, request.Manifest = r.client(), installedFiles()
			request.Host = systemHost(cmd.Context())
			request.Superseded = superseded(request.Manifest)
			p, err := install.PlanRemoval(cmd.Context(), request)
			if err != nil {
				return r.explain(err, nil)
			}
			r.warnUnsupported(p)
			blocked := r.blocked(p)
			if dryRun {
				if err := r.printUninstall(p, dryRun); err != nil {
					return err
				}
			}
			if blocked != nil || dryRun {
				return blocked
			}
			return r.remove(cmd.Context(), p)
		},
	}
	r.clientFlags(cmd)
	r.outputFlags(cmd)
	cmd.Flags().BoolVar(&request.Keep, "keep-attachments", false,
		"hand attachments over to the upstream plugins")
	cmd.Flags().BoolVar(&request.Detach, "detach", false,
		`detach the attachments of "tenon add" first`)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false,
		"print what would be removed, and change nothing")
	return cmd
}

// installedFiles returns the path of the list that the install script writes for this program.
func installedFiles() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(self), "..", install.ManifestPath)
}

// superseded reports whether a package has taken over from the install script, which has installed
// this program.
func superseded(manifest string) bool {
	_, script := os.Stat(manifest)
	_, pkg := os.Stat(packagedDir)
	return script == nil && pkg == nil
}

// remove prints and carries out the plan. As JSON, it prints the plan afterwards.
func (r *settings) remove(ctx context.Context, p *install.Plan) error {
	if !r.output.Structured() {
		if err := r.printUninstall(p, false); err != nil {
			return err
		}
	}
	if err := p.Run(ctx); err != nil {
		return r.explain(err, nil)
	}
	done, err := p.Finish()
	if err != nil {
		return r.explain(err, nil)
	}
	if !done {
		r.warn("kept %s: it contains records of other runtimes", r.stateDir)
	}
	remaining, err := p.RemoveFiles()
	if err != nil {
		return r.explain(err, nil)
	}
	for _, dir := range remaining {
		r.warn("kept %s: it contains other files", dir)
	}
	if r.output.Structured() {
		return r.printUninstall(p, false)
	}
	return nil
}

// warnUnsupported warns if plugins that take over attachments cannot detach them.
func (r *settings) warnUnsupported(p *install.Plan) {
	for _, x := range p.Unsupported {
		r.warn("after the removal, containers in %s cannot be detached with %s in %s: "+
			"no support for CNI %v",
			strings.Join(x.Networks, ", "), strings.Join(x.Plugins, ", "), x.Dir, x.Version)
	}
	if len(p.Unsupported) > 0 {
		r.printHint("detach these containers first, or install newer upstream plugins first")
	}
}

// blocked returns an error if the plan cannot be carried out.
func (r *settings) blocked(p *install.Plan) error {
	if len(p.Blockers) > 0 {
		return hint(cni.Errorf(cni.CodeInvalidConfig, "%s", strings.Join(p.Blockers, "\n")),
			r.command("detach the attachments of tenon add instead: ", "uninstall", "--detach"))
	}
	attached := p.Blocked()
	if len(attached) == 0 {
		return unitsInUse(p)
	}
	var keys []string
	for _, a := range attached {
		keys = append(keys, a.Record.Attachment.String())
	}
	err := cni.Errorf(
		cni.CodeTryAgainLater,
		"containers are attached: %s",
		strings.Join(keys, ", "),
	)
	hints := []string{
		r.command("hand them over to the upstream plugins: ", "uninstall", "--keep-attachments"),
	}
	if slices.ContainsFunc(attached, func(a install.Attachment) bool { return a.Own }) {
		hints = append(
			hints,
			r.command("detach the attachments of tenon add: ", "uninstall", "--detach"),
		)
	}
	if slices.ContainsFunc(attached, func(a install.Attachment) bool { return !a.Own }) {
		hints = append(hints, "or remove the containers with their runtime first, "+
			"for example with kubectl drain or podman rm")
	}
	return hint(err, hints...)
}

// unitsInUse returns an error if units of the plan are enabled or active.
func unitsInUse(p *install.Plan) error {
	if len(p.Units) == 0 {
		return nil
	}
	units := strings.Join(p.Units, " ")
	return hint(
		cni.Errorf(cni.CodeTryAgainLater, "units of systemd are enabled or active: %s", units),
		"run: systemctl disable --now "+units,
	)
}

// uninstallEntry is an attachment and its outcome as JSON.
type uninstallEntry struct {
	keyEntry
	Outcome install.Outcome `json:"fate"`
}

// uninstallReport is a plan as JSON.
type uninstallReport struct {
	Attachments []uninstallEntry `json:"attachments"`
	Plugins     []string         `json:"plugins"`
	Restored    []string         `json:"restored"`
	Links       []string         `json:"links"`
	Tables      []string         `json:"tables"`
	Paths       []string         `json:"paths"`
	Files       []string         `json:"files"`
	Changed     []string         `json:"changed"`
	Directories []string         `json:"directories"`
	Ends        []string         `json:"ends"`
	DryRun      bool             `json:"dryRun"`
}

// newUninstallReport returns a plan without null lists.
func newUninstallReport(p *install.Plan, dryRun bool) uninstallReport {
	list := func(names []string) []string { return append([]string{}, names...) }
	report := uninstallReport{
		Attachments: []uninstallEntry{}, Plugins: list(p.Plugins), Restored: list(p.Restored),
		Links: list(p.Links), Tables: list(p.Tables), Paths: list(p.Paths), Files: list(p.Files),
		Changed: list(p.Changed), Directories: list(p.Directories), Ends: list(p.Ends),
		DryRun: dryRun,
	}
	for _, a := range p.Attachments {
		report.Attachments = append(
			report.Attachments,
			uninstallEntry{keyEntry(a.Record.Attachment), a.Outcome},
		)
	}
	return report
}

func (r *settings) printUninstall(p *install.Plan, dryRun bool) error {
	if r.output.Structured() {
		return r.printValue(newUninstallReport(p, dryRun))
	}
	would := ""
	if dryRun {
		would = "would "
	}
	for _, a := range p.Attachments {
		fmt.Fprintf(r.stdout, "%s%s %v\n", would, a.Outcome, a.Record.Attachment)
	}
	removed := false
	for _, x := range []struct {
		format string // of a line
		names  []string
	}{
		{"end %s: the upstream plugins have no counterpart", p.Ends},
		{"remove plugin %s", p.Plugins},
		{"restore the file that %s replaced", p.Restored},
		{"remove link %s", p.Links},
		{"remove nftables table %s", p.Tables},
		{"remove %s", p.Paths},
		{"remove %s", p.Files},
		{"keep %s: it has changed since its installation", p.Changed},
		{"remove directory %s if it is empty", p.Directories},
	} {
		for _, name := range x.names {
			fmt.Fprintf(r.stdout, would+x.format+"\n", name)
			removed = true
		}
	}
	if !removed && len(p.Attachments) == 0 {
		fmt.Fprintln(r.stdout, "nothing to remove")
	}
	return nil
}
