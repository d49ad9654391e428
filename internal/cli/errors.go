package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/text"
)

const (
	statusFailure = 1
	statusUsage   = 2
)

// exitStatus ends the program without a further word.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// usageError is a command line that makes no sense.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// hinted is an error with what may help.
type hinted struct {
	error
	hints []string
}

func (h hinted) Unwrap() error { return h.error }

// hint adds hints to an error. Those of the innermost error come first.
func hint(err error, hints ...string) error {
	if err == nil || len(hints) == 0 {
		return err
	}
	if inner := (hinted{}); errors.As(err, &inner) {
		hints = append(inner.hints, hints...)
	}
	return hinted{err, hints}
}

// attachmentError is an error whose text begins with an attachment.
type attachmentError struct{ error }

func (e attachmentError) Unwrap() error { return e.error }

// splitErrors returns the joined errors that are target, and the others joined.
func splitErrors(err, target error) (matching []error, rest error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			some, others := splitErrors(err, target)
			matching, rest = append(matching, some...), errors.Join(rest, others)
		}
		return matching, rest
	}
	if errors.Is(err, target) {
		return []error{err}, nil
	}
	return nil, err
}

// didYouMean adds to an error about a name the nearest of those there are.
func didYouMean(err error, name string, known []string) error {
	if near := text.Nearest(name, known); near != "" {
		return hint(err, fmt.Sprintf("did you mean %q?", near))
	}
	return err
}

// unknown says that there is nothing of a kind with this name, and suggests the nearest of those there are.
func unknown(kind, name string, known []string) error {
	return didYouMean(usagef("there is no %s %q", kind, name), name, known)
}

// flagError explains why flags could not be read. A subcommand that does not exist is the better explanation.
func flagError(cmd *cobra.Command, err error) error {
	if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 {
		return cmd.ValidateArgs(args)
	}
	missing := (*pflag.NotExistError)(nil)
	if !errors.As(err, &missing) || missing.GetSpecifiedShortnames() != "" {
		return usageError{err}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	return unknown("flag", "--"+missing.GetSpecifiedName(), names)
}

// report prints an error and returns the exit status.
func (a *app) report(cmd *cobra.Command, err error) int {
	status := exitStatus(statusFailure)
	if lost := a.stdout.err; lost != nil && !errors.Is(err, lost) {
		a.complain(cmd, lost)
		if err == nil {
			return statusFailure
		}
	}
	switch usage := (usageError{}); {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &usage):
		a.complain(cmd, err)
		a.printHint(fmt.Sprintf("%s --help", cmd.CommandPath()))
		return statusUsage
	}
	a.complain(cmd, err)
	if f := cmd.Flags().Lookup("json"); f != nil && f.Changed {
		fmt.Fprintf(a.stdout, "%s\n", cni.AsError(err).Encode(cni.Newest))
	}
	return statusFailure
}

// unfinished ends a command that has printed what it could: what went wrong is told, and is no part of its output.
func (a *app) unfinished(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	a.complain(cmd, err)
	return exitStatus(statusFailure)
}

// complain prints an error as one line, further lines for each further error of several, and the hints.
func (a *app) complain(cmd *cobra.Command, err error) {
	prefix := cmd.CommandPath()
	if name, verb, ok := strings.Cut(prefix, " "); ok {
		prefix = name + ": " + verb
	}
	separator := ": "
	if e := (attachmentError{}); errors.As(err, &e) {
		separator = " "
	}
	object := cni.AsError(err)
	lines := strings.Split(strings.TrimSpace(object.Msg), "\n")
	fmt.Fprintf(a.stderr, "%s%s%s\n", prefix, separator, lines[0])
	for _, line := range lines[1:] {
		fmt.Fprintf(a.stderr, "  and %s\n", line)
	}
	if object.Details != "" {
		a.printHint(object.Details)
	}
	a.printHints(err)
}

func (a *app) printHints(err error) {
	if h := (hinted{}); errors.As(err, &h) {
		for _, text := range h.hints {
			a.printHint(text)
		}
	}
}

// warn tells what is no error of the command.
func (a *app) warn(format string, args ...any) {
	_ = writeLine(a.stderr, "warning", fmt.Sprintf(format, args...))
}

func (a *app) printHint(text string) {
	fmt.Fprintf(a.stderr, "hint: %s\n", strings.ReplaceAll(text, "\n", " "))
}
