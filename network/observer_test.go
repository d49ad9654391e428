package network_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
)

// story is an observer that writes down events, indented by depth.
type story struct {
	mu   sync.Mutex
	text strings.Builder
	with []network.EventKind // nil: all except locks
}

type depthKey struct{}

func (s *story) Begin(
	ctx context.Context, e network.Event,
) (context.Context, func(network.Outcome)) {
	if s.with == nil && e.Kind == network.Lock || s.with != nil &&
		!slices.Contains(s.with, e.Kind) {
		return ctx, nil
	}
	depth, _ := ctx.Value(depthKey{}).(int)
	s.line(depth, fmt.Sprintf("%s %s %v %s %s", e.Kind, e.Verb, e.Attachment, e.Plugin, e.Path))
	return context.WithValue(ctx, depthKey{}, depth+1), func(o network.Outcome) {
		end := "ended"
		if o.Result != nil {
			end += fmt.Sprintf(" with %d addresses", len(o.Result.IPs))
		}
		if o.Err != nil {
			end += fmt.Sprintf(" with %d", cni.CodeOf(o.Err))
		}
		if o.Duration <= 0 || o.Duration > time.Minute {
			end += " after " + o.Duration.String()
		}
		s.line(depth, end)
	}
}

func (s *story) line(depth int, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(&s.text, strings.Repeat("  ", depth)+strings.Join(strings.Fields(text), " "))
}

// told returns the events since the last call.
func (s *story) told() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.text.Reset()
	return s.text.String()
}

// An observer gets all events of a Client in the right order and depth.
func TestObserver(t *testing.T) {
	t.Parallel()
	s := &story{}
	plugins := invoke.Fake{
		"first":  {cni.Add: invoke.Print(`{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24"}]}`)},
		"second": {},
	}
	c := &network.Client{Isolated: true, Caller: plugins, StateDir: t.TempDir(), Log: quiet,
		Observer: s}
	n := list(t, "1.1.0", "red", "first", "second")
	ctx := t.Context()
	q := request("c1")
	a := q.Attachment("red")
	no := invoke.Fail(cni.Errorf(cni.CodeTryAgainLater, "no"))
	for _, step := range []struct {
		name string
		do   func() error
		code cni.Code
		want string
	}{
		{"an ADD that succeeds", func() error { _, err := c.Add(ctx, n, q); return err }, 0, `
operation ADD red/c1/eth0
  plugin call ADD red/c1/eth0 first first
  ended
  plugin call ADD red/c1/eth0 second second
  ended
ended with 1 addresses
`},
		{"an ADD of an existing attachment", func() error { _, err := c.Add(ctx, n, q); return err }, cni.CodeInvalidEnvironment, `
operation ADD red/c1/eth0
ended with 4
`},
		{"an ADD that replaces it", func() error { q := q; q.Replace = true; _, err := c.Add(ctx, n, q); return err }, 0, `
operation ADD red/c1/eth0
  cleanup DEL red/c1/eth0
    plugin call DEL red/c1/eth0 second second
    ended
    plugin call DEL red/c1/eth0 first first
    ended
  ended
  plugin call ADD red/c1/eth0 first first
  ended
  plugin call ADD red/c1/eth0 second second
  ended
ended with 1 addresses
`},
		{"CHECK", func() error { return c.Check(ctx, a, n) }, 0, `
operation CHECK red/c1/eth0
  plugin call CHECK red/c1/eth0 first first
  ended
  plugin call CHECK red/c1/eth0 second second
  ended
ended
`},
		{"STATUS", func() error { return c.Status(ctx, n) }, 0, `
operation STATUS red//
  plugin call STATUS red// first first
  ended
  plugin call STATUS red// second second
  ended
ended
`},
		{"VERSION", func() error { _, err := c.Versions(ctx, "first"); return err }, 0, `
plugin call VERSION // first first
ended
`},
		{"repair", func() error {
			_, err := c.Repair(ctx, nil, func(context.Context, []invoke.Call) error {
				return cni.Errorf(cni.CodeIOFailure, "no")
			})
			return err
		}, cni.CodeIOFailure, `
repair //
ended with 5
`},
		{"GC of an attachment", func() error { return c.GC(ctx, n, keep()) }, 0, `
operation GC red//
  cleanup DEL red/c1/eth0
    plugin call DEL red/c1/eth0 second second
    ended
    plugin call DEL red/c1/eth0 first first
    ended
  ended
  plugin call GC red// first first
  ended
  plugin call GC red// second second
  ended
ended
`},
		{"an ADD that fails", func() error {
			plugins["second"] = map[cni.Command]invoke.Handler{cni.Add: no, cni.Del: no}
			_, err := c.Add(ctx, n, q)
			return err
		}, cni.CodeTryAgainLater, `
operation ADD red/c1/eth0
  plugin call ADD red/c1/eth0 first first
  ended
  plugin call ADD red/c1/eth0 second second
  ended with 11
  rollback DEL red/c1/eth0
    plugin call DEL red/c1/eth0 second second
    ended with 11
    plugin call DEL red/c1/eth0 first first
    ended
  ended with 11
ended with 11
`},
		{"recovery", func() error { plugins["second"] = nil; return c.Recover(ctx, nil) }, 0, `
cleanup DEL red/c1/eth0
  plugin call DEL red/c1/eth0 second second
  ended
  plugin call DEL red/c1/eth0 first first
  ended
ended
`},
		{"an ADD with an invalid answer", func() error {
			plugins["second"] = map[cni.Command]invoke.Handler{cni.Add: invoke.Print("nonsense")}
			_, err := c.Add(ctx, n, q)
			return err
		}, cni.CodeDecodingFailure, `
operation ADD red/c1/eth0
  plugin call ADD red/c1/eth0 first first
  ended
  plugin call ADD red/c1/eth0 second second
  ended with 6
  rollback DEL red/c1/eth0
    plugin call DEL red/c1/eth0 second second
    ended
    plugin call DEL red/c1/eth0 first first
    ended
  ended
ended with 6
`},
		{"VERSION with an invalid answer", func() error {
			plugins["first"][cni.VersionCommand] = invoke.Print("nonsense")
			_, err := c.Versions(ctx, "first")
			return err
		}, cni.CodeDecodingFailure, `
plugin call VERSION // first first
ended with 6
`},
		{"a DEL of an unknown attachment", func() error { return c.Del(ctx, a, network.Fallback{}) }, cni.CodeUnknownContainer, `
operation DEL red/c1/eth0
ended with 3
`},
	} {
		if err := step.do(); cni.CodeOf(err) != step.code {
			t.Errorf("%s: %v", step.name, err)
		}
		if diff := cmp.Diff(step.want, "\n"+s.told()); diff != "" {
			t.Errorf("%s (-want +got)\n%s", step.name, diff)
		}
	}
}

