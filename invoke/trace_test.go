package invoke_test

import (
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/invoke"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	parent  = "00-" + traceID + "-00f067aa0ba902b7-01"
)

// TRC-01: a valid traceparent by W3C Trace Context 3.2 and its examples.
func TestTraceValid(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		parent string
		want   bool
	}{
		"sampled":         {parent, true},
		"not sampled":     {"00-" + traceID + "-00f067aa0ba902b7-00", true},
		"unknown flags":   {"00-" + traceID + "-00f067aa0ba902b7-ff", true},
		"a later version": {"cc-" + traceID + "-00f067aa0ba902b7-01", true},
		"a later version with more": {"cc-" + traceID +
			"-00f067aa0ba902b7-01-what-the-future-holds", true},
		"a later version with more, no dash": {"cc-" + traceID + "-00f067aa0ba902b7-01.what",
			false},
		"a later version with odd letters": {"cc-" + traceID + "-00f067aa0ba902b7-01-\x00",
			false},
		"version 00 with more":    {parent + "-more", false},
		"version ff":              {"ff-" + traceID + "-00f067aa0ba902b7-01", false},
		"trace ID of zeros":       {"00-00000000000000000000000000000000-00f067aa0ba902b7-01", false},
		"span ID of zeros":        {"00-" + traceID + "-0000000000000000-01", false},
		"upper case":              {strings.ToUpper(parent), false},
		"truncated":               {parent[:54], false},
		"version not hexadecimal": {".0-" + traceID + "-00f067aa0ba902b7-01", false},
		"trace ID not hexadecimal": {"00-" + strings.Repeat("g", 32) +
			"-00f067aa0ba902b7-01", false},
		"span ID not hexadecimal": {"00-" + traceID + "-00f067aa0ba902bZ-01", false},
		"flags not hexadecimal":   {"00-" + traceID + "-00f067aa0ba902b7-0x", false},
		"underscores":             {strings.ReplaceAll(parent, "-", "_"), false},
		"blanks around":           {" " + parent + " ", false},
		"empty":                   {"", false},
	} {
		trace := invoke.Trace{Parent: row.parent, State: "a=b", Baggage: "c=d"}
		if got := trace.Valid(); got != row.want {
			t.Errorf("%s: valid = %t", name, got)
		}
		wantID, wantEnv := traceID, []string{"TRACEPARENT=" + row.parent, "TRACESTATE=a=b",
			"BAGGAGE=c=d"}
		if !row.want {
			wantID, wantEnv = "", nil
		}
		if diff := cmp.Diff(wantEnv, trace.Environ()); trace.ID() != wantID || diff != "" {
			t.Errorf("%s: ID %q, variables (-want +got)\n%s", name, trace.ID(), diff)
		}
		got, ok := invoke.TraceFrom(invoke.WithTrace(t.Context(), trace))
		if ok != row.want || ok && got != trace {
			t.Errorf("%s: the context has %v, %t", name, got, ok)
		}
		env := map[string]string{"TRACEPARENT": row.parent, "TRACESTATE": "a=b", "BAGGAGE": "c=d"}
		got, ok = invoke.TraceFromEnv(func(name string) string { return env[name] })
		if ok != row.want || ok && got != trace {
			t.Errorf("%s: the environment has %v, %t", name, got, ok)
		}
	}
}

