package network_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// RT-ADD-01, RT-ADD-02, RT-ADD-08, RT-ADD-09, REQ-02, LIF-09, VER-10: a chain runs in order, each
// plugin gets the previous result, and the last result is returned and recorded.
func TestAddChain(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}, "second": {}, "third": {}})
	n := list(t, "1.0.0", "red", "first", "second", "third")
	result, err := r.Add(t.Context(), n, request("c1"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range r.entries() {
		_, version, err := cni.DecodeHeader(e.Stdin)
		if err != nil {
			t.Error(err)
		}
		got = append(got, e.String()+" "+version+" "+e.prev())
	}
	const base = `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/absent"}],"ips":[{"interface":0,"address":"10.1.2.3/24"}],"dns":{"search":[`
	want := []string{
		"ADD first 1.0.0 ",
		`ADD second 1.0.0 ` + base + `"first"]}}`,
		`ADD third 1.0.0 ` + base + `"first","second"]}}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"first", "second", "third"}, result.DNS.Search); diff != "" {
		t.Error(diff)
	}
	record, err := r.Record(request("c1").Attachment("red"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(result, record.Result, equalAddr); diff != "" {
		t.Error(diff)
	}
}

// ENV-09, ENV-11, ENV-14, EXE-11: all plugins of an operation have the same environment and run in
// the runtime's own namespace.
func TestAddEnvironment(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}, "second": {}})
	r.PluginDirs = []string{"/nowhere", r.plugins}
	q := request("c1")
	q.Args = cni.Args{{Key: "B", Value: "1"}, {Key: "A", Value: ""}}
	if _, err := r.Add(t.Context(), list(t, "1.1.0", "red", "first", "second"), q); err != nil {
		t.Fatal(err)
	}
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	want := cni.Env{
		Command: cni.Add, ContainerID: "c1", Netns: "/run/netns/absent", IfName: "eth0",
		Args: "B=1;A=", Path: "/nowhere:" + r.plugins,
	}
	for _, e := range r.entries() {
		if diff := cmp.Diff(want, e.Env); diff != "" || e.Netns != own {
			t.Errorf("%s in %s: %s", e, e.Netns, diff)
		}
	}
}

// TestAddAnswers checks how ADD handles the answers of plugins. The list is red, 1.1.0, [first,
// second].
func TestAddAnswers(t *testing.T) {
	t.Parallel()
	undo := ", DEL second, DEL first"
	for _, tt := range []struct {
		name          string
		first, second act
		want, calls   string
	}{
		{"RT-ADD-03, RT-ADD-05, RT-ADD-07: the error of the first plugin is returned and all get DEL",
			fails(cni.CodeTryAgainLater, "busy"), act{},
			"11 red/c1/eth0: first ADD: busy", "ADD first" + undo},
		{"RT-ADD-03: so is the error of a later plugin",
			act{Stdout: "{}"}, fails(142, "own code"),
			"142 red/c1/eth0: second ADD: own code", "ADD first, ADD second" + undo},
		{"RT-ADD-06: if the first plugin does not know the container, there is nothing to undo",
			fails(cni.CodeUnknownContainer, "gone"), act{},
			"3 red/c1/eth0: first ADD: gone", "ADD first"},
		{"RT-ADD-06: if a later plugin does not know it, the first may hold resources",
			act{Stdout: "{}"}, fails(cni.CodeUnknownContainer, "gone"),
			"3 red/c1/eth0: second ADD: gone", "ADD first, ADD second" + undo},
		{"EXE-05: an exit status outweighs a result",
			act{Stdout: "{}", Exit: 3}, act{},
			`999 red/c1/eth0: first ADD: exit status 3 without a usable error object: stdout "{}"`,
			"ADD first" + undo},
		{"RES-05: an empty document is not a result",
			act{}, act{},
			"6 red/c1/eth0: first ADD: result: document is empty", "ADD first" + undo},
		{"EXE-16: one document, not two",
			act{Stdout: "{} {}"}, act{},
			"6 red/c1/eth0: first ADD: result: invalid character '{' after top-level value",
			"ADD first" + undo},
		{"EXE-16: one document and nothing before it",
			act{Stdout: "hello\n{}"}, act{},
			"6 red/c1/eth0: first ADD: result: invalid character 'h' looking for beginning of value", "ADD first" + undo},
		{"RES-14: an error object is not a result",
			act{Stdout: `{"code":7,"msg":"oops"}`}, act{},
			`6 red/c1/eth0: first ADD: result is an error object: "oops"`, "ADD first" + undo},
		{"RES-07: nor is an unknown version",
			act{Stdout: `{"cniVersion":"7.0.0"}`}, act{},
			"1 red/c1/eth0: first ADD: result: CNI version \"7.0.0\" is not supported: supported: 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0",
			"ADD first" + undo},
		{"RT-ADD-11: no interfaces and an index of -1 are tolerated",
			act{Stdout: `{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.1.2.3/24","interface":-1}]}`}, act{Stdout: "{}"},
			"success", "ADD first, ADD second"},
		{"R-20: interfaces with the same name are kept apart",
			act{Stdout: "{}"}, act{Stdout: `{"interfaces":[{"name":"eth0"},{"name":"eth0","sandbox":"/run/netns/absent"}]}`},
			"success", "ADD first, ADD second"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, map[string]script{"first": {cni.Add: tt.first},
				"second": {cni.Add: tt.second}})
			result, err := r.Add(t.Context(), list(t, "1.1.0", "red", "first", "second"),
				request("c1"))
			if got := describe(err); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			log := r.entries()
			if got := callsOf(log); got != tt.calls {
				t.Errorf("calls %q, want %q", got, tt.calls)
			}
			for _, e := range log {
				if e.Env.Command == cni.Del && e.prev() != "" {
					t.Errorf("%s has previous result %s", e, e.prev()) // RT-ADD-05
				}
			}
			if err != nil {
				if result != nil {
					t.Errorf("result %v together with an error", result)
				}
				r.wantRecorded()
				return
			}
			r.wantRecorded("red/c1/eth0 attached")
			if strings.HasPrefix(tt.name, "R-20") && len(result.Interfaces) != 2 {
				t.Errorf("interfaces %v", result.Interfaces)
			}
		})
	}
}