// An observer gets the wait for each lock and its outcome.
func TestObserverOfLocks(t *testing.T) {
	t.Parallel()
	s := &story{with: []network.EventKind{network.Lock}}
	plugins := invoke.Fake{"first": {}}
	c := &network.Client{Isolated: true, Caller: plugins, StateDir: t.TempDir(), Log: quiet,
		Observer: s}
	n := list(t, "1.1.0", "red", "first")
	inside := make(chan func())
	plugins["first"][cni.Add] = func(context.Context, invoke.Call) ([]byte, bool) {
		done := make(chan struct{})
		inside <- func() { close(done) }
		<-done
		return []byte("{}"), true
	}
	added := make(chan error)
	go func() {
		_, err := c.Add(t.Context(), n, request("c1"))
		added <- err
	}()
	let := <-inside
	ctx, cancel := context.WithCancel(t.Context())
	second := *c
	second.Observer = network.Observers{s, impatient(cancel)}
	if err := second.Del(ctx, request("c1").Attachment("red"),
		network.Fallback{}); cni.CodeOf(err) != cni.CodeTryAgainLater {
		t.Error(err)
	}
	let()
	if err := <-added; err != nil {
		t.Error(err)
	}
	const want = `lock red//
ended
lock /c1/
ended
lock red//
ended
lock /c1/
ended with 11
`
	if diff := cmp.Diff(want, s.told()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A Client without an observer and debug log has no overhead.
func TestNoObserverAllocatesNothing(t *testing.T) {
	c := &network.Client{Isolated: true, Log: quiet}
	ctx, a := t.Context(), request("c1").Attachment("red")
	if n := testing.AllocsPerRun(100, func() { c.Observe(ctx, a) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// impatient cancels a context when the wait for the lock of a container begins.
type impatient func()

func (f impatient) Begin(
	ctx context.Context, e network.Event,
) (context.Context, func(network.Outcome)) {
	if e.Attachment.Network == "" {
		f()
	}
	return ctx, nil
}

// named is an observer with a name.
type named struct {
	name string
	text *[]string
}

func (n named) Begin(
	ctx context.Context, e network.Event,
) (context.Context, func(network.Outcome)) {
	before, _ := ctx.Value(depthKey{}).(string)
	*n.text = append(*n.text, before+n.name)
	if n.name == "silent " {
		return ctx, nil
	}
	return context.WithValue(ctx, depthKey{}, before+n.name),
		func(network.Outcome) { *n.text = append(*n.text, "end "+n.name) }
}

// Several observers are called in order, and at the end in reverse.
func TestObservers(t *testing.T) {
	t.Parallel()
	var text []string
	o := network.Observers{named{"a ", &text}, named{"silent ", &text}, network.Observers{},
		named{"b ", &text}}
	ctx, end := o.Begin(t.Context(), network.Event{})
	end(network.Outcome{})
	text = append(text, ctx.Value(depthKey{}).(string))
	if diff := cmp.Diff([]string{"a ", "a silent ", "a b ", "end b ", "end a ", "a b "},
		text); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TRC-01, TRC-04: an observer can give each plugin its own span.
func TestObserverTraces(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.shell("first", `echo "$CNI_COMMAND $TRACEPARENT" >>"$dir/trace"; echo '{"cniVersion":"1.1.0"}'`)
	r.Observer = spans{}
	if _, err := r.Client.Add(t.Context(), list(t, "1.1.0", "red", "first"),
		request("c1")); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(r.plugins, "trace"))
	if want := "ADD 00-4bf92f3577b34da6a3ce929d0e0e4736-000000000000000c-01\n"; err != nil ||
		string(b) != want {
		t.Errorf("%v, %q, want %q", err, b, want)
	}
}

// spans has a fixed span ID for each kind of event.
type spans struct{}

func (spans) Begin(ctx context.Context, e network.Event) (context.Context, func(network.Outcome)) {
	id := "000000000000000a"
	if e.Kind == network.PluginCall {
		id = "000000000000000c"
	}
	return invoke.WithTrace(ctx,
		invoke.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-" + id + "-01"}), nil
}

// SEC-07: the log at level Debug has every operation and call, and never the input of a plugin,
// even if the plugin repeats it.
func TestDebugLog(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.Log = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey:
				return slog.Attr{}
			case "duration":
				if d := a.Value.Duration(); d <= 0 || d > time.Minute {
					t.Errorf("duration %v", d)
				}
				return slog.Attr{}
			}
			return a
		}}))
	r.shell("first", `[ $CNI_COMMAND = ADD ] || exit 0; echo "{\"code\":11,\"msg\":\"$CNI_ARGS\",\"details\":\"$(cat | tr -d '\"')\"}"; exit 1`)
	q := request("c1")
	q.Args = cni.Args{{Key: "K", Value: "argument-secret"}}
	q.Capabilities = map[string]json.RawMessage{"mac": json.RawMessage(`"capability-secret"`)}
	n := list(t, "1.1.0", "red",
		`{"type":"first","capabilities":{"mac":true},"args":{"key":"args-secret"}}`)
	if _, err := r.Client.Add(t.Context(), n, q); cni.CodeOf(err) != cni.CodeTryAgainLater ||
		!strings.Contains(cni.AsError(err).Details, "capability-secret") {
		t.Fatal(err)
	}
	if err := r.Status(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	a := q.Attachment("red")
	key := "attachment=" + string(a.Owner()) + " network=red container=c1 ifname=eth0"
	path := filepath.Join(r.plugins, "first")
	want := "level=DEBUG msg=\"plugin call\" " + key + " verb=ADD plugin=first path=" + path +
		" code=11\n" +
		"level=DEBUG msg=\"plugin call\" " + key + " verb=DEL plugin=first path=" + path + "\n" +
		"level=DEBUG msg=rollback " + key + " verb=DEL\n" +
		"level=DEBUG msg=operation " + key + " verb=ADD code=11\n" +
		"level=DEBUG msg=\"plugin call\" network=red verb=STATUS plugin=first path=" + path + "\n" +
		"level=DEBUG msg=operation network=red verb=STATUS\n"
	got := slices.Collect(strings.Lines(r.log.String()))
	// On a slow node, waits for locks are logged.
	got = slices.DeleteFunc(got,
		func(line string) bool { return strings.Contains(line, " msg=lock ") })
	if diff := cmp.Diff(want, strings.Join(got, "")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// All warnings about an attachment name it in the same way.
func TestWarningsNameTheAttachment(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	n := list(t, "1.1.0", "red", "first")
	a := r.add(n)
	if err := os.Truncate(recordPath(r.Client, a), 10); err != nil {
		t.Fatal(err)
	}
	if err := r.Del(t.Context(), a, network.Fallback{Network: n}); err != nil {
		t.Fatal(err)
	}
	want := `msg="record is unreadable; running DEL with the given parameters" attachment=` +
		string(a.Owner()) + " network=red container=c1 ifname=eth0 error="
	if !strings.Contains(r.log.String(), want) {
		t.Errorf("log %q", r.log)
	}
}