// TRC-06: values that would keep a plugin from starting are omitted.
func TestTraceOmitsInvalidText(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"zero byte": "a=\x00", "new line": "a=b\nCNI_COMMAND=DEL", "non-ASCII letters": "a=ä",
		"too long": "a=" + strings.Repeat("x", 8192),
	} {
		got := invoke.Trace{Parent: parent, State: text, Baggage: text}.Environ()
		if diff := cmp.Diff([]string{"TRACEPARENT=" + parent}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TRC-01, TRC-02, TRC-03: a process receives the trace of the context without variables of another
// trace; without a valid trace it inherits all variables.
func TestProcessTrace(t *testing.T) {
	inherited := []string{"BAGGAGE=old", "TRACEPARENT=old", "TRACESTATE=old"}
	for _, v := range inherited {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	full := invoke.Trace{Parent: parent, State: "a=b", Baggage: "c=d,e="}
	for name, row := range map[string]struct {
		trace   invoke.Trace
		environ []string
		want    []string
	}{
		"no trace": {invoke.Trace{}, nil, inherited},
		"no valid trace, but baggage": {invoke.Trace{Parent: "x", State: "a=b",
			Baggage: "c=d"}, nil, inherited},
		"a span": {invoke.Trace{Parent: parent}, nil,
			[]string{"TRACEPARENT=" + parent}},
		"a span with a state": {invoke.Trace{Parent: parent, State: "a=b"}, nil,
			[]string{"TRACEPARENT=" + parent, "TRACESTATE=a=b"}},
		"a span with baggage": {full, nil,
			[]string{"BAGGAGE=c=d,e=", "TRACEPARENT=" + parent, "TRACESTATE=a=b"}},
		"variables of Environ": {invoke.Trace{Parent: parent}, []string{"X=y"},
			[]string{"TRACEPARENT=" + parent}},
		"Environ has a span of another trace": {full, []string{"TRACEPARENT=other"},
			[]string{"TRACEPARENT=other"}},
	} {
		path := filepath.Join(pluginDir(t, "state"), "state")
		p := invoke.Process{Environ: func(context.Context) []string { return row.environ }}
		reply, err := p.Call(invoke.WithTrace(t.Context(), row.trace), add(path))
		if err != nil {
			t.Fatal(err)
		}
		var got state
		if err := json.Unmarshal(reply.Stdout, &got); err != nil {
			t.Fatal(err)
		}
		vars := slices.DeleteFunc(got.Env, func(kv string) bool {
			return !strings.HasPrefix(kv, "TRACE") && !strings.HasPrefix(kv, "BAGGAGE")
		})
		slices.Sort(vars)
		if diff := cmp.Diff(row.want, vars); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TRC-04: a plugin in this process is part of the trace, and so are its delegates.
func TestLocalTrace(t *testing.T) {
	t.Parallel()
	path := filepath.Join(pluginDir(t, "state"), "state")
	var inside invoke.Trace
	l := invoke.Local{"outer": func(ctx context.Context, c invoke.Call) ([]byte, bool) {
		inside, _ = invoke.TraceFrom(ctx)
		c.Path = path
		reply, err := invoke.Process{Stderr: io.Discard}.Call(ctx, c)
		return reply.Stdout, err == nil
	}}
	want := invoke.Trace{Parent: parent, State: "a=b"}
	reply, err := l.Call(invoke.WithTrace(t.Context(), want),
		invoke.Call{Path: "outer", Env: add(path).Env, Stdin: []byte("{}")})
	if err != nil || inside != want {
		t.Errorf("the plugin has %v, %v", inside, err)
	}
	if !strings.Contains(string(reply.Stdout), `"TRACEPARENT=`+parent+`"`) {
		t.Errorf("its delegate: %s", reply.Stdout)
	}
}

func FuzzTrace(f *testing.F) {
	for _, p := range []string{parent, "cc-" + traceID + "-00f067aa0ba902b7-01-more", "", "00--"} {
		f.Add(p, "a=b", "c=d;e")
	}
	f.Fuzz(func(t *testing.T, parent, state, baggage string) {
		trace := invoke.Trace{Parent: parent, State: state, Baggage: baggage}
		env := trace.Environ()
		if trace.Valid() != (env != nil) || trace.Valid() != (len(trace.ID()) == 32) {
			t.Errorf("valid %t, %q, ID %q", trace.Valid(), env, trace.ID())
		}
		for _, kv := range env {
			if strings.ContainsAny(kv, "\x00\n") {
				t.Errorf("%q", kv)
			}
		}
	})
}

// TestTraceSpans: the trace of a span counts unless the context has one of WithTrace, even an
// invalid one.
func TestTraceSpans(t *testing.T) {
	type key struct{}
	invoke.TraceSpans(func(ctx context.Context) invoke.Trace {
		text, _ := ctx.Value(key{}).(string)
		return invoke.Trace{Parent: text}
	})
	defer invoke.TraceSpans(func(context.Context) invoke.Trace { return invoke.Trace{} })
	other := strings.Replace(parent, traceID, strings.Repeat("a", len(traceID)), 1)
	span := context.WithValue(t.Context(), key{}, parent)
	for name, row := range map[string]struct {
		ctx  context.Context
		want string
	}{
		"no span":                     {t.Context(), ""},
		"a span":                      {span, parent},
		"a span and a trace":          {invoke.WithTrace(span, invoke.Trace{Parent: other}), other},
		"a span and an invalid trace": {invoke.WithTrace(span, invoke.Trace{}), ""},
	} {
		got, ok := invoke.TraceFrom(row.ctx)
		if got.Parent != row.want || ok != (row.want != "") {
			t.Errorf("%s: %q, %t", name, got.Parent, ok)
		}
	}
}
