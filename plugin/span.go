package plugin

import (
	"context"
	"fmt"
	"os"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/trace"
	"github.com/tenon-cni/tenon/invoke"
)

// traced makes the call of a plugin process record its steps in a file. end must be called with the
// outcome. Without a path, traced does nothing; if the file cannot be used, it prints a warning.
func (d Definition) traced(
	ctx context.Context, path string, env cni.Env, stdin []byte,
) (_ context.Context, end func(error)) {
	if path == "" {
		return ctx, func(error) {}
	}
	warn := func(err error) { fmt.Fprintln(os.Stderr, "warning:", err) }
	parent, _ := invoke.TraceFrom(ctx)
	ctx, done, err := trace.Open(ctx, path, parent.Parent, warn)
	if err != nil {
		warn(err)
		return ctx, func(error) {}
	}
	name, _, _ := cni.DecodeHeader(stdin)
	trace.From(ctx).Hide(trace.Secrets(stdin, env.Args)...)
	ctx, span := trace.Start(ctx, trace.Process, d.Name, trace.Texts(map[string]string{
		trace.Verb: string(env.Command), trace.PluginType: d.Name, trace.Network: name,
		trace.ContainerID: env.ContainerID, trace.IfName: env.IfName,
	}))
	if names := trace.ArgNames(env.Args); len(names) > 0 {
		span.Set(trace.Args, names)
	}
	return ctx, func(err error) {
		if err != nil {
			span.Set(trace.ErrorCode, int(cni.CodeOf(err)))
		}
		span.End(err)
		done()
	}
}
