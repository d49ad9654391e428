package plugin_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet/exefile"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
)

// delegating delegates each verb to the IPAM plugin of its configuration.
type delegating struct{ config }

func (*delegating) Add(ctx context.Context, c *plugin.Call) (*cni.Result, error) {
	return c.Delegate.Add(ctx, c.IPAM.Type)
}
func (*delegating) Del(ctx context.Context, c *plugin.Call) error {
	return c.Delegate.Del(ctx, c.IPAM.Type)
}
func (*delegating) Check(ctx context.Context, c *plugin.Call) error {
	return c.Delegate.Check(ctx, c.IPAM.Type)
}
func (*delegating) Status(ctx context.Context, c *plugin.Call) error {
	return c.Delegate.Status(ctx, c.IPAM.Type)
}
func (*delegating) GC(ctx context.Context, c *plugin.Call) error {
	return c.Delegate.GC(ctx, c.IPAM.Type)
}

var delegator = plugin.Define(plugin.Info{Name: "main"},
	func() plugin.Plugin { return new(delegating) })

var allVerbs = []cni.Command{cni.Add, cni.Del, cni.Check, cni.Status, cni.GC}

const delegated = `{ "cniVersion": "1.1.0", "name": "net", "big": 12345678901234567890, "ipam": {"type": "pool"}, "cni.dev/valid-attachments": [] }`

// TestDelegateSeesTheCall checks that a delegate gets the same bytes and the same environment
// (DLG-03, DLG-04, DIS-27, DIS-30).
func TestDelegateSeesTheCall(t *testing.T) {
	t.Parallel()
	for _, verb := range allVerbs {
		r := &invoke.Recorder{Caller: invoke.Fake{"pool": {cni.Add: invoke.Print(`{"cniVersion":"1.1.0"}`)}}}
		env := environment(verb)
		env.Args, env.NetnsOverride = "A=B", "1"
		if _, err := delegator.Serve(t.Context(), env, []byte(delegated), r); err != nil {
			t.Fatal(err)
		}
		calls := r.Exchanges()
		if len(calls) != 1 {
			t.Fatalf("%s: %d calls of the delegate", verb, len(calls))
		}
		if diff := cmp.Diff(invoke.Call{Path: "pool", Env: env, Stdin: []byte(delegated),
			Joined: true, Journaled: true}, calls[0].Call); diff != "" {
			t.Errorf("%s: %s", verb, diff)
		}
	}
}

// TestUndoIsADEL checks that an ADD is rolled back with a DEL during any verb.
func TestUndoIsADEL(t *testing.T) {
	t.Parallel()
	d := define(plugin.Info{Name: "main"},
		verbs(func(ctx context.Context, c *call) (*cni.Result, error) {
			return result, c.Delegate.Del(ctx, c.IPAM.Type)
		}))
	r := &invoke.Recorder{Caller: invoke.Fake{"pool": nil}}
	if _, err := d.Serve(t.Context(), environment(cni.Add), []byte(delegated), r); err != nil {
		t.Fatal(err)
	}
	if verb := r.Exchanges()[0].Call.Env.Command; verb != cni.Del {
		t.Errorf("delegate was called with %s", verb)
	}
}

// PL-DEL-06
func TestDelegateFails(t *testing.T) {
	t.Parallel()
	for _, verb := range allVerbs {
		fake := invoke.Fake{"pool": {verb: invoke.Fail(cni.Errorf(cni.CodeTryAgainLater,
			"pool is empty").WithDetails("3 of 3"))}}
		_, err := delegator.Serve(t.Context(), environment(verb), []byte(delegated), fake)
		e := cni.AsError(err)
		if want := "3 of 3; pool " + string(verb); e == nil || e.Code != cni.CodeTryAgainLater ||
			e.Msg != "pool is empty" || e.Details != want {
			t.Errorf("%s: %+v", verb, e)
		}
	}
}

// DLG-10
func TestDelegateTooOldForTheVerb(t *testing.T) {
	t.Parallel()
	for _, verb := range allVerbs {
		fake := invoke.Fake{"pool": {verb: invoke.Fail(cni.Errorf(cni.CodeIncompatibleVersion,
			"what?"))}}
		_, err := delegator.Serve(t.Context(), environment(verb), []byte(delegated), fake)
		if optional := slices.Contains([]cni.Command{cni.Status, cni.GC},
			verb); (err == nil) != optional {
			t.Errorf("%s: %v", verb, err)
		}
	}
}