// REQ-06, RES-06, VER-12, RT-ADD-09, R-09: a result is decoded in its own version, or in the
// version of the list if it has none. The next plugin, the caller and DEL get it in the version of
// the list.
func TestAddConvertsResults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, version, answer, want string }{
		{"older", "1.1.0", `{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.1.2.3/24"}]}`,
			`{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24"}]}`},
		{"oldest", "0.4.0", `{"cniVersion":"0.2.0","ip4":{"ip":"10.1.2.3/24"}}`,
			`{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.1.2.3/24"}],"dns":{}}`},
		{"newer", "0.3.1", `{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24"}]}`,
			`{"cniVersion":"0.3.1","ips":[{"version":"4","address":"10.1.2.3/24"}],"dns":{}}`},
		{"none", "1.1.0", `{"ips":[{"address":"10.1.2.3/24"}]}`,
			`{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24"}]}`},
		{"empty", "1.1.0", `{"cniVersion":"","ips":[{"address":"10.1.2.3/24"}]}`,
			`{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24"}]}`},
		{"not text", "1.1.0", `{"cniVersion":1,"ips":[{"address":"10.1.2.3/24"}]}`,
			`{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24"}]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, map[string]script{"first": {cni.Add: {Stdout: tt.answer}},
				"second": {cni.Add: {Stdout: tt.answer}}})
			n := list(t, tt.version, "red", "first", "second")
			result, err := r.Add(t.Context(), n, request("c1"))
			if err != nil {
				t.Fatal(err)
			}
			encoded, err := result.Encode(n.Version)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Del(t.Context(), request("c1").Attachment("red"),
				network.Fallback{}); err != nil {
				t.Fatal(err)
			}
			log, onDel := r.entries(), tt.want
			if !n.Version.PrevResultOnDel() {
				onDel = ""
			}
			got := []string{log[1].prev(), string(encoded), log[2].prev(), log[3].prev()}
			if diff := cmp.Diff([]string{tt.want, tt.want, onDel, onDel}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// CNV-10, RES-10: a result without addresses is passed on in 0.1.0 and 0.2.0, to the next plugin
// and into the record. These versions cannot express a result that has only interfaces: only the
// last plugin may return it.
func TestAddWithoutAddressesInOldVersion(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"0.1.0", "0.2.0"} {
		want := `{"cniVersion":"` + version + `","dns":{"domain":"d"}}`
		r := newRig(t, map[string]script{
			"first":  {cni.Add: {Stdout: `{"dns":{"domain":"d"}}`}},
			"second": {cni.Add: {Stdout: want}},
		})
		if _, err := r.Add(t.Context(), list(t, version, "red", "first", "second"),
			request("c1")); err != nil {
			t.Fatal(err)
		}
		a := request("c1").Attachment("red")
		if prev := r.entries()[1].prev(); prev != want {
			t.Errorf("second plugin got %s", prev)
		}
		record, err := r.Record(a)
		if err != nil || record.Result == nil || record.Result.DNS.Domain != "d" {
			t.Errorf("record %+v, %v", record, err)
		}
		if err := r.Del(t.Context(), a, network.Fallback{}); err != nil {
			t.Error(err)
		}
	}
	links := script{cni.Add: {Stdout: `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0"}]}`}}
	r := newRig(t, map[string]script{"first": links})
	a := r.add(list(t, "0.2.0", "red", "first"))
	record, err := r.Record(a)
	if err != nil || record.Result != nil {
		t.Errorf("record %v, %v", record, err)
	}
	r = newRig(t, map[string]script{"first": links, "second": nil})
	if _, err := r.Add(t.Context(), list(t, "0.2.0", "red", "first", "second"),
		request("c1")); cni.CodeOf(err) != cni.CodeInvalidConfig {
		t.Errorf("interfaces without addresses passed on: %v", err)
	}
}

// RES-10, CNV-09: the runtime repairs the result of a plugin and passes it on. Each repair, and
// each address, gateway or route that the version of the list cannot express, is one warning.
func TestAddRepairsResults(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, version, answer, handedOn string
		warnings                        []string
	}{
		{"index", "1.1.0", `{"interfaces":[{"name":"eth0"}],"ips":[{"address":"10.1.2.3/24","interface":1}]}`,
			`{"cniVersion":"1.1.0","interfaces":[{"name":"eth0"}],"ips":[{"address":"10.1.2.3/24"}]}`,
			[]string{"ips[0]: interface 1 is not one of 1: it counts as absent"}},
		{"version and gateway", "0.4.0",
			`{"ips":[{"version":"4","address":"fd00::2/64"},{"version":"4","address":"10.1.2.3/24","gateway":"fe80::1"}]}`,
			`{"cniVersion":"0.4.0","ips":[{"version":"6","address":"fd00::2/64"},{"version":"4","address":"10.1.2.3/24","gateway":"fe80::1"}],"dns":{}}`,
			[]string{`ips[0] has version "4" and address fd00::2/64: it counts as 6`,
				"ips[1] has address 10.1.2.3/24 and gateway fe80::1: it is kept"}},
		{"newer version", "0.2.0",
			`{"cniVersion":"1.0.0","interfaces":[{"name":"eth0"}],"ips":[{"address":"10.1.2.3/24","interface":0},{"address":"10.1.3.3/24"}],"routes":[{"dst":"::/0"}]}`,
			`{"cniVersion":"0.2.0","ip4":{"ip":"10.1.2.3/24"},"dns":{}}`,
			[]string{"address 10.1.3.3/24", "route ::/0"}},
		{"nothing wrong", "1.1.0", `{"ips":[{"address":"10.1.2.3/24"}]}`,
			`{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24"}]}`, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, map[string]script{"first": {cni.Add: {Stdout: row.answer}},
				"second": {cni.Add: {Stdout: "{}"}}})
			var log bytes.Buffer
			r.Log = slog.New(slog.NewJSONHandler(&log, nil))
			if _, err := r.Add(t.Context(), list(t, row.version, "red", "first", "second"),
				request("c1")); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.handedOn, r.entries()[1].prev()); diff != "" {
				t.Errorf("passed on (-want +got):\n%s", diff)
			}
			var warnings []string
			for line := range strings.Lines(log.String()) {
				var w struct{ Level, Plugin, Container, Repair, Lost string }
				if err := json.Unmarshal([]byte(line), &w); err != nil {
					t.Fatal(err)
				}
				if w.Level != "WARN" || w.Plugin != "first" || w.Container != "c1" {
					t.Errorf("logged %s", line)
				}
				warnings = append(warnings, w.Repair+w.Lost)
			}
			if diff := cmp.Diff(row.warnings, warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// RT-ADD-01, ENV-15, SEC-01, PL-ADD-11, DRP-06, CFG-31: ADD refuses these requests before any
// plugin starts and before it writes anything.
func TestAddRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	good := list(t, "1.1.0", "red", "first")
	none, err := config.LoadBytes([]byte(`{"cniVersion":"1.1.0","name":"red"}`))
	if err != nil {
		t.Fatal(err)
	}
	leaves := list(t, "1.1.0", "red", "first")
	// The loader refuses such a type.
	leaves.Plugins[0].Type = "../" + filepath.Base(r.plugins) + "/first"
	for _, tt := range []struct {
		name string
		n    *config.Network
		edit func(*network.Request)
		want string
	}{
		{"no network", nil, nil, "7 no network given"},
		{"network without plugins", none, nil,
			"7 network red has no plugins: neither under the key plugins nor in a drop-in directory"},
		{"missing binary of a later plugin", list(t, "1.1.0", "red", "first", "absent"), nil,
			"7 red/c1/eth0: plugin \"absent\" not found in " + r.plugins +
				": install the plugin there or add its directory to the plugin directories (CNI_PATH)"},
		{"binary outside of the plugin directories", leaves, nil,
			`7 red/c1/eth0: plugin type "` + leaves.Plugins[0].Type + `" is not a plain file name`},
		{"no namespace", good, func(q *network.Request) { q.Netns = "" },
			"4 red/c1/eth0: required environment variables are missing: CNI_NETNS"},
		{"namespace of the runtime", good,
			func(q *network.Request) { q.Netns = "/proc/self/ns/net" },
			`8 red/c1/eth0: network namespace "/proc/self/ns/net" is the host's own: a container needs its own network namespace`},
		{"CNI_ARGS that would be read as two arguments", good,
			func(q *network.Request) { q.Args = cni.Args{{Key: "A", Value: "1;B=2"}} },
			"4 red/c1/eth0: CNI_ARGS: a key or value contains '=' or ';'"},
		{"malformed CNI_ARGS", good,
			func(q *network.Request) { q.Args = cni.Args{{Key: "A", Value: "1=2"}} },
			"4 red/c1/eth0: CNI_ARGS: a key or value contains '=' or ';'"},
		{"capability argument that is not JSON", good,
			func(q *network.Request) { q.Capabilities = map[string]json.RawMessage{"mac": json.RawMessage("{")} },
			`6 red/c1/eth0: capability argument "mac" is not JSON`},
	} {
		q := request("c1")
		if tt.edit != nil {
			tt.edit(&q)
		}
		_, err := r.Add(t.Context(), tt.n, q)
		if got := describe(err); got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, got, tt.want)
		}
	}
	r.wantCalls("")
	if _, err := os.Stat(r.StateDir); err == nil {
		t.Error("the state directory was created")
	}
}

