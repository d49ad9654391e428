package invoke_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
)

func TestFake(t *testing.T) {
	t.Parallel()
	f := invoke.Fake{
		"bridge": {cni.Add: invoke.Print(`{"cniVersion":"1.0.0"}`)},
		"portmap": {cni.Del: invoke.Fail(cni.Errorf(cni.CodeTryAgainLater,
			"busy").WithDetails("wait"))},
	}
	for _, tt := range []struct {
		name, plugin string
		verb         cni.Command
		stdin        string
		want         string
	}{
		{"scripted reply", "bridge", cni.Add, "{}", `{"cniVersion":"1.0.0"}`},
		{"scripted failure", "portmap", cni.Del, "{}", "11 portmap DEL: busy: wait"},
		{"ADD passes the previous result on", "portmap", cni.Add,
			`{"prevResult":{"cniVersion":"0.4.0"}}`, `{"cniVersion":"0.4.0"}`},
		{"ADD without a previous result", "portmap", cni.Add, "{}", "{}"},
		{"other verbs succeed", "bridge", cni.Del, "{}", ""},
		{"VERSION", "bridge", cni.VersionCommand, "{}",
			`{"cniVersion":"1.1.0","supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}`},
		{"unknown type", "vlan", cni.Add, "{}", `7 plugin "vlan" not found`},
	} {
		got := func() string {
			path, err := invoke.Lookup(f, nil, tt.plugin)
			if err != nil {
				return describe(err)
			}
			reply, err := f.Call(t.Context(),
				invoke.Call{Path: path, Env: cni.Env{Command: tt.verb}, Stdin: []byte(tt.stdin)})
			if err != nil {
				return describe(err)
			}
			return string(reply.Stdout)
		}()
		if got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

func TestRecorder(t *testing.T) {
	t.Parallel()
	var told []string
	r := &invoke.Recorder{
		Caller: invoke.Fake{"a": {cni.Add: invoke.Print("{}"),
			cni.Del: invoke.Fail(cni.Errorf(cni.CodeTryAgainLater, "busy"))}},
		Notify: func(e invoke.Exchange) { told = append(told, string(e.Call.Env.Command)) },
	}
	path, err := r.Find(nil, "a")
	if err != nil {
		t.Fatal(err)
	}
	stdin := []byte(`{"name":"red"}`)
	for _, verb := range []cni.Command{cni.Add, cni.Del} {
		_, _ = r.Call(t.Context(), invoke.Call{Path: path, Env: cni.Env{Command: verb},
			Stdin: stdin})
	}
	clear(stdin) // the recorder has its own copy
	var got []string
	for _, e := range r.Exchanges() {
		got = append(got, fmt.Sprintf("%s %s %s: %s, %s", e.Call.Path, e.Call.Env.Command,
			e.Call.Stdin, e.Reply.Stdout, describe(e.Err)))
		if e.Start.IsZero() || e.Duration < 0 {
			t.Errorf("start %v, duration %v", e.Start, e.Duration)
		}
	}
	want := []string{`a ADD {"name":"red"}: {}, success`, `a DEL {"name":"red"}: , 11 a DEL: busy`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"ADD", "DEL"}, told); diff != "" {
		t.Error(diff)
	}
}

// The zero Recorder starts processes that it finds in directories.
func TestRecorderZero(t *testing.T) {
	t.Parallel()
	r := &invoke.Recorder{}
	path, err := invoke.Lookup(r, []string{pluginDir(t, "mute")}, "mute")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Call(t.Context(), add(path)); err == nil {
		t.Error("success")
	}
}

func ExampleFake() {
	var calls invoke.Recorder
	calls.Caller = invoke.Fake{
		"bridge": {
			cni.Add: invoke.Print(`{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24"}]}`),
			cni.Del: invoke.Fail(cni.Errorf(cni.CodeTryAgainLater, "the daemon is not running")),
		},
	}
	c := invoke.Call{Path: "bridge", Env: cni.Env{Command: cni.Del},
		Stdin: []byte(`{"name":"red","type":"bridge"}`)}
	_, err := calls.Call(context.Background(), c)
	fmt.Println(cni.CodeOf(err), err)
	fmt.Println(len(calls.Exchanges()))
	// Output:
	// 11 bridge DEL: the daemon is not running
	// 1
}