// DLG-09
func TestDelegateAnswersInAnotherVersion(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		`{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24","gateway":"10.0.0.1","routes":[{"dst":"0.0.0.0/0"}]}}`,
		`{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.0.0.2/24","gateway":"10.0.0.1"}],"routes":[{"dst":"0.0.0.0/0"}]}`,
		`{"ips":[{"address":"10.0.0.2/24","gateway":"10.0.0.1"}],"routes":[{"dst":"0.0.0.0/0"}]}`,
	} {
		out, err := delegator.Serve(t.Context(), environment(cni.Add), []byte(delegated),
			invoke.Fake{"pool": {cni.Add: invoke.Print(answer)}})
		const want = `{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.2/24","gateway":"10.0.0.1"}],"routes":[{"dst":"0.0.0.0/0"}]}`
		if err != nil || string(out) != want {
			t.Errorf("%s: printed %s, error %v", answer, out, err)
		}
	}
}

// RES-10: each repair of a delegate's result is logged as one warning that names the delegate.
func TestDelegateAnswerIsRepaired(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const script = "#!/bin/sh\ncat >/dev/null\n" +
		`echo '{"cniVersion":"0.4.0","ips":[{"version":"4","address":"fd00::2/64","gateway":"10.0.0.1","interface":0}]}'`
	if err := exefile.Write(filepath.Join(dir, "pool"), []byte(script)); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	linked := plugin.Linked{Plugins: []plugin.Definition{delegator},
		Log: slog.New(slog.NewJSONHandler(&log, nil))}
	env := environment(cni.Add)
	env.Path = dir
	reply, err := linked.Call(t.Context(),
		invoke.Call{Path: invoke.LinkedPath("main"), Env: env, Stdin: []byte(delegated)})
	const want = `{"cniVersion":"1.1.0","ips":[{"address":"fd00::2/64","gateway":"10.0.0.1"}]}`
	if err != nil || string(reply.Stdout) != want {
		t.Errorf("printed %s, %v", reply.Stdout, err)
	}
	repairs := []string{
		`ips[0] has version "4" and address fd00::2/64: it counts as 6`,
		"ips[0]: interface 0 is not one of 0: it counts as absent",
		"ips[0] has address fd00::2/64 and gateway 10.0.0.1: it is kept",
	}
	if diff := cmp.Diff(repairs, logged(t, log.String(), "repair")); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if !strings.Contains(log.String(), `"delegate":"pool"`) {
		t.Errorf("log does not name the delegate: %s", &log)
	}
}

func TestDelegateWithoutUsableAnswer(t *testing.T) {
	t.Parallel()
	for answer, code := range map[string]cni.Code{
		"":                                cni.CodeDecodingFailure,
		"hello":                           cni.CodeDecodingFailure,
		`{"code":11,"msg":"in disguise"}`: cni.CodeDecodingFailure,
		`{"cniVersion":"7.0.0"}`:          cni.CodeIncompatibleVersion,
	} {
		_, err := delegator.Serve(t.Context(), environment(cni.Add), []byte(delegated),
			invoke.Fake{"pool": {cni.Add: invoke.Print(answer)}})
		wantCode(t, err, code)
		if err == nil || !strings.HasPrefix(err.Error(), "pool ADD: ") {
			t.Errorf("%q: error %v does not name the delegate", answer, err)
		}
	}
}

func TestDelegateIsNotThere(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, path, stdin string
		code              cni.Code
		says              string
	}{
		{"no CNI_PATH", "", delegated, cni.CodeInvalidEnvironment, "CNI_PATH"},
		{"CNI_PATH of nothing", ":", delegated, cni.CodeInvalidEnvironment, "CNI_PATH"},
		{"not found", "/absent", delegated, cni.CodeInvalidConfig, "pool"},
		{"not a file name", "/absent",
			`{"cniVersion":"1.1.0","name":"net","ipam":{"type":"../pool"}}`, cni.CodeInvalidConfig,
			"../pool"},
		{"no type", "/absent", `{"cniVersion":"1.1.0","name":"net"}`, cni.CodeInvalidConfig,
			"type"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			env := environment(cni.Add)
			env.Path = row.path
			_, err := delegator.Serve(t.Context(), env, []byte(row.stdin),
				plugin.Caller(nil, false))
			wantCode(t, err, row.code)
			if err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("%v: does not mention %s", err, row.says)
			}
		})
	}
}

