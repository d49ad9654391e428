package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpWidth is the width of help texts in columns, unless the terminal is narrower.
const helpWidth = 80

// CommonFlag is the annotation of flags that several commands share. The help of a command lists
// their names only; "tenon help flags" explains them.
const CommonFlag = "tenon_common_flag"

// common marks flags of a command as common ones.
func common(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		// SetAnnotation fails only if the flag does not exist.
		_ = cmd.Flags().SetAnnotation(name, CommonFlag, nil)
	}
}

// setHelp makes a command and its subcommands print help in the width of standard output.
func (a *app) setHelp(root *cobra.Command) {
	width := helpWidth
	if w := a.stdout.Width(); w > 0 {
		width = min(w, width)
	}
	root.SetHelpFunc(
		func(cmd *cobra.Command, _ []string) { printHelp(cmd.OutOrStdout(), cmd, width) },
	)
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		printUsage(cmd.OutOrStderr(), cmd, width)
		return nil
	})
}

// strictHelp makes "tenon help" return an error for an unknown command.
func strictHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, err := root.Find([]string{"help"})
	if err != nil {
		return
	}
	help.Run, help.RunE = nil, func(_ *cobra.Command, args []string) error {
		cmd, rest, err := root.Find(args)
		switch {
		case err != nil:
			return usageError{err}
		case len(rest) > 0 && cmd.HasSubCommands():
			return unknownCommand(cmd, rest[0])
		case len(rest) > 0:
			return usagef("unexpected argument %q", rest[0])
		}
		return cmd.Help()
	}
}

func printHelp(w io.Writer, cmd *cobra.Command, width int) {
	text := cmd.Long
	if text == "" {
		text = cmd.Short
	}
	fmt.Fprintln(w, fill(text, width))
	if cmd.Runnable() || cmd.HasSubCommands() {
		fmt.Fprintln(w)
		printUsage(w, cmd, width)
	}
}

func printUsage(w io.Writer, cmd *cobra.Command, width int) {
	fmt.Fprintln(w, "Usage:")
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "  %s COMMAND\n", cmd.CommandPath())
	} else {
		fmt.Fprintf(w, "  %s\n", cmd.UseLine())
	}
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	for _, g := range cmd.Groups() {
		printCommands(w, g.Title, cmd, func(c *cobra.Command) bool { return c.GroupID == g.ID })
	}
	printCommands(w, "Commands:", cmd, func(c *cobra.Command) bool { return c.GroupID == "" })
	own, shared := splitFlags(cmd)
	if own.HasAvailableFlags() {
		fmt.Fprintf(w, "\nFlags:\n%s", own.FlagUsagesWrapped(width))
	}
	if len(shared) > 0 {
		list := fill(strings.Join(shared, ", "), width-2)
		fmt.Fprintf(w, "\nCommon flags (run \"tenon help flags\" for details):\n  %s\n",
			strings.ReplaceAll(list, "\n", "\n  "))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\nRun \"%s COMMAND --help\" for more about a command.\n", cmd.CommandPath())
	}
}

// printCommands lists the subcommands that belong to a group, help topics too.
func printCommands(w io.Writer, title string, parent *cobra.Command, in func(*cobra.Command) bool) {
	for _, c := range parent.Commands() {
		if !c.IsAvailableCommand() && c.Name() != "help" && !c.IsAdditionalHelpTopicCommand() ||
			!in(c) {
			continue
		}
		if title != "" {
			fmt.Fprintf(w, "\n%s\n", title)
			title = ""
		}
		fmt.Fprintf(w, "  %-*s  %s\n", parent.Commands()[0].NamePadding(), c.Name(), c.Short)
	}
}

// splitFlags returns the flags that only this command explains, and the names of the common ones.
func splitFlags(cmd *cobra.Command) (own *pflag.FlagSet, shared []string) {
	own = pflag.NewFlagSet("", pflag.ContinueOnError)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		_, isCommon := f.Annotations[CommonFlag]
		switch {
		case f.Hidden, f.Name == "help":
		case isCommon:
			value, _ := pflag.UnquoteUsage(f)
			shared = append(shared, strings.TrimSpace("--"+f.Name+" "+value))
		default:
			own.AddFlag(f)
		}
	})
	return own, shared
}

// fill breaks the paragraphs of a text into lines of at most width columns. Lines that are indented
// stay as they are.
func fill(text string, width int) string {
	var out []string
	line := ""
	flush := func() {
		if line != "" {
			out = append(out, line)
		}
		line = ""
	}
	for source := range strings.SplitSeq(text, "\n") {
		if source == "" || strings.HasPrefix(source, " ") || strings.HasPrefix(source, "\t") {
			flush()
			out = append(out, source)
			continue
		}
		for word := range strings.FieldsSeq(source) {
			if line != "" && len(line)+1+len(word) > width {
				flush()
			}
			line = strings.TrimPrefix(line+" "+word, " ")
		}
	}
	flush()
	return strings.Join(out, "\n")
}

// flagsTopic is the help topic that explains the common flags.
func (a *app) flagsTopic() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "flags",
		Short: "Explain the flags that most commands share",
		Long: `Most commands share the flags below; the help of a command lists the ones that it
accepts. A variable in brackets provides the default.

A template of --output uses the names of --json, and can call join LIST SEPARATOR
and json VALUE in addition to the functions of text/template of Go:
-o go-template='{{range .}}{{.containerID}} {{join .addresses ","}}{{"\n"}}{{end}}'`,
	}
	// The flags belong to a command of their own, so that "tenon flags" accepts none.
	shown := &cobra.Command{}
	r := &settings{app: a}
	r.clientFlags(shown)
	r.outputFlags(shown)
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		width := helpWidth
		if w := a.stdout.Width(); w > 0 {
			width = min(w, width)
		}
		shown.Flags().BoolP("help", "h", false, "print the help of a command")
		fmt.Fprintf(
			cmd.OutOrStdout(),
			"%s\n\n%s",
			fill(cmd.Long, width),
			shown.Flags().FlagUsagesWrapped(width),
		)
	})
	return cmd
}