// ENV-05, ENV-06, ENV-15, CFG-03, SEC-01: every verb checks identifiers first.
func TestIdentifiers(t *testing.T) {
	t.Parallel()
	rows, err := conformance.Identifiers()
	if err != nil {
		t.Fatal(err)
	}
	recorder := &invoke.Recorder{Caller: invoke.Fake{"first": {}}}
	c := &network.Client{Isolated: true, Caller: recorder, StateDir: t.TempDir(), Log: quiet}
	for _, row := range rows {
		n, q := list(t, "1.1.0", "red", "first"), request("c1")
		switch row.Field {
		case conformance.FieldNetworkName:
			n.Name = row.Value
		case conformance.FieldContainerID:
			q.Container = row.Value
		case conformance.FieldIfName:
			q.IfName = row.Value
		}
		a := q.Attachment(n.Name)
		before := len(recorder.Exchanges())
		verbs := map[string]error{}
		_, verbs["ADD"] = c.Add(t.Context(), n, q)
		verbs["CHECK"] = c.Check(t.Context(), a, nil)
		verbs["DEL"] = c.Del(t.Context(), a, network.Fallback{Network: n})
		for verb, err := range verbs {
			if row.Verdict == conformance.Valid && err != nil {
				t.Errorf("%s with %s %q: %v", verb, row.Field, row.Value, err)
			}
			if row.Verdict == conformance.Invalid &&
				(err == nil || !slices.Contains(row.Codes, cni.CodeOf(err))) {
				t.Errorf("%s with %s %q: got %s, want one of %v", verb, row.Field, row.Value,
					describe(err), row.Codes)
			}
		}
		if calls := len(recorder.Exchanges()) - before; row.Verdict == conformance.Invalid &&
			calls > 0 {
			t.Errorf("%s %q: %d calls", row.Field, row.Value, calls)
		}
	}
}

