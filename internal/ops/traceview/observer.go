package traceview

import (
	"context"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/trace"
	"github.com/tenon-cni/tenon/network"
)

// Observer is a [network.Observer] that records the operations of a client in the trace of their
// context. The calls of plugins record themselves.
type Observer struct{}

var _ network.Observer = Observer{}

// shortestWait is the shortest wait for a lock that is recorded.
const shortestWait = time.Millisecond

// Begin implements [network.Observer].
func (Observer) Begin(
	ctx context.Context, e network.Event,
) (context.Context, func(network.Outcome)) {
	a := e.Attachment
	switch e.Kind {
	case network.PluginCall:
		return ctx, nil
	case network.Lock:
		return ctx, func(out network.Outcome) {
			if out.Duration >= shortestWait || out.Err != nil {
				what := Title("lock network", a.Network, "", "")
				if a.Network == "" {
					what = Title("lock container", "", a.Container, "")
				}
				trace.From(ctx).Past(trace.Wait, what, out.Duration, out.Err)
			}
		}
	}
	ctx, span := trace.Start(ctx, trace.Operation, title(e), trace.Texts(map[string]string{
		trace.Verb: string(e.Verb), trace.Network: a.Network, trace.ContainerID: a.Container,
		trace.IfName: a.IfName,
	}))
	return ctx, func(out network.Outcome) {
		if out.Err != nil {
			span.Set(trace.ErrorCode, int(cni.CodeOf(out.Err)))
		}
		span.End(out.Err)
	}
}

// title returns the name of an event: the verb of an operation, and otherwise its kind.
func title(e network.Event) string {
	a := e.Attachment
	what := string(e.Verb)
	if e.Kind != network.Operation {
		what = string(e.Kind)
	}
	return Title(what, a.Network, a.Container, a.IfName)
}
