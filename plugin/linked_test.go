package plugin_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet/exefile"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
)

// linkedCall calls ADD of a plugin as network.Client does.
func linkedCall(
	t *testing.T, l plugin.Linked, typ string, stdin string, dirs ...string,
) (invoke.Reply, error) {
	t.Helper()
	path, err := l.Find(dirs, typ)
	if err != nil {
		t.Fatal(err)
	}
	env := environment(cni.Add)
	env.Path = strings.Join(dirs, ":")
	return l.Call(t.Context(), invoke.Call{Path: path, Env: env, Stdin: []byte(stdin)})
}

// pluginDir creates a plugin directory with a shell script for each plugin; the script prints its
// name.
func pluginDir(t *testing.T, types ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, typ := range types {
		script := "#!/bin/sh\necho '{\"cniVersion\":\"1.1.0\",\"dns\":{\"domain\":\"file." + typ +
			"\"}}'\n"
		if err := exefile.Write(filepath.Join(dir, typ), []byte(script)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// pool is an IPAM plugin that adds its name to the result.
func pool(domain string) plugin.Definition {
	return plugin.Define(plugin.Info{Name: "pool", Role: plugin.RoleIPAM}, func() plugin.Plugin {
		return &poolPlugin{domain: domain}
	})
}

type poolPlugin struct {
	plugin.Common
	IPAM   struct{} `json:"ipam"` // its own IPAM section, not a delegate's
	domain string
}

func (p *poolPlugin) Add(context.Context, *plugin.Call) (*cni.Result, error) {
	return &cni.Result{DNS: cni.DNS{Domain: p.domain}}, nil
}
func (*poolPlugin) Del(context.Context, *plugin.Call) error   { return nil }
func (*poolPlugin) Check(context.Context, *plugin.Call) error { return nil }

func linked(name string, f verbs) plugin.Definition {
	return define(plugin.Info{Name: name}, f)
}

// Linked calls a linked plugin even if a file of its name exists, also as a delegate, and executes
// all other plugins. The zero value executes all plugins.
func TestLinkedOrExecuted(t *testing.T) {
	t.Parallel()
	dir := pluginDir(t, "pool", "other", "main")
	l := plugin.Linked{Plugins: []plugin.Definition{delegator, pool("linked.pool")}}
	for _, row := range []struct {
		name, typ, ipam string
		linked          plugin.Linked
		dirs            []string
		want            string
	}{
		{"linked in, no plugin directory", "pool", "", l, nil, "linked.pool"},
		{"linked in, and a file of that name", "pool", "", l, []string{dir}, "linked.pool"},
		{"not linked in", "other", "", l, []string{dir}, "file.other"},
		{"a delegate that is linked in, no plugin directory", "main", "pool", l, nil,
			"linked.pool"},
		{"a delegate that is linked in, and a file of that name", "main", "pool", l, []string{dir},
			"linked.pool"},
		{"a delegate that is not linked in", "main", "other", l, []string{dir}, "file.other"},
		{"nothing linked in", "pool", "", plugin.Linked{}, []string{dir}, "file.pool"},
		{"the last of two with the same name", "pool", "",
			plugin.Linked{Plugins: slices.Concat(l.Plugins, []plugin.Definition{pool("second")})},
			nil, "second"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			stdin := `{"cniVersion":"1.1.0","name":"net","type":"` + row.typ +
				`","ipam":{"type":"` + row.ipam + `"}}`
			reply, err := linkedCall(t, row.linked, row.typ, stdin, row.dirs...)
			if err != nil || !strings.Contains(string(reply.Stdout), `"domain":"`+row.want+`"`) {
				t.Errorf("%s, %v, want domain %s", reply.Stdout, err, row.want)
			}
		})
	}
}

// TestLinkedPath checks that Linked executes a file that is given by its path, and runs in this
// process only plugins at paths that Find returns.
func TestLinkedPath(t *testing.T) {
	t.Parallel()
	dir := pluginDir(t, "pool")
	l := plugin.Linked{Plugins: []plugin.Definition{pool("linked.pool")}}
	reply, err := l.Call(t.Context(),
		invoke.Call{Path: filepath.Join(dir, "pool"), Env: environment(cni.Add)})
	if err != nil || !strings.Contains(string(reply.Stdout), "file.pool") {
		t.Errorf("%s, %v", reply.Stdout, err)
	}
	_, err = l.Call(t.Context(),
		invoke.Call{Path: invoke.LinkedPath("absent"), Env: environment(cni.Add)})
	wantCode(t, err, cni.CodeInvalidConfig)
	if _, err := l.Find([]string{dir}, "absent"); !errors.Is(err, invoke.ErrNotFound) {
		t.Errorf("found: %v", err)
	}
	if typ, ok := invoke.LinkedType(filepath.Join(dir, "pool")); ok {
		t.Errorf("a file is taken for linked-in %s", typ)
	}
}

// Log records and the stack of a panic go to the given log; a panic becomes an ordinary error
// object.
func TestLinkedLog(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	l := plugin.Linked{
		Log: slog.New(slog.NewTextHandler(&log, nil)),
		Plugins: []plugin.Definition{linked("chatty",
			func(_ context.Context, c *call) (*cni.Result, error) {
				c.Log.Warn("a word")
				if c.Conf.On {
					panic("boom")
				}
				return result, nil
			})},
	}
	if _, err := linkedCall(t, l, "chatty", `{"cniVersion":"1.1.0","name":"net"}`); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"a word", "plugin=chatty", "container=c-1"} {
		if !strings.Contains(log.String(), word) {
			t.Errorf("log lacks %q: %s", word, &log)
		}
	}
	_, err := linkedCall(t, l, "chatty", `{"cniVersion":"1.1.0","name":"net","on":true}`)
	wantCode(t, err, cni.CodeInternal)
	var e *invoke.Error
	if !errors.As(err, &e) || e.Status != "exit status 1" || !strings.Contains(e.Err.Msg, "boom") {
		t.Errorf("%#v", err)
	}
	if !strings.Contains(log.String(), "TestLinkedLog") {
		t.Errorf("log has no stack: %s", &log)
	}
	if _, err := linkedCall(t, l, "chatty", `{"cniVersion":"1.1.0","name":"net"}`); err != nil {
		t.Errorf("after a panic: %v", err)
	}
}

// A plugin can read from Call.Linked that it is linked into another program.
func TestLinkedKnows(t *testing.T) {
	t.Parallel()
	for _, want := range []bool{true, false} {
		var got bool
		d := linked("curious", func(_ context.Context, c *call) (*cni.Result, error) {
			got = c.Linked
			return result, nil
		})
		var err error
		stdin := `{"cniVersion":"1.1.0","name":"net"}`
		if want {
			_, err = linkedCall(t, plugin.Linked{Plugins: []plugin.Definition{d}}, "curious", stdin)
		} else {
			_, err = d.Serve(t.Context(), environment(cni.Add), []byte(stdin), nil)
		}
		if err != nil || got != want {
			t.Errorf("linked: %v, want %v; %v", got, want, err)
		}
	}
}

// A linked plugin sees the end of the context and decides whether to return an error. Its executed
// delegate inherits the same files as an executed plugin.
func TestLinkedContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	waits := linked("waits", func(ctx context.Context, _ *call) (*cni.Result, error) {
		cancel(cause)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	lock, err := os.CreateTemp(t.TempDir(), "lock")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	dir := t.TempDir()
	script := "#!/bin/sh\nreadlink /proc/$$/fd/3 >$0.inherits\necho '{\"cniVersion\":\"1.1.0\"}'\n"
	if err := exefile.Write(filepath.Join(dir, "pool"), []byte(script)); err != nil {
		t.Fatal(err)
	}
	l := plugin.Linked{Plugins: []plugin.Definition{waits, delegator},
		Process: invoke.Process{Stderr: io.Discard}}
	env := environment(cni.Add)
	_, err = l.Call(ctx, invoke.Call{Path: invoke.LinkedPath("waits"), Env: env,
		Stdin: []byte(`{"cniVersion":"1.1.0","name":"net"}`)})
	if !errors.Is(err, cause) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, cause)
	}
	env.Path = dir
	call := invoke.Call{Path: invoke.LinkedPath("main"), Env: env, Stdin: []byte(delegated),
		Files: []*os.File{lock}}
	if _, err = l.Call(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	if inherited, err := os.ReadFile(filepath.Join(dir, "pool.inherits")); err != nil ||
		strings.TrimSpace(string(inherited)) != lock.Name() {
		t.Errorf("the delegate has inherited %q, %v, want %s", inherited, err, lock.Name())
	}
}

// With Accept, Linked finds plugins as files. It runs a plugin in this process, also as a delegate,
// if it has a definition and Accept returns true for the file, and executes the file otherwise.
func TestLinkedAccept(t *testing.T) {
	t.Parallel()
	dir := pluginDir(t, "pool", "other", "main")
	plugins := []plugin.Definition{delegator, pool("linked.pool")}
	all := func(string) bool { return true }
	only := func(typ string) func(string) bool {
		return func(path string) bool { return path == filepath.Join(dir, typ) }
	}
	for _, row := range []struct {
		name, typ, ipam string
		accept          func(path string) bool
		want            string
	}{
		{"accepted", "pool", "", all, "linked.pool"},
		{"not accepted", "pool", "", only("main"), "file.pool"},
		{"no definition", "other", "", all, "file.other"},
		{"an accepted delegate", "main", "pool", all, "linked.pool"},
		{"a delegate that is not accepted", "main", "pool", only("main"), "file.pool"},
		{"a delegate without definition", "main", "other", all, "file.other"},
		{"an executed plugin", "main", "pool", only("pool"), "file.main"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			stdin := `{"cniVersion":"1.1.0","name":"net","type":"` + row.typ +
				`","ipam":{"type":"` + row.ipam + `"}}`
			l := plugin.Linked{Plugins: plugins, Accept: row.accept}
			reply, err := linkedCall(t, l, row.typ, stdin, dir)
			if err != nil || !strings.Contains(string(reply.Stdout), `"domain":"`+row.want+`"`) {
				t.Errorf("%s, %v, want domain %s", reply.Stdout, err, row.want)
			}
		})
	}
	l := plugin.Linked{Plugins: plugins, Accept: all}
	if r, err := l.Call(t.Context(), invoke.Call{Path: filepath.Join(dir, "pool")}); err != nil ||
		!strings.Contains(string(r.Stdout), "file.pool") {
		t.Errorf("without a verb: %s, %v", r.Stdout, err)
	}
	if _, err := l.Find([]string{t.TempDir()}, "pool"); !errors.Is(err, invoke.ErrNotFound) {
		t.Errorf("a plugin without a file is found: %v", err)
	}
	stdin := `{"cniVersion":"1.1.0","name":"net","type":"main","ipam":{"type":"absent"}}`
	_, err := linkedCall(t, l, "main", stdin, dir)
	wantCode(t, err, cni.CodeInvalidConfig)
}