// ENV-16, PL-ADD-11: a request can name the namespace of the runtime; plugins then get
// CNI_NETNS_OVERRIDE, also on DEL.
func TestAddHostNetns(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	n, q := list(t, "1.1.0", "red", "first"), request("c1")
	q.Netns, q.HostNetns = "/proc/self/ns/net", true
	if _, err := r.Add(t.Context(), n, q); err != nil {
		t.Fatal(err)
	}
	if err := r.Del(t.Context(), q.Attachment("red"), network.Fallback{}); err != nil {
		t.Fatal(err)
	}
	for _, e := range r.entries() {
		if e.Env.NetnsOverride != "1" || e.Env.Netns != q.Netns {
			t.Errorf("%s: override %q, namespace %q", e, e.Env.NetnsOverride, e.Env.Netns)
		}
	}
}

// LIF-04, RT-ADD-05: if DEL fails too, ADD returns both errors with its own code, and DEL is due
// according to the record.
func TestAddUndoFails(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{
		"first": {cni.Del: fails(cni.CodeTryAgainLater, "busy")},
		"second": {cni.Add: fails(cni.CodeInvalidConfig, "bad mode"),
			cni.Del: fails(cni.CodeIOFailure, "disk")},
	})
	n := list(t, "1.1.0", "red", "first", "second")
	_, err := r.Add(t.Context(), n, request("c1"))
	want := "7 red/c1/eth0: second ADD: bad mode; rollback failed: second DEL: disk\nfirst DEL: busy"
	if got := describe(err); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	r.wantCalls("ADD first, ADD second, DEL second, DEL first")
	r.wantRecorded("red/c1/eth0 adding")

	_, err = r.Add(t.Context(), n, request("c1"))
	want = "5 red/c1/eth0: clean up before ADD: second DEL: disk\nfirst DEL: busy"
	if got := describe(err); got != want {
		t.Errorf("ADD again: got  %s\nwant %s", got, want)
	}
	r.wantCalls("DEL second, DEL first")

	r.script("first", script{})
	r.script("second", script{})
	if _, err := r.Add(t.Context(), n, request("c1")); err != nil {
		t.Error(err)
	}
	r.wantCalls("DEL second, DEL first, ADD first, ADD second")
}

