package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/flags"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/network"
)

const (
	statusFailure = 1
	statusUsage   = 2
)

// exitStatus is an error that ends the program with this status and prints nothing.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// usageError is an error in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// hinted is an error with hints for the user.
type hinted struct {
	error
	hints []string
}

func (h hinted) Unwrap() error { return h.error }

// hint adds hints to an error, after the hints of the errors that it wraps.
func hint(err error, hints ...string) error {
	if err == nil || len(hints) == 0 {
		return err
	}
	if inner := (hinted{}); errors.As(err, &inner) {
		hints = append(inner.hints, hints...)
	}
	return hinted{err, hints}
}

// attachmentError is an error with the key of an attachment at the start of its text.
type attachmentError struct{ error }

func (e attachmentError) Unwrap() error { return e.error }

// splitErrors divides joined errors into the errors that match target and the rest, joined again.
func splitErrors(err, target error) (matching []error, rest error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			some, unmatched := splitErrors(err, target)
			matching, rest = append(matching, some...), errors.Join(rest, unmatched)
		}
		return matching, rest
	}
	if errors.Is(err, target) {
		return []error{err}, nil
	}
	return nil, err
}

// flagError returns the error for flags that cannot be parsed. If a subcommand does not exist, it
// reports that instead.
func (a *app) flagError(cmd *cobra.Command, err error) error {
	if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 {
		return cmd.ValidateArgs(args)
	}
	if wrong := formatError(a, err); wrong != nil {
		return wrong
	}
	wrong := usageError{flags.Explain(err)}
	if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) {
		return hint(wrong, a.similarFlags(cmd, unknown)...)
	}
	return wrong
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
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	}
	a.complain(cmd, err)
	status = statusFailure
	if errors.As(err, new(usageError)) {
		a.printHint(fmt.Sprintf("%s --help", cmd.CommandPath()))
		status = statusUsage
	}
	// An error of standard output is reported above.
	_ = outputOf(cmd).WriteError(a.stdout, cni.AsError(err).Encode(cni.Newest))
	return int(status)
}

// unfinished reports the error of a command that has printed its output as far as possible. It
// keeps the error out of the output.
func (a *app) unfinished(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	a.complain(cmd, err)
	return exitStatus(statusFailure)
}

// complain prints an error on one line, a line for each further joined error, and the hints.
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
	if object.Details != "" && !commandReplaces(err, object.Code) {
		a.printHint(object.Details)
	}
	a.printHints(err)
}

// commandReplaces reports whether a hint with a command of this program replaces the hint of the
// library, because it detaches the attachment that is in the way of an ADD.
func commandReplaces(err error, code cni.Code) bool {
	inTheWay := code == session.CodeInUse || errors.Is(err, network.ErrExists)
	return inTheWay && errors.As(err, new(hinted))
}

func (a *app) printHints(err error) {
	if h := (hinted{}); errors.As(err, &h) {
		for _, text := range h.hints {
			a.printHint(text)
		}
	}
}

// warn prints a warning.
func (a *app) warn(format string, args ...any) {
	_ = writeLine(a.stderr, "warning", fmt.Sprintf(format, args...))
}

func (a *app) printHint(text string) {
	fmt.Fprintf(a.stderr, "hint: %s\n", strings.ReplaceAll(text, "\n", " "))
}