// With Accept, the standard error of the Process receives the lines that a plugin process prints,
// which come from the default logger.
func TestLinkedAcceptLog(t *testing.T) {
	// Not parallel: it redirects the standard logger.
	var process, linkedIn bytes.Buffer
	log.SetOutput(&process)
	defer log.SetOutput(os.Stderr)
	talk := linked("talks", func(_ context.Context, c *call) (*cni.Result, error) {
		c.Log.Debug("unseen")
		c.Log.Info("", "time", 1, "level", "x y", "msg", `"`)
		c.Log.With("a", 1).WithGroup("g").Warn("two words\nand a line", "b", time.Second, "c", "")
		c.Log.Error("end\n", slog.Group("h", "d", errors.New("e=f")))
		return result, nil
	})
	stdin := []byte(`{"cniVersion":"1.1.0","name":"net"}`)
	if _, err := talk.Serve(t.Context(), environment(cni.Add), stdin, nil); err != nil {
		t.Fatal(err)
	}
	l := plugin.Linked{Plugins: []plugin.Definition{talk},
		Accept: func(string) bool { return true }, Process: invoke.Process{Stderr: &linkedIn}}
	if _, err := linkedCall(t, l, "talks", string(stdin), pluginDir(t, "talks")); err != nil {
		t.Fatal(err)
	}
	stamp := regexp.MustCompile(`(?m)^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d `)
	want, got := stamp.ReplaceAllString(process.String(), "STAMP "),
		stamp.ReplaceAllString(linkedIn.String(), "STAMP ")
	if diff := cmp.Diff(want, got); diff != "" || strings.Count(got, "STAMP ") != 3 {
		t.Errorf("process and linked differ:\n%s", diff)
	}
	l.Log = slog.New(slog.DiscardHandler)
	linkedIn.Reset()
	if _, err := linkedCall(t, l, "talks", string(stdin), pluginDir(t, "talks")); err != nil ||
		linkedIn.Len() > 0 {
		t.Errorf("with Log: %v, wrote %s", err, &linkedIn)
	}
}