// RT-ADD-10, LIF-03, DIS-20: a second ADD needs a DEL before it, except for attachments that are
// not in use.
func TestAddAgain(t *testing.T) {
	t.Parallel()
	n := func(t *testing.T) *config.Network { return list(t, "1.1.0", "red", "first", "second") }
	for _, tt := range []struct {
		name    string
		damage  func(*testing.T, *rig, cni.Attachment)
		replace bool
		calls   string // empty: refused
	}{
		{"recorded", nil, false, ""},
		{"recorded, to be replaced", nil, true, "DEL second, DEL first, ADD first, ADD second"},
		{"interrupted ADD", func(t *testing.T, r *rig, a cni.Attachment) {
			editRecord(t, r.Client, a, `"attached"`, `"adding"`)
		}, false, "DEL second, DEL first, ADD first, ADD second"},
		{"from an earlier boot", func(t *testing.T, r *rig, a cni.Attachment) {
			editRecord(t, r.Client, a, `"bootID":"`, `"bootID":"x`)
		}, false, "DEL second, DEL first, ADD first, ADD second"},
		{"unreadable record", func(t *testing.T, r *rig, a cni.Attachment) {
			if err := os.Truncate(recordPath(r.Client, a), 0); err != nil {
				t.Fatal(err)
			}
		}, false, "DEL second, DEL first, ADD first, ADD second"},
		{"deleted", func(t *testing.T, r *rig, a cni.Attachment) {
			if err := r.Del(t.Context(), a, network.Fallback{}); err != nil {
				t.Fatal(err)
			}
			r.entries()
		}, false, "ADD first, ADD second"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, map[string]script{"first": {}, "second": {}})
			a := r.add(n(t))
			if tt.damage != nil {
				tt.damage(t, r, a)
			}
			q := request("c1")
			q.Replace = tt.replace
			_, err := r.Add(t.Context(), n(t), q)
			if tt.calls == "" {
				if !errors.Is(err, network.ErrExists) ||
					cni.CodeOf(err) != cni.CodeInvalidEnvironment {
					t.Errorf("got %s", describe(err))
				}
			} else if err != nil {
				t.Error(err)
			}
			r.wantCalls(tt.calls)
			r.wantRecorded("red/c1/eth0 attached")
		})
	}
}

