package network_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

const examples = "../conformance/examples"

// cached returns the content of a file of libcni.
func cached(t *testing.T, a cni.Attachment, config, result string) string {
	t.Helper()
	w := map[string]any{
		"kind": "cniCacheV1", "containerId": a.Container, "ifName": a.IfName,
		"networkName": a.Network,
		"config":      []byte(config), "netns": "/run/netns/absent",
		"cniArgs":        [][]string{{"K", "V"}, {"IgnoreUnknown", "1"}},
		"capabilityArgs": map[string]string{"mac": "02:00:00:00:00:aa"},
	}
	if result != "" {
		w["result"] = json.RawMessage(result)
	}
	b, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// cache writes a file to the cache directory of libcni and returns its path.
func (r *rig) cache(name, content string) string {
	r.t.Helper()
	if r.CacheDir == "" {
		r.CacheDir = r.t.TempDir()
	}
	path := filepath.Join(r.CacheDir, "results", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

const firstConfig = `{"cniVersion":"1.1.0","name":"red","plugins":[{"type":"first","capabilities":{"mac":true},"n":1.10}]}`

// libcni of containerd 1.6 and Podman 4.3 stores the path of the namespace only in the result.
func TestCachedWithoutNamespace(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ interfaces, want string }{
		"of the interface": {`{"name":"eth0"},{"name":"other","sandbox":"/proc/1/ns/net"},{"name":"eth0","sandbox":"/run/netns/absent"}`, "/run/netns/absent"},
		"none":             {`{"name":"eth0"}`, ""},
	} {
		r := newRig(t, map[string]script{"first": {}})
		a := request("c1").Attachment("red")
		content := cached(t, a, firstConfig,
			`{"cniVersion":"1.1.0","interfaces":[`+row.interfaces+`]}`)
		r.cache("red-c1-eth0", strings.Replace(content, `"netns":"/run/netns/absent",`, "", 1))
		if record, err := r.Record(a); err != nil || record.Netns != row.want {
			t.Errorf("%s: %+v, %v, want %q", name, record, err, row.want)
		}
	}
}

// CACHE-02, CACHE-03, CACHE-05, CACHE-10, RT-CHK-06, RT-DEL-04, RT-DEL-07: CHECK and DEL of an
// attachment of libcni use the configuration, the arguments and the result that libcni stored, and
// DEL removes its file.
func TestCached(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	a := request("c1").Attachment("red")
	path := r.cache("red-c1-eth0",
		cached(t, a, firstConfig, `{"cniVersion":"1.1.0","ips":[{"address":"10.9.0.2/24"}]}`))
	record, err := r.Record(a)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintln(record.Attachment, record.State, record.Runtime, record.Source,
		record.Netns, record.Args, record.Created.Equal(info.ModTime()))
	want := fmt.Sprintln(a, network.Attached, network.ReferenceRuntime, path, "/run/netns/absent",
		"K=V;IgnoreUnknown=1", true)
	if got != want {
		t.Errorf("record\ngot  %s\nwant %s", got, want)
	}
	r.wantRecorded("red/c1/eth0 attached")

	edited := list(t, "1.1.0", "red", "edited")
	if err := r.Check(t.Context(), a, edited); err != nil {
		t.Fatal(err)
	}
	if err := r.Del(t.Context(), a, network.Fallback{Network: edited}); err != nil {
		t.Fatal(err)
	}
	log := r.entries()
	if got := callsOf(log); got != "CHECK first, DEL first" {
		t.Fatalf("calls %q", got)
	}
	for _, e := range log {
		wantEnv := cni.Env{
			Command: e.Env.Command, ContainerID: "c1", Netns: "/run/netns/absent", IfName: "eth0",
			Args: "K=V;IgnoreUnknown=1", Path: r.plugins,
		}
		if diff := cmp.Diff(wantEnv, e.Env); diff != "" {
			t.Errorf("%s: %s", e, diff)
		}
		want := `{"cniVersion":"1.1.0","n":1.10,"name":"red","prevResult":{"cniVersion":"1.1.0","ips":[{"address":"10.9.0.2/24"}]},` +
			`"runtimeConfig":{"mac":"02:00:00:00:00:aa"},"type":"first"}`
		if diff := cmp.Diff(want, string(e.Stdin)); diff != "" {
			t.Errorf("%s: %s", e, diff)
		}
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the file was not removed")
	}
	r.wantRecorded()
}

// CACHE-06, RT-DEL-05, RT-CHK-08, RT-CHK-09, R-08, R-09, R-12: all examples of cached attachments,
// and damaged ones. DEL always cleans up, with the result if it is readable, and removes the file;
// CHECK needs a complete file.
func TestCachedExamples(t *testing.T) {
	t.Parallel()
	const v1 = `"ips":[{"address":"10.90.0.2/24"}]` // in the version of the list
	whole := cached(t, cni.Attachment{Network: "cachenet", Container: "c-1", IfName: "eth0"},
		`{"cniVersion":"1.1.0","name":"cachenet","plugins":[{"type":"loopback"}]}`,
		`{"cniVersion":"1.1.0"}`)
	for _, tt := range []struct {
		name, content string
		prev          string // in the request of DEL
		stored        bool   // the stored configuration and arguments are used
		warns         bool
		check         string
	}{
		{"cache-valid-v1", "", v1, true, false, "success"},
		{"cache-valid-v1-older-result", "", v1, true, false, "success"},
		{"cache-valid-legacy-bare-result", "", v1, false, false,
			"6 cachenet/c-1/eth0: PATH: an old release of libcni stored only the result, without configuration and arguments"},
		{"cache-invalid-text-code6", "", "", false, true,
			"6 cachenet/c-1/eth0: PATH: cached attachment: invalid character 'g' looking for beginning of value"},
		{"cache-invalid-result-version-code1", "", "", true, true,
			`1 cachenet/c-1/eth0: cached attachment: result: CNI version "7.0.0" is not supported: supported: 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0`},
		{"cache-invalid-wrong-kind-code6", "", "", false, true,
			`6 cachenet/c-1/eth0: PATH: cached attachment: kind is "cniCacheV9", not "cniCacheV1"`},
		{"truncated", whole[:len(whole)-9], "", false, true,
			"6 cachenet/c-1/eth0: PATH: cached attachment: unexpected end of JSON input"},
		{"empty", "", "", false, true,
			"6 cachenet/c-1/eth0: PATH: cached attachment: unexpected end of JSON input"},
		{"an unrelated JSON object", "{}", "", false, true,
			`6 cachenet/c-1/eth0: PATH: cached attachment: kind is missing, not "cniCacheV1"`},
		{"an error object", `{"cniVersion":"1.1.0","code":7,"msg":"x"}`, "", false, true,
			`6 cachenet/c-1/eth0: PATH: cached attachment: result is an error object: "x"`},
		{"invalid arguments", strings.Replace(whole, `"V"`, `"V;W"`, 1), "", false, true,
			`4 cachenet/c-1/eth0: PATH: cached attachment: CNI_ARGS: a key or value contains '=' or ';'`},
		{"an invalid configuration", strings.Replace(whole, `"config":"`, `"config":"AA`, 1), "",
			false, true, ""},
		{"a null result", strings.Replace(whole, `"result":{"cniVersion":"1.1.0"}`, `"result":null`,
			1), "", true, false, "success"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if strings.HasPrefix(tt.name, "cache-") {
				b, err := os.ReadFile(filepath.Join(examples, tt.name+".json"))
				if err != nil {
					t.Fatal(err)
				}
				tt.content = string(b)
			}
			r := newRig(t, map[string]script{"loopback": {}})
			path := r.cache("cachenet-c-1-eth0", tt.content)
			a := request("c-1").Attachment("cachenet")
			n := list(t, "1.1.0", "cachenet", "loopback")
			check := strings.ReplaceAll(describe(r.Check(t.Context(), a, n)), path, "PATH")
			if tt.check != "" && check != tt.check {
				t.Errorf("CHECK:\ngot  %s\nwant %s", check, tt.check)
			}
			checked := r.entries()
			if (check == "success") != (callsOf(checked) == "CHECK loopback") {
				t.Error("CHECK of an unreadable file called plugins")
			}
			for _, e := range checked {
				if !strings.Contains(e.prev(), tt.prev) {
					t.Errorf("CHECK: previous result %q, want %q in it", e.prev(), tt.prev)
				}
			}
			if err := r.Del(t.Context(), a, network.Fallback{Network: n}); err != nil {
				t.Fatal(err)
			}
			log := r.entries()
			if callsOf(log) != "DEL loopback" {
				t.Fatalf("calls %q", callsOf(log))
			}
			if prev := log[0].prev(); tt.prev == "" && prev != "" && tt.name != "a null result" ||
				!strings.Contains(prev, tt.prev) {
				t.Errorf("previous result %q, want %q in it", prev, tt.prev)
			}
			if stored := log[0].Env.Args != ""; stored != tt.stored {
				t.Errorf("stored arguments are used: %t, want %t", stored, tt.stored)
			}
			if warned := strings.Contains(r.log.String(), "is unreadable"); warned != tt.warns {
				t.Errorf("log %q", r.log)
			}
			if _, err := os.Stat(path); err == nil {
				t.Error("the file was not removed")
			}
		})
	}
}

// CACHE-07, CACHE-08, SEC-01, SEC-04: the content of a file defines its attachment, not the file
// name.
func TestCachedIdentity(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	theirs := request("x-y").Attachment("n")
	path := r.cache("n-x-y-eth0",
		cached(t, theirs, strings.Replace(firstConfig, "red", "n", 1), ""))
	ours := request("y").Attachment("n-x") // has the same file name
	if err := r.Check(t.Context(), ours, nil); !errors.Is(err, network.ErrNoRecord) {
		t.Errorf("CHECK: %s", describe(err))
	}
	if err := r.Del(t.Context(), ours,
		network.Fallback{Network: list(t, "1.1.0", "n-x", "first")}); err != nil {
		t.Error(err)
	}
	if log := r.entries(); len(log) != 1 || log[0].Env.ContainerID != "y" || log[0].Env.Args != "" {
		t.Errorf("log %v", log)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error("DEL of another attachment removed the file")
	}
	// The file has another name than libcni uses.
	r.cache("n-moved-eth0", cached(t, theirs, strings.Replace(firstConfig, "red", "n", 1), ""))
	r.cache("n-..-eth0", cached(t, request("../x").Attachment("n"), firstConfig, ""))
	r.wantRecorded("n/x-y/eth0 attached")
	outside := r.cache("../secret", "x")
	for _, id := range []string{"../../secret", "", "a/b"} {
		if err := r.Del(t.Context(), request(id).Attachment("n"), network.Fallback{Network: list(t,
			"1.1.0", "n", "first")}); cni.CodeOf(err) != cni.CodeInvalidEnvironment {
			t.Errorf("container ID %q: %s", id, describe(err))
		}
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
	r.wantCalls("")
}

// CACHE-04: libcni does not store plugins of drop-in files; they come from the given network if its
// list is otherwise the same.
func TestCachedDropIns(t *testing.T) {
	t.Parallel()
	const first = `{"cniVersion":"1.1.0","name":"red","plugins":[{"type":"first"}]}`
	for _, tt := range []struct {
		name, config string
		n            *config.Network
		calls, want  string
	}{
		{"after the same plugin", first, list(t, "1.1.0", "red", "first", "second"),
			"DEL second, DEL first", "success"},
		{"none are stored", `{"cniVersion":"1.1.0","name":"red"}`,
			list(t, "1.1.0", "red", "second"), "DEL second", "success"},
		{"after a different plugin", first,
			list(t, "1.1.0", "red", `{"type":"first","new":1}`, "second"), "DEL first", "success"},
		{"not wanted", strings.Replace(first, `"plugins"`,
			`"loadOnlyInlinedPlugins":true,"plugins"`, 1),
			list(t, "1.1.0", "red", "first", "second"), "DEL first", "success"},
		{"no network", first, nil, "DEL first", "success"},
		{"nothing at all", `{"cniVersion":"1.1.0","name":"red"}`, nil, "",
			"7 red/c1/eth0: network red has no plugins: neither under the key plugins nor in a drop-in directory"},
	} {
		r := newRig(t, map[string]script{"first": {}, "second": {}})
		a := request("c1").Attachment("red")
		r.cache("red-c1-eth0", cached(t, a, tt.config, ""))
		if got := describe(r.Del(t.Context(), a, network.Fallback{Network: tt.n})); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
		r.wantCalls(tt.calls)
	}
}

// LIF-03: ADD of an attachment of libcni fails; with Replace, ADD first runs DEL.
func TestAddWhereCached(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	q := request("c1")
	a := q.Attachment("red")
	path := r.cache("red-c1-eth0", cached(t, a, firstConfig, ""))
	n := list(t, "1.1.0", "red", "first")
	if _, err := r.Add(t.Context(), n, q); !errors.Is(err, network.ErrExists) {
		t.Errorf("got %s", describe(err))
	}
	r.wantCalls("")
	q.Replace = true
	if _, err := r.Add(t.Context(), n, q); err != nil {
		t.Fatal(err)
	}
	r.wantCalls("DEL first, ADD first")
	if _, err := os.Stat(path); err == nil {
		t.Error("the file was not removed")
	}
	if record, err := r.Record(a); err != nil || record.Source != "" {
		t.Errorf("record %v, %v", record, err)
	}
}

// RT-GC-11, RT-GC-12, CACHE-09, R-02: attachments in the cache of libcni belong to other runtimes:
// GC keeps them and names them to the plugins, even if a file is unreadable or in the old format.
// With AllRuntimes, GC deletes them with the stored configuration, except for unreadable and old
// files. GC does not call the plugins if the directory cannot be listed.
func TestGCCached(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	n := list(t, "1.1.0", "red", "first")
	for _, id := range []string{"listed", "stale"} {
		r.cache("red-"+id+"-eth0", cached(t, request(id).Attachment("red"), firstConfig, ""))
	}
	r.cache("blue-stale-eth0", cached(t, request("stale").Attachment("blue"),
		strings.Replace(firstConfig, "red", "blue", 1), ""))
	r.cache("red-old-eth0", `{"cniVersion":"0.4.0","ips":[]}`)
	r.cache("red-garbage-eth0", `garbage`)
	past := time.Now().Add(-time.Hour)
	for _, name := range []string{"red-listed-eth0", "red-stale-eth0"} {
		if err := os.Chtimes(filepath.Join(r.CacheDir, "results", name), past, past); err != nil {
			t.Fatal(err)
		}
	}
	r.addAll(n, "ours")
	collect := func(k network.Keep) (calls string, told []cni.ValidAttachment) {
		t.Helper()
		if err := r.GC(t.Context(), n, k); err != nil {
			t.Error(err)
		}
		log := r.entries()
		told, err := cni.DecodeValidAttachments(log[len(log)-1].Stdin)
		if err != nil {
			t.Error(err)
		}
		return callsOf(log), told
	}
	calls, told := collect(keep("ours"))
	if calls != "GC first" ||
		!slices.Equal(told, valid("ours", "garbage", "old", "listed", "stale")) {
		t.Errorf("by its own list: %s, valid %v", calls, told)
	}
	k := keep("ours", "listed")
	k.AllRuntimes = true
	calls, told = collect(k)
	if calls != "DEL first, GC first" || !slices.Equal(told, valid("ours", "listed")) {
		t.Errorf("all runtimes: %s, valid %v", calls, told)
	}
	r.wantRecorded("red/listed/eth0 attached", "blue/stale/eth0 attached", "red/ours/eth0 attached")
	for _, name := range []string{"red-old-eth0", "red-garbage-eth0"} {
		if _, err := os.Stat(filepath.Join(r.CacheDir, "results", name)); err != nil {
			t.Error(err)
		}
	}

	if err := os.RemoveAll(r.CacheDir + "/results"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.CacheDir+"/results", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.GC(t.Context(), n, keep("ours")); cni.CodeOf(err) != cni.CodeIOFailure {
		t.Errorf("unreadable directory: %s", describe(err))
	}
	if err := r.GC(t.Context(), n,
		network.Keep{Recorded: true}); cni.CodeOf(err) != cni.CodeIOFailure {
		t.Errorf("unreadable directory, keeping recorded attachments: %s", describe(err))
	}
	r.wantCalls("")
}

// TestCacheIsRead checks that the client only reads the cache directory of libcni.
func TestCacheIsRead(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	r.CacheDir = filepath.Join(t.TempDir(), "cni")
	a := r.add(list(t, "1.1.0", "red", "first"))
	if err := errors.Join(r.Check(t.Context(), a, nil),
		r.Del(t.Context(), a, network.Fallback{})); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(r.CacheDir); err == nil {
		t.Error("a directory was created")
	}
}
