package text

import (
	"fmt"
	"io"
	"strings"

	"github.com/tenon-cni/tenon/internal/ops/doctor"
	"github.com/tenon-cni/tenon/internal/ops/plural"
)

// statusMarks are the marks of outcomes.
var statusMarks = map[doctor.Status]string{
	doctor.Passed: "✓", doctor.Warned: "!", doctor.Failed: "✗", doctor.Skipped: "-",
	doctor.TimedOut: "?", doctor.Crashed: "?",
}

var severityMarks = map[doctor.Severity]string{
	doctor.Info: "i", doctor.Warning: "!", doctor.Error: "✗",
}

// Doctor prints a report: a header, a mark for each group, the findings, and their number. all adds
// a line for each check. program is the name and the version of the program.
func Doctor(w io.Writer, r *doctor.Report, program string, all bool) error {
	header := fmt.Sprintf("%s on %s, kernel %s, %s in %s", program, r.Host, r.Kernel,
		plural.Count(r.Attachments, "attachment"), plural.Count(r.Networks, "network"))
	style := styleOf(w)
	fmt.Fprintf(w, " %s   %s\n", style.bold(header), style.dim(fmt.Sprintf("%.1f s", r.Seconds)))
	printGroups(w, style, r)
	if all {
		fmt.Fprintln(w)
		for _, c := range r.Checks {
			line := fmt.Sprintf("%-28s %s", c.ID, c.Reason)
			fmt.Fprintf(
				w,
				" %s %s\n",
				style.mark(statusMarks[c.Status]),
				strings.TrimRight(line, " "),
			)
		}
	}
	printFindings(w, style, r, all)
	_, err := fmt.Fprintf(w, "\n %s\n", summary(r))
	return err
}

// group is the outcome of the checks of a group.
type group struct {
	name                    string
	passed, skipped, unsure int
	errors, warnings        int
	reason                  string // of all that were skipped, "" if they differ
}

// text returns the mark of the group, and its name with a number or a reason.
func (g group) text() (mark, words string) {
	switch {
	case g.errors > 0:
		return "✗", fmt.Sprintf("%s %d", g.name, g.errors)
	case g.warnings > 0:
		return "!", fmt.Sprintf("%s %d", g.name, g.warnings)
	case g.unsure > 0:
		return "?", g.name
	case g.passed == 0 && g.reason != "":
		return "-", fmt.Sprintf("%s (%s)", g.name, g.reason)
	case g.passed == 0:
		return "-", g.name
	}
	return "✓", fmt.Sprintf("%s %d", g.name, g.passed)
}

// groups counts the outcomes of checks by group, in the order of the checks.
func groups(checks []doctor.Result) (list []*group) {
	known := map[string]*group{}
	for _, c := range checks {
		name, _, _ := strings.Cut(c.ID, ".")
		g := known[name]
		if g == nil {
			g = &group{name: name}
			known[name], list = g, append(list, g)
		}
		switch c.Status {
		case doctor.Passed:
			g.passed++
		case doctor.Warned:
			g.warnings++
		case doctor.Failed:
			g.errors++
		case doctor.Skipped:
			if g.skipped++; g.skipped == 1 {
				g.reason = c.Reason
			} else if g.reason != c.Reason {
				g.reason = ""
			}
		default:
			g.unsure++
		}
	}
	return list
}

// printGroups prints the groups on as few lines as fit the terminal.
func printGroups(w io.Writer, style style, r *doctor.Report) {
	const columns, gap = 100, "   "
	limit := columns
	if terminal, ok := w.(interface{ Width() int }); ok && terminal.Width() > 0 {
		limit = terminal.Width()
	}
	width := 0
	for _, g := range groups(r.Checks) {
		mark, words := g.text()
		size := len([]rune(mark + " " + words))
		switch {
		case width == 0:
			fmt.Fprint(w, " ")
		case width+len(gap)+size >= limit:
			fmt.Fprint(w, "\n ")
			width = 0
		default:
			fmt.Fprint(w, gap)
			width += len(gap)
		}
		fmt.Fprintf(w, "%s %s", style.mark(mark), words)
		width += size
	}
	fmt.Fprintln(w)
}

// printFindings prints findings. Unless all are asked for, it folds the ones with equal IDs.
func printFindings(w io.Writer, style style, r *doctor.Report, all bool) {
	const most = 3 // with an ID
	count, printed := map[string]int{}, map[string]int{}
	for _, f := range r.Findings {
		count[f.ID]++
	}
	for _, f := range r.Findings {
		printed[f.ID]++
		switch n := printed[f.ID]; {
		case all || n <= most || count[f.ID] == most+1:
			printFinding(w, style, f)
		case n == most+1:
			fmt.Fprintf(w, "\n %s %-26s %d more: tenon doctor %s -v\n",
				style.mark(severityMarks[f.Severity]), f.ID, count[f.ID]-most, f.Check)
		}
	}
}

