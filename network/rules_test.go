package network_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
)

// CACHE-01, LIF-14, RT-CHK-07: CHECK, any number of times, and DEL work with the attachment of
// another client.
func TestAnotherClientGoesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	a := r.add(list(t, "1.1.0", "red", "first"))
	next := &network.Client{Isolated: true, Caller: r.Caller, PluginDirs: r.PluginDirs,
		StateDir: r.StateDir, Log: quiet}
	for range 2 {
		if err := next.Check(t.Context(), a, nil); err != nil {
			t.Error(err)
		}
	}
	if err := next.Del(t.Context(), a, network.Fallback{}); err != nil {
		t.Error(err)
	}
	log := r.entries()
	if callsOf(log) != "CHECK first, CHECK first, DEL first" || log[2].prev() == "" {
		t.Errorf("log %v", log)
	}
}

// LIF-02: the same container and interface in two networks are two attachments.
func TestTwoNetworksOneKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	for _, name := range []string{"red", "blue"} {
		r.add(list(t, "1.1.0", name, "first"))
	}
	r.wantRecorded("red/c1/eth0 attached", "blue/c1/eth0 attached")
	if err := r.Del(t.Context(), request("c1").Attachment("red"), network.Fallback{}); err != nil {
		t.Error(err)
	}
	r.wantRecorded("blue/c1/eth0 attached")
}

// RT-DEL-09: an error of DEL counts, whatever its text.
func TestDelForgivesNoWords(t *testing.T) {
	t.Parallel()
	for _, words := range []string{"not found", "no such file or directory", "namespace is gone"} {
		r := newRig(t, map[string]script{"first": {}})
		a := r.add(list(t, "1.1.0", "red", "first"))
		r.script("first", script{cni.Del: fails(cni.CodeInternal, words)})
		if err := r.Del(t.Context(), a, network.Fallback{}); err == nil {
			t.Errorf("%s: success", words)
		}
		r.wantRecorded("red/c1/eth0 deleting")
	}
}

// REQ-15, ENV-18, SEC-07: arguments appear only in CNI_ARGS and capability arguments only in
// runtimeConfig, neither in args of the request nor in the log.
func TestWhereArgumentsGo(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.shell("first", `env >"$dir/env.$CNI_COMMAND"; cat >"$dir/stdin.$CNI_COMMAND"; echo '{"cniVersion":"1.1.0"}'`)
	q := request("c1")
	q.Args = cni.Args{{Key: "K", Value: "argument-secret"}}
	q.Capabilities = map[string]json.RawMessage{"mac": json.RawMessage(`"capability-secret"`)}
	n := list(t, "1.1.0", "red", `{"type":"first","capabilities":{"mac":true}}`)
	if _, err := r.Add(t.Context(), n, q); err != nil {
		t.Fatal(err)
	}
	a := q.Attachment("red")
	if err := os.Truncate(recordPath(r.Client, a), 100); err != nil { // causes a warning
		t.Fatal(err)
	}
	if err := r.Del(t.Context(), a,
		network.Fallback{Network: n, Parameters: q.Parameters}); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"ADD", "DEL"} {
		env, err := os.ReadFile(filepath.Join(r.plugins, "env."+verb))
		if err != nil {
			t.Fatal(err)
		}
		stdin, err := os.ReadFile(filepath.Join(r.plugins, "stdin."+verb))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(env), "capability-secret") ||
			!strings.Contains(string(env), "\nCNI_ARGS=K=argument-secret\n") {
			t.Errorf("%s: environment %s", verb, env)
		}
		if want := `"runtimeConfig":{"mac":"capability-secret"}`; !strings.Contains(string(stdin),
			want) ||
			strings.Contains(string(stdin), "argument-secret") ||
			strings.Contains(string(stdin), `"args"`) {
			t.Errorf("%s: request %s", verb, stdin)
		}
	}
	if log := r.log.String(); log == "" || strings.Contains(log, "secret") {
		t.Errorf("log %q", log)
	}
}

// EXE-07: standard error is not an answer, even if it looks like one.
func TestStderrIsNoAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.shell("first", `echo '{"code":7,"msg":"wrong"}' >&2; [ $CNI_COMMAND != ADD ] || echo '{"cniVersion":"1.1.0"}'`)
	n := list(t, "1.1.0", "red", "first")
	if _, err := r.Add(t.Context(), n, request("c1")); err != nil {
		t.Error(err)
	}
	if err := r.Check(t.Context(), request("c1").Attachment("red"), nil); err != nil {
		t.Error(err)
	}
}

// EXE-17: a binary may be replaced between two calls; the new one runs, and reports its versions.
func TestPluginIsReplaced(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for _, version := range []string{"1.0.0", "1.1.0"} {
		next := filepath.Join(r.plugins, "next")
		r.shell("next", `echo '{"cniVersion":"1.1.0","supportedVersions":["`+version+`"]}'`)
		if err := os.Rename(next, filepath.Join(r.plugins, "first")); err != nil {
			t.Fatal(err)
		}
		reply, err := r.Versions(t.Context(), "first")
		if err != nil || !slices.Equal(reply.Supported, []string{version}) {
			t.Errorf("supported %v, %v, want %s", reply.Supported, err, version)
		}
	}
}

// TRC-01, TRC-04: every verb has the trace context of the caller.
func TestTraceGoesWithEveryVerb(t *testing.T) {
	t.Parallel()
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	r := newRig(t, nil)
	r.shell("first", `echo "$CNI_COMMAND $TRACEPARENT" >>"$dir/trace"; echo '{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}'`)
	n := list(t, "1.1.0", "red", "first")
	ctx := invoke.WithTrace(t.Context(), invoke.Trace{Parent: parent})
	a := request("c1").Attachment("red")
	if _, err := r.Client.Add(ctx, n, request("c1")); err != nil {
		t.Fatal(err)
	}
	_, versionErr := r.Versions(ctx, "first")
	for _, err := range []error{
		r.Check(ctx, a, n), r.Status(ctx, n), r.GC(ctx, n, keep("c1")), versionErr,
		r.Del(ctx, a, network.Fallback{}),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(r.plugins, "trace"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(strings.ReplaceAll(string(b), " "+parent+"\n", "\n"))
	slices.Sort(lines)
	if want := []string{"ADD", "CHECK", "DEL", "GC", "STATUS", "VERSION"}; !slices.Equal(lines,
		want) {
		t.Errorf("traced %v, want %v", lines, want)
	}
}
