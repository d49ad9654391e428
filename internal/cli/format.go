package cli

import (
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/internal/ops/format"
)

// outputFlags adds --output and --json, of which the last one given counts. Others are formats that
// only this command has.
func (r *settings) outputFlags(cmd *cobra.Command, others ...string) {
	r.output.Others = others
	flags := cmd.Flags()
	flags.VarP(&r.output, "output", "o", "print the output as `FORMAT`: "+
		strings.Join(r.output.Names(), ", ")+"=TEMPLATE")
	flags.BoolFunc("json", "print the output, or the error, as JSON; the same as -o json",
		func(value string) error {
			on, err := strconv.ParseBool(value)
			if err != nil || !on {
				return err
			}
			return r.output.Set(format.JSON)
		})
	common(cmd, "json")
	if len(others) == 0 {
		common(cmd, "output")
	}
	// The flag exists.
	_ = cmd.RegisterFlagCompletionFunc("output", completeFormat(&r.output))
}

// completeFormat completes the formats of a command. A template follows without a space.
func completeFormat(o *format.Output) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var words []cobra.Completion
		directive := cobra.ShellCompDirectiveNoFileComp
		for _, name := range o.Names() {
			if !strings.HasPrefix(name, word) {
				continue
			}
			if name == format.Template {
				name += "="
			}
			words = append(words, name)
		}
		if len(words) == 1 && strings.HasSuffix(words[0], "=") {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		return words, directive
	}
}

// outputOf returns the value of --output of a command, the zero value if it has no such flag.
func outputOf(cmd *cobra.Command) *format.Output {
	if f := cmd.Flags().Lookup("output"); f != nil {
		if o, ok := f.Value.(*format.Output); ok {
			return o
		}
	}
	return &format.Output{}
}

// widened returns a row of a table, with more cells if the format is wide.
func widened(o *format.Output, row []string, more ...string) []string {
	if o.Is(format.Wide) {
		return append(row, more...)
	}
	return row
}

// print prints v for programs if the flags ask for it; otherwise it calls text, which prints v for
// people.
func (r *settings) print(v any, text func() error) error {
	if r.output.Structured() {
		return r.printValue(v)
	}
	return text()
}

// printValue prints v for programs.
func (r *settings) printValue(v any) error {
	return explainTemplate(r.output.Write(r.stdout, v))
}

// printEach prints one of several values for programs.
func (r *settings) printEach(v any) error {
	return explainTemplate(r.output.WriteEach(r.stdout, v))
}

// explainTemplate adds a hint to the error of a template that does not fit the output.
func explainTemplate(err error) error {
	broken := (*format.TemplateError)(nil)
	switch {
	case !errors.As(err, &broken):
		return err
	case broken.List:
		return hint(err, "the output is a list: write {{range .}}…{{end}}; -o json shows the names")
	}
	return hint(err, "-o json shows the names that a template can use")
}

// formatError returns the error for an argument of --output that is not a format, nil for other
// errors.
func formatError(a *app, err error) error {
	if unknown := (*format.UnknownError)(nil); errors.As(err, &unknown) {
		err := usagef("--output: %v", unknown)
		if with := a.didYouMean(err, unknown.Name, unknown.Known); errors.As(with, new(hinted)) {
			return with
		}
		return hint(err, "the formats are "+strings.Join(unknown.Known, ", "))
	}
	if broken := (*format.TemplateError)(nil); errors.As(err, &broken) {
		return hint(usagef("--output: %v", broken),
			`quote the template for the shell: -o go-template='{{range .}}{{json .}}{{"\n"}}{{end}}'`)
	}
	return nil
}
