package invoke

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/tenon-cni/tenon/cni"
)

// Error is a failed call. It unwraps to Err, so [cni.CodeOf] returns the plugin's code, and
// [errors.As] finds its message and details as printed.
type Error struct {
	Plugin  string      // file name of the binary
	Command cni.Command // verb of the call

	// Err is the error object of the plugin. Without a usable one, the package creates one with
	// [cni.CodeIOFailure] if the plugin could not be started and [cni.CodeInternal] otherwise; it
	// wraps the error of the context if that ended the call.
	Err *cni.Error

	// Status is how the process ended, "exit status 1" or "signal: killed"; empty if it never
	// started.
	Status string

	// Stdout is the whole standard output of the plugin, even if Err was decoded from it. It is nil
	// if the plugin was not started, printed nothing, or wrote more than 16 MiB.
	Stdout []byte

	// Stderr is the last 4 KiB of standard error, which has been passed on already.
	Stderr []byte
}

// Error returns the plugin and the verb, followed by the text of Err.
func (e *Error) Error() string { return fmt.Sprintf("%s %s: %v", e.Plugin, e.Command, e.Err) }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// outcome describes how a failed plugin ended.
type outcome struct {
	status         string
	stdout, stderr []byte
}

// failed decodes the error object of a plugin.
func (c Call) failed(o outcome) *Error {
	object, err := cni.DecodeError(o.stdout)
	if err != nil {
		object = cni.Errorf(cni.CodeInternal, "%s without a usable error object", o.status).
			WithDetails(o.quote())
	}
	return c.error(object, o)
}

// stopped returns the error of a plugin that was stopped because ctx ended.
func (c Call) stopped(ctx context.Context, after time.Duration, o outcome) *Error {
	e := cni.Errorf(cni.CodeInternal, "stopped after %v: %w", after.Round(time.Millisecond),
		contextError(ctx))
	if object, err := cni.DecodeError(o.stdout); err == nil {
		e = e.WithDetails(object.Error())
	} else if said := o.quote(); said != "" {
		e = e.WithDetails(said)
	}
	return c.error(e, o)
}

// contextError returns the error of ctx, with its cause if that is different.
func contextError(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return ctx.Err()
}

func (c Call) error(err *cni.Error, o outcome) *Error {
	return &Error{
		Plugin: filepath.Base(c.Path), Command: c.Env.Command, Err: err,
		Status: o.status, Stdout: o.stdout, Stderr: o.stderr,
	}
}

// quote returns the plugin's output in readable form.
func (o outcome) quote() string {
	var b bytes.Buffer
	for _, s := range []struct {
		name string
		text []byte
	}{{"stdout", o.stdout}, {"stderr", o.stderr}} {
		text := bytes.TrimSpace(s.text)
		if len(text) == 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %s", s.name, abbreviate(text))
	}
	return b.String()
}

// abbreviate quotes text and omits the middle of a long one: a panic states its cause in the first
// line, a log in the last.
func abbreviate(text []byte) string {
	const head, tail = 256, 512
	if len(text) <= head+tail {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%q … %q", text[:head], text[len(text)-tail:])
}