// printFinding prints a finding with its cause, its fixes and a command that shows it.
func printFinding(w io.Writer, style style, f doctor.Finding) {
	fmt.Fprintf(
		w,
		"\n %s %-26s %s\n",
		style.mark(severityMarks[f.Severity]),
		f.ID,
		style.bold(f.Title),
	)
	for line := range strings.Lines(f.Text) {
		fmt.Fprintf(w, "   %s\n", strings.TrimSuffix(line, "\n"))
	}
	if len(f.Affects) > 0 {
		fmt.Fprintf(w, "   affects %s\n", enumerated(f.Affects))
	}
	for _, x := range f.Fix {
		fmt.Fprintf(w, "   fix    %s\n          safe: %s\n", x.Command, safety(x))
	}
	for _, e := range f.Evidence {
		fmt.Fprintf(w, "   see    %s\n", e.Command)
		if e.Text != "" {
			fmt.Fprintf(w, "          %s\n", e.Text)
		}
	}
}

// enumerated joins words, at most eight of them.
func enumerated(words []string) string {
	const most = 8
	if len(words) <= most {
		return strings.Join(words, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(words[:most], ", "), len(words)-most)
}

// safety says whether --fix applies a fix, and its side effects.
func safety(x doctor.Fix) string {
	words := "no"
	if x.Safe {
		words = "yes"
	}
	if x.Effect != "" {
		words += ", " + x.Effect
	}
	if x.Safe && x.Apply != nil {
		return words + "; applied by --fix after a second look"
	}
	return words + "; not applied by --fix"
}

// summary counts findings and checks.
func summary(r *doctor.Report) string {
	var errors, warnings, infos, passed int
	for _, f := range r.Findings {
		switch f.Severity {
		case doctor.Error:
			errors++
		case doctor.Warning:
			warnings++
		default:
			infos++
		}
	}
	for _, c := range r.Checks {
		if c.Status == doctor.Passed {
			passed++
		}
	}
	text := "no findings"
	if len(r.Findings) > 0 {
		var parts []string
		for _, p := range []struct {
			n    int
			what string
		}{{errors, "error"}, {warnings, "warning"}, {infos, "note"}} {
			if p.n > 0 {
				parts = append(parts, plural.Count(p.n, p.what))
			}
		}
		text = fmt.Sprintf(
			"%s (%s)",
			plural.Count(len(r.Findings), "finding"),
			strings.Join(parts, ", "),
		)
	}
	text += fmt.Sprintf("; %s passed", plural.Count(passed, "check"))
	var skipped []doctor.SkippedCheck
	for _, c := range r.Checks {
		if c.Reason != "" && !c.Unused {
			skipped = append(skipped, doctor.SkippedCheck{Check: c.ID, Reason: c.Reason})
		}
	}
	if n := len(skipped); n > 0 {
		text += fmt.Sprintf(", %d skipped: %s", n, strings.Join(reasons(skipped), "; "))
	}
	return text
}

// reasons returns why checks were skipped; checks with the same reason are together.
func reasons(list []doctor.SkippedCheck) (texts []string) {
	checks := map[string][]string{}
	var order []string
	for _, s := range list {
		if checks[s.Reason] == nil {
			order = append(order, s.Reason)
		}
		checks[s.Reason] = append(checks[s.Reason], s.Check)
	}
	const most = 3 // names
	for _, reason := range order {
		names := strings.Join(checks[reason], ", ")
		if n := len(checks[reason]); n > most {
			names = plural.Count(n, "check")
		}
		texts = append(texts, fmt.Sprintf("%s (%s)", names, reason))
	}
	return texts
}

// SafeFixes lists the fixes that --fix is going to apply.
func SafeFixes(w io.Writer, fixes []doctor.SafeFix) {
	fmt.Fprintln(w, "\n fixes to apply:")
	for _, x := range fixes {
		fmt.Fprintf(w, "   %-26s %s\n", x.Finding.ID, x.Fix.Command)
		if x.Fix.Effect != "" {
			fmt.Fprintf(w, "   %-26s %s\n", "", x.Fix.Effect)
		}
	}
}

// Applied prints the outcome of fixes.
func Applied(w io.Writer, list []doctor.Applied) {
	fmt.Fprintln(w)
	for _, a := range list {
		switch {
		case a.Error != "":
			fmt.Fprintf(w, " ✗ %-26s %s: %s\n", a.ID, a.Command, a.Error)
		case a.Gone:
			fmt.Fprintf(w, " - %-26s not applied: the second look did not find the problem\n", a.ID)
		default:
			fmt.Fprintf(w, " ✓ %-26s fixed: %s\n", a.ID, a.Command)
		}
	}
}