// TestDelegateProcess checks that the delegate is the first regular file of its name in the
// directories of CNI_PATH (DLG-02). Its standard error is passed on whether it succeeds or fails
// (DLG-05). It succeeds with exit status 0 and a result (DLG-08).
func TestDelegateProcess(t *testing.T) {
	t.Parallel()
	const answer = `echo '{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.2/24"}]}'`
	for _, row := range []struct {
		name, script string
		code         cni.Code
	}{
		{"success", answer, 0},
		{"failure", `echo '{"cniVersion":"1.1.0","code":11,"msg":"pool is empty"}'; exit 1`,
			cni.CodeTryAgainLater},
		{"result of a failure", answer + "; exit 1", cni.CodeInternal},
		{"error object of a success",
			`echo '{"cniVersion":"1.1.0","code":11,"msg":"pool is empty"}'`,
			cni.CodeDecodingFailure},
		{"nothing", "", cni.CodeDecodingFailure},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			first, second := filepath.Join(dir, "first", "pool"),
				filepath.Join(dir, "second", "pool")
			for path, script := range map[string]string{first: row.script, second: "exit 1"} {
				script = "#!/bin/sh\necho this is $0 >&2\n" + script
				if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700),
					exefile.Write(path, []byte(script))); err != nil {
					t.Fatal(err)
				}
			}
			// No regular file.
			if err := os.MkdirAll(filepath.Join(dir, "folder", "pool"), 0o700); err != nil {
				t.Fatal(err)
			}
			p := newProcess(t, cni.Add, "")
			p.Args[0], p.Stdin = "/somewhere/main", strings.NewReader(delegated)
			p.Env = append(p.Env, "CNI_PATH="+strings.Join([]string{dir, dir + "/absent", dir +
				"/folder", dir + "/first", dir + "/second"}, ":"))
			p.run(t)
			if row.code != 0 {
				p.wantError(t, row.code)
			} else if !strings.Contains(p.stdout.String(), "10.0.0.2/24") {
				t.Errorf("printed %s", &p.stdout)
			}
			if want := "this is " + first + "\n"; p.stderr.String() != want {
				t.Errorf("standard error is %q, want %q", &p.stderr, want)
			}
		})
	}
}

// A plugin that names itself for IPAM would call itself endlessly. TestOwnIPAM of bridge covers DEL
// and GC.
func TestDelegateIsNotThePluginItself(t *testing.T) {
	t.Parallel()
	for _, verb := range []cni.Command{cni.Add, cni.Check, cni.Status} {
		t.Run(string(verb), func(t *testing.T) {
			t.Parallel()
			d := new(recorder)
			definition := d.define(plugin.Info{Name: "loop"})
			env := cni.Env{Command: verb, ContainerID: "c", IfName: "eth0", Netns: "/nowhere",
				Path: "/x"}
			_, err := definition.Serve(t.Context(), env,
				[]byte(`{"cniVersion":"1.1.0","name":"n","ipam":{"type":"loop"}}`), nil)
			if cni.CodeOf(err) != cni.CodeInvalidConfig {
				t.Error(err)
			}
		})
	}
}

// TestNeedsLink checks that the definition with a delegate's name decides, whichever binary is
// called.
func TestNeedsLink(t *testing.T) {
	t.Parallel()
	pools := []plugin.Definition{
		define(plugin.Info{Name: "server", Role: plugin.RoleIPAM, NeedsLink: true}, nil),
		define(plugin.Info{Name: "file", Role: plugin.RoleIPAM}, nil),
	}
	type answer struct{ Needs, Known bool }
	var got map[string]answer
	d := define(plugin.Info{Name: "main"}, func(_ context.Context, c *call) (*cni.Result, error) {
		got = map[string]answer{}
		for _, typ := range []string{"server", "file", "unknown", ""} {
			needs, known := c.Delegate.NeedsLink(typ)
			got[typ] = answer{needs, known}
		}
		return result, nil
	})
	none := map[string]answer{"server": {}, "file": {}, "unknown": {}, "": {}}
	server := map[string]answer{"server": {true, true}, "file": {false, true}, "unknown": {},
		"": {}}
	for _, row := range []struct {
		name   string
		caller invoke.Caller
		want   map[string]answer
	}{
		{"in the same binary", plugin.Caller(pools, false), server},
		{"executed", plugin.Caller(pools, true), server},
		{"linked", plugin.Linked{Plugins: pools}, server},
		{"nothing is known", invoke.Fake{}, none},
	} {
		if _, err := d.Serve(t.Context(), environment(cni.Add), []byte(delegated),
			row.caller); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.name, diff)
		}
	}
}