// RT-ADD-08: ADD fails if the record cannot be stored.
func TestAddCannotRecord(t *testing.T) {
	t.Parallel()
	t.Run("before the first plugin", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, map[string]script{"first": {}})
		r.StateDir = filepath.Join(tree(t, map[string]string{"file": ""}), "file")
		_, err := r.Add(t.Context(), list(t, "1.1.0", "red", "first"), request("c1"))
		if cni.CodeOf(err) != cni.CodeIOFailure {
			t.Errorf("got %s", describe(err))
		}
		r.wantCalls("")
	})
	t.Run("after the last plugin", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, map[string]script{"first": {}})
		r.script("first", script{cni.Add: {Stdout: "{}",
			Ruin: filepath.Join(r.StateDir, "records")}})
		_, err := r.Add(t.Context(), list(t, "1.1.0", "red", "first"), request("c1"))
		if cni.CodeOf(err) != cni.CodeIOFailure ||
			!strings.Contains(describe(err), "store record") {
			t.Errorf("got %s", describe(err))
		}
		r.wantCalls("ADD first, DEL first")
	})
}

// EXE-12, R-05: a plugin that takes too long is stopped, the next one is not started, and DEL has
// its own time limit.
func TestAddTimeout(t *testing.T) {
	t.Parallel()
	n := func(t *testing.T) *config.Network {
		return list(t, "1.1.0", "red", "first", "second", "third")
	}
	plugins := map[string]script{"first": {}, "second": {cni.Add: {Stay: 10 * time.Minute}},
		"third": {}}
	t.Run("of the call", func(t *testing.T) {
		testnet.Long(t) // waits for the whole limit, which must be longer than ADD of the first plugin
		t.Parallel()
		r := newRig(t, plugins)
		r.Timeout = time.Minute
		_, err := r.Add(t.Context(), n(t), request("c1"))
		if !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(describe(err), "second ADD: stopped after ") {
			t.Errorf("got %s", describe(err))
		}
		r.wantCalls("ADD first, DEL third, DEL second, DEL first")
		r.wantRecorded()
	})
	t.Run("of the caller", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, plugins)
		r.Timeout = -1
		ctx := expireWhen(t, filepath.Join(r.plugins, "second"+startedExt), 0)
		_, err := r.Add(ctx, n(t), request("c1"))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %s", describe(err))
		}
		r.wantCalls("ADD first, DEL third, DEL first, DEL second")
		r.wantRecorded()
	})
	t.Run("of the caller, and the plugin hangs again", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, map[string]script{"first": {}, "third": {},
			"second": {cni.Add: {Stay: 10 * time.Minute}, cni.Del: {Stay: 10 * time.Minute}}})
		r.Timeout = -1
		ctx := expireWhen(t, filepath.Join(r.plugins, "second"+startedExt), 0)
		begin := time.Now()
		_, err := r.Add(ctx, n(t), request("c1"))
		if !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(describe(err), "rollback failed: second DEL: stopped") {
			t.Errorf("got %s", describe(err))
		}
		if d := time.Since(begin); d > testnet.Patience {
			t.Errorf("took %s", d)
		}
		r.wantCalls("ADD first, DEL third, DEL first")
	})
}

