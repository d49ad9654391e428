package manual

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// environment is the title of the paragraph of a description that lists variables.
const environment = "Environment:"

// exitStatus begins the paragraph of a description about the exit statuses of the command. It takes
// the place of [Program.Status] on the page.
const exitStatus = "Exit status:"

// page returns the page of a command.
func (p Program) page(cmd *cobra.Command) []byte {
	own := cmd == p.Command
	r := &roff{}
	r.title(strings.ToUpper(pageName(cmd)), p)
	r.section("Name")
	r.line(escape(pageName(cmd)) + ` \- ` + escape(lowerFirst(cmd.Short)))
	r.section("Synopsis")
	r.synopsis(cmd)
	text, status, variables := split(description(cmd))
	r.section("Description")
	r.text(text)
	p.commands(r, cmd)
	p.options(r, cmd)
	if cmd.HasExample() {
		r.section("Examples")
		r.verbatim(strings.Split(cmd.Example, "\n"))
	}
	if status != "" && !own {
		r.section("Exit status")
		r.text(status)
	} else {
		r.entries("Exit status", p.Status)
	}
	if own {
		if variables != nil {
			r.entries("Environment", variables)
		} else {
			r.entries("Environment", p.Environment)
		}
		r.entries("Files", p.Files)
	}
	p.seeAlso(r, cmd)
	return r.b.Bytes()
}

func description(cmd *cobra.Command) string {
	if cmd.Long != "" {
		return cmd.Long
	}
	return cmd.Short + "."
}

// split takes the list of variables and the exit statuses out of a description, because they have
// sections of their own.
func split(text string) (rest, status string, variables []Entry) {
	var kept []string
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		switch list, found := strings.CutPrefix(paragraph, environment+"\n"); {
		case found:
			for line := range strings.SplitSeq(list, "\n") {
				name, meaning, _ := strings.Cut(strings.TrimSpace(line), " ")
				variables = append(variables, Entry{name, strings.TrimSpace(meaning)})
			}
		case strings.HasPrefix(paragraph, exitStatus):
			status = strings.TrimSpace(paragraph[len(exitStatus):])
		default:
			kept = append(kept, paragraph)
		}
	}
	return strings.Join(kept, "\n\n"), status, variables
}

// commands lists the subcommands with their pages.
func (p Program) commands(r *roff, cmd *cobra.Command) {
	var list []Entry
	for _, c := range cmd.Commands() {
		if shown(c) {
			list = append(list, Entry{c.CommandPath(), c.Short + "; see " + pageName(c) + "(" + section + ")."})
		}
	}
	r.entries("Commands", list)
}

// options explains the flags of a command, then the flags that other commands have too.
func (p Program) options(r *roff, cmd *cobra.Command) {
	var own, common, inherited []Entry
	cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if _, shared := f.Annotations[p.Common]; f.Hidden {
			return
		} else if shared {
			common = append(common, option(f))
		} else {
			own = append(own, option(f))
		}
	})
	cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			inherited = append(inherited, option(f))
		}
	})
	r.entries("Options", own)
	r.entries("Common options", common)
	r.entries("Settings", inherited)
}

// option returns the entry of a flag: its form, its meaning and its default.
func option(f *pflag.Flag) Entry {
	value, usage := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	if value != "" {
		name += " " + value
	}
	plain := []string{"", "0", "0s", "false", "[]"}
	if !slices.Contains(plain, f.DefValue) && !strings.Contains(usage, "(default") {
		usage += " (default " + f.DefValue + ")"
	}
	return Entry{name, usage}
}

func (p Program) seeAlso(r *roff, cmd *cobra.Command) {
	var pages []string
	add := func(c *cobra.Command) { pages = append(pages, pageName(c)+"("+section+")") }
	if cmd.HasParent() {
		add(cmd.Parent())
		for _, c := range cmd.Parent().Commands() {
			if shown(c) && c != cmd && c.GroupID == cmd.GroupID {
				add(c)
			}
		}
	} else {
		pages = append(pages, p.SeeAlso...)
	}
	if len(pages) > 0 {
		slices.Sort(pages)
		r.section("See also")
		r.pages(slices.Compact(pages))
	}
}

func lowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}
