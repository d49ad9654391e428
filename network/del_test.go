package network_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// RT-DEL-01, RT-DEL-02, RT-DEL-04, RT-DEL-07, REQ-04, LIF-10, CACHE-05, CACHE-10, CFG-15, ENV-13,
// DEL runs in reverse order with the recorded configuration, even if the current one has
// changed.
func TestDel(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}, "second": {}})
	n := list(t, "1.0.0", "red", `{"type":"first","capabilities":{"mac":true}}`, "second")
	q := request("c1")
	q.Args = cni.Args{{Key: "A", Value: "1"}}
	q.Capabilities = map[string]json.RawMessage{"mac": json.RawMessage(`"02:00:00:00:00:01"`)}
	if _, err := r.Add(t.Context(), n, q); err != nil {
		t.Fatal(err)
	}
	added := r.entries()
	a := q.Attachment("red")
	if err := r.Del(t.Context(), a,
		network.Fallback{Network: list(t, "1.1.0", "red", "edited")}); err != nil {
		t.Fatal(err)
	}
	deleted := r.entries()
	if got := callsOf(deleted); got != "DEL second, DEL first" {
		t.Fatalf("calls %q", got)
	}
	for i, e := range deleted {
		want := added[1-i].Env
		want.Command = cni.Del
		if diff := cmp.Diff(want, e.Env); diff != "" {
			t.Errorf("%s: %s", e, diff)
		}
	}
	const prev = `"prevResult":{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/absent"}],` +
		`"ips":[{"interface":0,"address":"10.1.2.3/24"}],"dns":{"search":["first","second"]}}`
	got := []string{string(deleted[0].Stdin), string(deleted[1].Stdin)}
	want := []string{
		`{"cniVersion":"1.0.0","name":"red",` + prev + `,"type":"second"}`,
		`{"cniVersion":"1.0.0","name":"red",` + prev +
			`,"runtimeConfig":{"mac":"02:00:00:00:00:01"},"type":"first"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	r.wantRecorded()
}

// CACHE-04: DEL also calls the plugins that drop-in files added.
func TestDelOfDropIns(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}, "second": {}})
	dir := tree(t, map[string]string{"10.conflist": conflist("red", "first"),
		"red/10.conf": `{"type":"second"}`})
	n, err := config.Load(dir, "red")
	if err != nil {
		t.Fatal(err)
	}
	a := r.add(n)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := r.Del(t.Context(), a, network.Fallback{}); err != nil {
		t.Error(err)
	}
	r.wantCalls("DEL second, DEL first")
}

// RT-DEL-06, LIF-05: DEL without a record calls all plugins, with the given parameters and no
// previous result, and can be repeated.
func TestDelWithoutRecord(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}, "second": {}})
	a := request("c1").Attachment("red")
	f := network.Fallback{Network: list(t, "1.0.0", "red", "first", "second")}
	for range 2 {
		if err := r.Del(t.Context(), a, f); err != nil {
			t.Fatal(err)
		}
		log := r.entries()
		if got := callsOf(log); got != "DEL second, DEL first" {
			t.Errorf("calls %q", got)
		}
		for _, e := range log {
			if e.prev() != "" || e.Env.Netns != "" {
				t.Errorf("%s: previous result %q, namespace %q", e, e.prev(), e.Env.Netns)
			}
		}
	}
}

// REQ-05, CACHE-12: below 0.4.0 the result is recorded, but DEL sends no previous result.
func TestDelOldVersion(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	a := r.add(list(t, "0.3.1", "red", "first"))
	record, err := r.Record(a)
	if err != nil || record.Result == nil {
		t.Errorf("record %v, %v", record, err)
	}
	if err := r.Del(t.Context(), a, network.Fallback{}); err != nil {
		t.Fatal(err)
	}
	if log := r.entries(); len(log) != 1 || log[0].prev() != "" {
		t.Errorf("log %v", log)
	}
}

// DEL continues past failing plugins and missing binaries, joins the errors, and keeps the
// record until all plugins have succeeded. (RT-DEL-03 would stop at the first.)
func TestDelPastFailures(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}, "second": {}, "third": {}})
	a := r.add(list(t, "1.1.0", "red", "first", "second", "third"))
	r.script("third", script{cni.Del: fails(cni.CodeTryAgainLater, "busy")})
	if err := os.Remove(filepath.Join(r.plugins, "second")); err != nil {
		t.Fatal(err)
	}
	err := r.Del(t.Context(), a, network.Fallback{})
	want := "11 red/c1/eth0: third DEL: busy\nplugin \"second\" not found in " + r.plugins +
		": install the plugin there or add its directory to the plugin directories (CNI_PATH)"
	if got := describe(err); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	r.wantCalls("DEL third, DEL first")
	r.wantRecorded("red/c1/eth0 deleting")
	r.script("second", script{})
	r.script("third", script{})
	if err := r.Del(t.Context(), a, network.Fallback{}); err != nil {
		t.Error(err)
	}
	r.wantCalls("DEL third, DEL second, DEL first")
	r.wantRecorded()
}

// RT-DEL-05, R-08: DEL with an unreadable record fails only if no network is given; otherwise it
// logs a warning.
func TestDelDamagedRecord(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	n := list(t, "1.1.0", "red", "first")
	a := r.add(n)
	if err := os.Truncate(recordPath(r.Client, a), 0); err != nil {
		t.Fatal(err)
	}
	if err := r.Del(t.Context(), a,
		network.Fallback{}); cni.CodeOf(err) != cni.CodeDecodingFailure {
		t.Errorf("without a network: %s", describe(err))
	}
	r.wantCalls("")
	if err := r.Del(t.Context(), a, network.Fallback{Network: n}); err != nil {
		t.Error(err)
	}
	if log := r.entries(); len(log) != 1 || log[0].prev() != "" {
		t.Errorf("log %v", log)
	}
	if !strings.Contains(r.log.String(), "record is unreadable") {
		t.Errorf("log of the client %q", r.log)
	}
	r.wantRecorded()
}

// RT-DEL-05, DIS-13: if only the result is unreadable, DEL uses the rest of the record.
func TestDelDamagedResult(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	a := r.add(list(t, "1.1.0", "red", "first"))
	editRecord(t, r.Client, a, "10.1.2.3/24", "10.1.2.3/240")
	if err := r.Del(t.Context(), a, network.Fallback{}); err != nil {
		t.Error(err)
	}
	if log := r.entries(); len(log) != 1 || log[0].prev() != "" || log[0].Env.Netns == "" {
		t.Errorf("log %v", log)
	}
}

// TestDelRefuses checks the requests that DEL refuses before any plugin starts.
func TestDelRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	n := list(t, "1.1.0", "red", "first")
	a := request("c1").Attachment("red")
	for _, tt := range []struct {
		name string
		f    network.Fallback
		want string
	}{
		{"nothing is known", network.Fallback{}, "3 red/c1/eth0: no record of this attachment"},
		{"namespace of the runtime", network.Fallback{Network: n,
			Parameters: network.Parameters{Netns: "/proc/self/ns/net"}},
			`8 red/c1/eth0: network namespace "/proc/self/ns/net" is the host's own: a container needs its own network namespace`},
		{"another network", network.Fallback{Network: list(t, "1.1.0", "blue", "first")},
			"7 red/c1/eth0: the configuration is for network blue"},
		{"a network without a list", network.Fallback{Network: &config.Network{}},
			"7 red/c1/eth0: no network given"},
		{"unusable arguments", network.Fallback{Network: n,
			Parameters: network.Parameters{Args: cni.Args{{Key: "="}}}},
			"4 red/c1/eth0: CNI_ARGS: a key or value contains '=' or ';'"},
	} {
		if got := describe(r.Del(t.Context(), a, tt.f)); got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, got, tt.want)
		}
	}
	if err := r.Del(t.Context(), a, network.Fallback{}); !errors.Is(err, network.ErrNoRecord) {
		t.Errorf("got %v", err)
	}
	r.wantCalls("")
}