// REQ-01, REQ-02, REQ-03, REQ-04, REQ-05, REQ-07, REQ-08, REQ-09, REQ-10, REQ-11, REQ-12, REQ-13,
// REQ-14, REQ-17, CFG-34: a Client sends plugins the requests in the table.
func TestDerivedRequests(t *testing.T) {
	t.Parallel()
	rows, err := conformance.DerivedRequests()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		t.Run(row.ID, func(t *testing.T) {
			t.Parallel()
			var plugin struct{ Type string }
			if err := json.Unmarshal(row.Plugin, &plugin); err != nil {
				t.Fatal(err)
			}
			members := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(string(row.List)),
				"{"), "}")
			prev := invoke.Print("{}")
			if row.PrevResult != nil {
				prev = invoke.Print(string(row.PrevResult))
			}
			// The previous result comes from an earlier plugin (ADD) or from the plugin itself
			// (CHECK, DEL).
			plugins := string(row.Plugin)
			if row.Verb == cni.Add && row.PrevResult != nil {
				plugins = `{"type":"before"},` + plugins
			}
			n, err := config.LoadBytes([]byte(`{` + members + `,"plugins":[` + plugins + `]}`))
			if err != nil {
				t.Fatal(err)
			}
			recorder := &invoke.Recorder{Caller: invoke.Fake{"before": {cni.Add: prev},
				plugin.Type: {cni.Add: prev}}}
			c := &network.Client{Isolated: true, Caller: recorder, StateDir: t.TempDir()}
			q := request("c1")
			q.Capabilities = row.Capabilities
			a := q.Attachment(n.Name)
			switch row.Verb {
			case cni.Status:
				err = c.Status(t.Context(), n)
			case cni.GC:
				err = c.GC(t.Context(), n, network.Keep{Attachments: row.Valid})
			case cni.Add, cni.Check, cni.Del:
				_, err = c.Add(t.Context(), n, q)
			default:
				t.Fatalf("verb %s", row.Verb)
			}
			if row.Verb == cni.Check {
				err = errors.Join(err, c.Check(t.Context(), a, nil))
			}
			if row.Verb == cni.Del {
				// Without a previous result there is no record either.
				f := network.Fallback{Network: n, Parameters: q.Parameters}
				if row.PrevResult == nil {
					err = errors.Join(err, os.Remove(recordPath(c, a)))
				}
				err = errors.Join(err, c.Del(t.Context(), a, f))
			}
			if err != nil {
				t.Fatal(err)
			}
			log := recorder.Exchanges()
			last := log[len(log)-1].Call
			if last.Env.Command != row.Verb {
				t.Fatalf("last call was %s", last.Env.Command)
			}
			got := last.Stdin
			if row.Verb == cni.GC { // REQ-13, DIS-10: the request has both spellings
				got = without(t, got, "cni.dev/attachments", "cni.dev/valid-attachments")
			}
			if diff := cmp.Diff(normal(t, row.Want), normal(t, got)); diff != "" {
				t.Errorf("%s: %s", row.Reason, diff)
			}
		})
	}
}

// without removes a member that has the same value as another member.
func without(t *testing.T, object []byte, key, same string) []byte {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal(object, &m); err != nil {
		t.Fatal(err)
	}
	if string(m[key]) != string(m[same]) {
		t.Errorf("%s is %s, not %s", key, m[key], m[same])
	}
	delete(m, key)
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// normal returns JSON that can be compared: with sorted keys and exact numbers.
func normal(t *testing.T, b []byte) string {
	t.Helper()
	var v any
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	out, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
