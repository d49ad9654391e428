package otel_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet/exefile"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
	"github.com/tenon-cni/tenon/otel"
)

// rig is a Client with shell scripts as plugins, and the spans that it has exported.
type rig struct {
	*network.Client
	provider *sdk.TracerProvider
	exported *tracetest.InMemoryExporter
	dir      string
}

func newRig(t *testing.T, observer otel.Observer) *rig {
	t.Helper()
	r := &rig{exported: tracetest.NewInMemoryExporter(), dir: t.TempDir()}
	r.provider = sdk.NewTracerProvider(sdk.WithSyncer(r.exported))
	observer.Provider = r.provider
	r.Client = &network.Client{
		PluginDirs: []string{r.dir}, Isolated: true, StateDir: filepath.Join(r.dir, "state"),
		Observer: observer, Log: slog.New(slog.DiscardHandler),
	}
	return r
}

// plugin installs a script that records its trace before it continues.
func (r *rig) plugin(t *testing.T, name, script string) {
	t.Helper()
	text := "#!/bin/sh\necho \"$CNI_COMMAND $TRACEPARENT $TRACESTATE $BAGGAGE\" >>" + r.dir + "/" +
		name + ".seen\n" + script + "\n"
	if err := exefile.Write(filepath.Join(r.dir, name), []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// seen returns the traces that a plugin has recorded.
func (r *rig) seen(t *testing.T, name string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(r.dir, name+".seen"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// tree renders the exported spans as a tree, in the order of their start.
func (r *rig) tree() string {
	spans := r.exported.GetSpans()
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int {
		return cmp.Compare(a.StartTime.UnixNano(), b.StartTime.UnixNano())
	})
	var b strings.Builder
	var show func(parent trace.SpanID, indent string)
	show = func(parent trace.SpanID, indent string) {
		for _, s := range spans {
			// On slow nodes, this span appears even if the lock is free.
			if s.Parent.SpanID() != parent || s.Name == "CNI lock" {
				continue
			}
			fmt.Fprintf(&b, "%s%s", indent, s.Name)
			for _, a := range s.Attributes {
				fmt.Fprintf(&b, " %s=%s", strings.TrimPrefix(string(a.Key), "cni."), a.Value.Emit())
			}
			if s.Status.Code == codes.Error {
				fmt.Fprintf(&b, " (%s)", s.Status.Description)
			}
			b.WriteString("\n")
			show(s.SpanContext.SpanID(), indent+"  ")
		}
	}
	show(trace.SpanID{}, "")
	return b.String()
}

// span returns the only span with a name.
func (r *rig) span(t *testing.T, name string) tracetest.SpanStub {
	t.Helper()
	var found []tracetest.SpanStub
	for _, s := range r.exported.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans %q in\n%s", len(found), name, r.tree())
	}
	return found[0]
}

func load(t *testing.T, plugins ...string) *config.Network {
	t.Helper()
	n, err := config.LoadBytes(fmt.Appendf(nil,
		`{"cniVersion":"1.1.0","name":"pods","plugins":[{"type":"%s"}]}`,
		strings.Join(plugins, `"},{"type":"`)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

var request = network.Request{Container: "c1", IfName: "eth0", Parameters: network.Parameters{
	Netns: "/run/netns/absent", Args: cni.Args{{Key: "K", Value: "secret"}},
}}

const result = `echo '{"cniVersion":"1.1.0"}'`

// TRC-01, TRC-04: a trace includes the caller, the operation and its plugins; each plugin gets its
// own span.
func TestTrace(t *testing.T) {
	t.Parallel()
	r := newRig(t, otel.Observer{})
	r.plugin(t, "first", result)
	r.plugin(t, "second", result)
	ctx, parent := r.provider.Tracer("test").Start(t.Context(), "RunPodSandbox")
	member, err := baggage.NewMember("tenant", "blue")
	if err != nil {
		t.Fatal(err)
	}
	bag, err := baggage.New(member)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Add(baggage.ContextWithBaggage(ctx, bag), load(t, "first", "second"),
		request); err != nil {
		t.Fatal(err)
	}
	parent.End()
	a := request.Attachment("pods")
	key := " attachment=" + string(a.Owner()) + " network=pods container_id=c1 ifname=eth0 verb=ADD"
	want := "RunPodSandbox\n  CNI ADD" + key + "\n    CNI ADD first" + key +
		" plugin=first\n    CNI ADD second" + key + " plugin=second\n"
	if got := r.tree(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for _, name := range []string{"first", "second"} {
		s := r.span(t, "CNI ADD "+name).SpanContext
		want := fmt.Sprintf("ADD 00-%s-%s-01  tenant=blue", parent.SpanContext().TraceID(),
			s.SpanID())
		if got := r.seen(t, name); !slices.Equal(got, []string{want}) {
			t.Errorf("%s has seen %q, want %q", name, got, want)
		}
	}
}

// SEC-07: a failed span has its error code, and no text that could quote arguments, unless
// ErrorText is set.
func TestFailure(t *testing.T) {
	t.Parallel()
	for text, want := range map[bool]string{
		false: "CNI error 11",
		true:  "pods/c1/eth0: first ADD: no K=secret",
	} {
		r := newRig(t, otel.Observer{ErrorText: text})
		r.plugin(t, "first",
			`[ $CNI_COMMAND = DEL ] || { echo "{\"code\":11,\"msg\":\"no $CNI_ARGS\"}"; exit 1; }`)
		if _, err := r.Add(t.Context(), load(t, "first"),
			request); cni.CodeOf(err) != cni.CodeTryAgainLater {
			t.Fatal(err)
		}
		if s := r.span(t, "CNI ADD"); s.Status.Code != codes.Error || s.Status.Description != want {
			t.Errorf("status %v", s.Status)
		}
		var short strings.Builder
		for line := range strings.Lines(r.tree()) {
			line, _, _ = strings.Cut(strings.TrimSuffix(line, "\n"), " attachment=")
			fmt.Fprintln(&short, line)
		}
		if got := short.String(); got != "CNI ADD\n  CNI ADD first\n  CNI rollback\n    CNI DEL first\n" {
			t.Error(got)
		}
		if tree := r.tree(); strings.Count(tree, " error_code=11") != 2 ||
			strings.Contains(tree, "secret") != text {
			t.Error(tree)
		}
	}
}

// TRC-05: spans belong to the trace that the program has inherited.
func TestInherited(t *testing.T) {
	t.Parallel()
	r := newRig(t, otel.Observer{})
	r.plugin(t, "first", result)
	ctx := invoke.WithTrace(t.Context(), invoke.Trace{
		Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: "vendor=x",
		Baggage: "tenant=blue",
	})
	if err := r.Status(ctx, load(t, "first")); err != nil {
		t.Fatal(err)
	}
	if s := r.span(t, "CNI STATUS"); s.Parent.SpanID().String() != "00f067aa0ba902b7" {
		t.Errorf("part of %v", s.Parent.SpanID())
	}
	want := fmt.Sprintf("STATUS 00-4bf92f3577b34da6a3ce929d0e0e4736-%s-01 vendor=x tenant=blue",
		r.span(t, "CNI STATUS first").SpanContext.SpanID())
	if got := r.seen(t, "first"); !slices.Equal(got, []string{want}) {
		t.Errorf("seen %q, want %q", got, want)
	}
}

// TRC-02: plugins get no trace if there is no provider.
func TestNoProvider(t *testing.T) {
	for _, name := range []string{"TRACEPARENT", "TRACESTATE", "BAGGAGE"} {
		t.Setenv(name, "")
	}
	r := newRig(t, otel.Observer{})
	r.Observer = otel.Observer{}
	r.plugin(t, "first", result)
	if _, err := r.Add(t.Context(), load(t, "first"), request); err != nil {
		t.Fatal(err)
	}
	if got := r.seen(t, "first"); !slices.Equal(got, []string{"ADD   "}) {
		t.Errorf("seen %q", got)
	}
}

// A program that calls plugins without an Observer passes its span on.
func TestWithoutObserver(t *testing.T) {
	r := newRig(t, otel.Observer{})
	r.Observer = nil
	r.plugin(t, "first", result)
	provider := sdk.NewTracerProvider()
	ctx, span := provider.Tracer("test").Start(t.Context(), "caller")
	defer span.End()
	if _, err := r.Add(ctx, load(t, "first"), request); err != nil {
		t.Fatal(err)
	}
	c := span.SpanContext()
	want := fmt.Sprintf("ADD 00-%s-%s-01  ", c.TraceID(), c.SpanID())
	if got := r.seen(t, "first"); !slices.Equal(got, []string{want}) {
		t.Errorf("seen %q, want %q", got, want)
	}
}

// A wait for a lock gets a span if the lock was held.
func TestLocks(t *testing.T) {
	t.Parallel()
	r := newRig(t, otel.Observer{})
	observer := r.Observer
	lock := network.Event{Kind: network.Lock, Attachment: cni.Attachment{Container: "c1"}}
	for _, out := range []network.Outcome{{}, {Duration: time.Millisecond - 1}} {
		_, end := observer.Begin(context.Background(), lock)
		end(out)
	}
	if got := r.tree() + fmt.Sprint(len(r.exported.GetSpans())); got != "0" {
		t.Errorf("got %s", got)
	}
	_, end := observer.Begin(context.Background(), lock)
	end(network.Outcome{Duration: time.Second, Err: cni.Errorf(cni.CodeTryAgainLater, "busy")})
	s := r.span(t, "CNI lock")
	if d := s.EndTime.Sub(s.StartTime); d != time.Second || s.Status.Code != codes.Error {
		t.Errorf("%v, %v", d, s.Status)
	}
}