// RT-DEL-07: a recorded namespace no longer exists if its path now leads to another one.
func TestDelNamespaceGone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, old, new string }{
		{"the path leads to the host's", `"/run/netns/absent"`, `"/proc/self/ns/net"`},
		{"from an earlier boot", `"bootID":"`, `"bootID":"x`},
	} {
		r := newRig(t, map[string]script{"first": {}})
		a := r.add(list(t, "1.1.0", "red", "first"))
		editRecord(t, r.Client, a, tt.old, tt.new)
		if err := r.Del(t.Context(), a, network.Fallback{}); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if log := r.entries(); len(log) != 1 || log[0].Env.Netns != "" ||
			log[0].Env.ContainerID != "c1" {
			t.Errorf("%s: log %v", tt.name, log)
		}
	}
}

// EXE-12: when the context has ended, no further plugin is started, and the record stays.
func TestDelContextEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}, "second": {}, "third": {}})
	a := r.add(list(t, "1.1.0", "red", "first", "second", "third"))
	r.script("third", script{cni.Del: {Stay: 10 * time.Minute}})
	ctx := expireWhen(t, filepath.Join(r.plugins, "third"+startedExt), 0)
	err := r.Del(ctx, a, network.Fallback{})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.HasSuffix(err.Error(),
		"\nsecond and 1 more plugins not called: context deadline exceeded") {
		t.Errorf("got %s", describe(err))
	}
	r.wantCalls("")
	r.wantRecorded("red/c1/eth0 deleting")
}

// CACHE-11, LIF-10: Recover runs DEL for interrupted operations and attachments of an earlier boot,
// newest first. It keeps the other attachments and continues past errors.
func TestRecover(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	n := list(t, "1.1.0", "red", "first")
	attachments := map[string]cni.Attachment{}
	for _, id := range []string{"alive", "cut-short", "earlier", "unreadable", "stuck"} {
		if _, err := r.Add(t.Context(), n, request(id)); err != nil {
			t.Fatal(err)
		}
		attachments[id] = request(id).Attachment("red")
	}
	stuck := list(t, "1.1.0", "blue", "second")
	r.script("second", script{cni.Add: fails(cni.CodeIOFailure, "disk"),
		cni.Del: fails(cni.CodeIOFailure, "disk")})
	second := request("stuck")
	second.IfName = "eth1"
	if _, err := r.Add(t.Context(), stuck, second); err == nil {
		t.Fatal("success")
	}
	r.entries()
	editRecord(t, r.Client, attachments["cut-short"], `"attached"`, `"adding"`)
	editRecord(t, r.Client, attachments["earlier"], `"bootID":"`, `"bootID":"x`)
	if err := os.Truncate(recordPath(r.Client, attachments["unreadable"]), 0); err != nil {
		t.Fatal(err)
	}
	err := r.Recover(t.Context(), nil)
	if got, want := describe(err), "5 blue/stuck/eth1: second DEL: disk"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if !strings.Contains(r.log.String(), "record is damaged or incomplete") {
		t.Errorf("log:\n%s", r.log)
	}
	var got []string
	for _, e := range r.entries() {
		got = append(got, e.String()+" "+e.Env.ContainerID)
	}
	if diff := cmp.Diff([]string{"DEL second stuck", "DEL first earlier", "DEL first cut-short"},
		got); diff != "" {
		t.Error(diff)
	}
}
