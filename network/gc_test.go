package network_test

import (
	"context"
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
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

func valid(ids ...string) []cni.ValidAttachment {
	v := []cni.ValidAttachment{}
	for _, id := range ids {
		v = append(v, cni.ValidAttachment{ContainerID: id, IfName: "eth0"})
	}
	return v
}

func keep(ids ...string) network.Keep { return network.Keep{Attachments: valid(ids...)} }

// addAll attaches containers to a network.
func (r *rig) addAll(n *config.Network, ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		if _, err := r.Add(r.t.Context(), n, request(id)); err != nil {
			r.t.Fatal(err)
		}
	}
	r.entries()
}

// RT-GC-01, RT-GC-05, RT-GC-09, RT-GC-13, REQ-13, ENV-08, DIS-29: GC runs DEL for stale attachments
// with their records, and then calls all plugins in their order with the valid attachments. It
// leaves other networks alone.
func TestGC(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}, "second": {}})
	n := list(t, "1.1.0", "red", `{"type":"first","capabilities":{"mac":true}}`, "second")
	r.addAll(n, "keep", "stale")
	r.addAll(list(t, "1.1.0", "blue", "first"), "stale")
	if err := r.GC(t.Context(), n, keep("keep", "unrecorded")); err != nil {
		t.Fatal(err)
	}
	log := r.entries()
	if got := callsOf(log); got != "DEL second, DEL first, GC first, GC second" {
		t.Fatalf("calls %q", got)
	}
	for _, e := range log[:2] {
		if e.Env.ContainerID != "stale" || e.Env.Netns != "/run/netns/absent" || e.prev() == "" {
			t.Errorf("%s: environment %v, previous result %s", e, e.Env, e.prev())
		}
	}
	const list = `[{"containerID":"keep","ifname":"eth0"},{"containerID":"unrecorded","ifname":"eth0"}]`
	for _, e := range log[2:] {
		if diff := cmp.Diff(cni.Env{Command: cni.GC, Path: r.plugins}, e.Env); diff != "" {
			t.Errorf("%s: %s", e, diff)
		}
		want := `{"cni.dev/attachments":` + list + `,"cni.dev/valid-attachments":` + list +
			`,"cniVersion":"1.1.0","name":"red","type":"` + e.Plugin + `"}`
		if diff := cmp.Diff(want, string(e.Stdin)); diff != "" {
			t.Errorf("%s: %s", e, diff)
		}
	}
	r.wantRecorded("red/keep/eth0 attached", "blue/stale/eth0 attached")

	if err := r.GC(t.Context(), n, keep()); err != nil {
		t.Fatal(err)
	}
	log = r.entries()
	if got := callsOf(log); got != "DEL second, DEL first, GC first, GC second" {
		t.Fatalf("with an empty list: calls %q", got)
	}
	var request map[string]json.RawMessage
	if err := json.Unmarshal(log[3].Stdin, &request); err != nil ||
		string(request["cni.dev/valid-attachments"]) != "[]" {
		t.Errorf("with an empty list: request %s", log[3].Stdin)
	}
}

// RT-GC-03, RT-GC-06, RT-GC-08, CFG-09: cases in which GC does less, or nothing.
func TestGCGates(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		n           *config.Network
		valid       []cni.ValidAttachment
		want, calls string
	}{
		{"no list is not an empty list", list(t, "1.1.0", "red", "first"), nil,
			"7 network red: GC needs the list of attachments in use: pass an empty list if none is in use", ""},
		{"disabled", listWith(t, "1.1.0", "red", `"disableGC":true`, "first"), valid(), "success",
			""},
		{"disabled as text", listWith(t, "1.1.0", "red", `"disableGC":"True"`, "first"), valid(),
			"success", ""},
		{"below 1.1.0 only DEL", list(t, "1.0.0", "red", "first"), valid(), "success", "DEL first"},
		{"no network", nil, valid(), "7 no network given", ""},
	} {
		r := newRig(t, map[string]script{"first": {}})
		r.addAll(list(t, "1.1.0", "red", "first"), "c1")
		if got := describe(r.GC(t.Context(), tt.n,
			network.Keep{Attachments: tt.valid})); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
		r.wantCalls(tt.calls)
	}
}

// RT-GC-02, RT-GC-07, ERR-11: GC continues past errors and returns all of them, each with its code.
// Attachments that could not be deleted stay recorded.
func TestGCPastFailures(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {cni.GC: fails(cni.CodeIOFailure, "disk")},
		"second": {}, "gone": {}})
	n := list(t, "1.1.0", "red", "first", "absent", "second")
	r.addAll(list(t, "1.1.0", "red", "gone"), "c1")
	r.script("gone", script{cni.Del: fails(cni.CodeTryAgainLater, "busy")})
	want := "11 network red: red/c1/eth0: gone DEL: busy\nfirst GC: disk\nplugin \"absent\" not found in " + r.plugins +
		": install the plugin there or add its directory to the plugin directories (CNI_PATH)"
	err := r.GC(t.Context(), n, keep())
	if got := describe(err); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := codes(err), []cni.Code{cni.CodeTryAgainLater, cni.CodeIOFailure,
		cni.CodeInvalidConfig}; !slices.Equal(got, want) {
		t.Errorf("codes %v, want %v", got, want)
	}
	r.wantCalls("DEL gone, GC first, GC second")
	r.wantRecorded("red/c1/eth0 deleting")
}

// codes returns the codes of joined errors.
func codes(err error) []cni.Code {
	switch e := err.(type) {
	case *cni.Error:
		return []cni.Code{e.Code}
	case interface{ Unwrap() []error }:
		var all []cni.Code
		for _, err := range e.Unwrap() {
			all = append(all, codes(err)...)
		}
		return all
	case interface{ Unwrap() error }:
		return codes(e.Unwrap())
	}
	return nil
}

// R-02, RT-GC-11: damaged records stay, with a warning and without an error. Their attachments are
// valid for the plugins. If a record has lost its key, or the records cannot be listed, GC does not
// call the plugins, unless the caller lists the attachments of all runtimes.
func TestGCDamagedRecords(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		left  int64  // bytes of the record
		valid string // valid for the plugins, in addition to the listed one
		all   bool   // AllRuntimes
		calls string
	}{
		{"empty", 0, "", false, ""},
		{"empty, all runtimes", 0, "", true, "GC first"},
		{"truncated after the key", 200, "lost", false, "GC first"},
	} {
		t.Run("one "+tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, map[string]script{"first": {}})
			n := list(t, "1.1.0", "red", "first")
			r.addAll(n, "lost", "valid")
			for _, id := range []string{"lost", "valid"} {
				if err := os.Truncate(recordPath(r.Client, request(id).Attachment("red")),
					tt.left); err != nil {
					t.Fatal(err)
				}
			}
			k := keep("valid")
			k.AllRuntimes = tt.all
			if err := r.GC(t.Context(), n, k); err != nil {
				t.Error(err)
			}
			lost := recordPath(r.Client, request("lost").Attachment("red"))
			if want := lost + ": record is damaged or incomplete"; !strings.Contains(r.log.String(), want) {
				t.Errorf("%q is not in the log:\n%s", want, r.log)
			}
			log := r.entries()
			if callsOf(log) != tt.calls {
				t.Fatalf("calls %s", callsOf(log))
			}
			if incomplete := strings.Contains(r.log.String(),
				"skipped GC of plugins"); incomplete != (tt.calls == "") {
				t.Errorf("log:\n%s", r.log)
			}
			want := valid(strings.Fields("valid " + tt.valid)...)
			for _, e := range log {
				if got, err := cni.DecodeValidAttachments(e.Stdin); err != nil ||
					!slices.Equal(got, want) {
					t.Errorf("valid %v, %v, want %v", got, err, want)
				}
			}
			for _, id := range []string{"lost", "valid"} {
				if _, err := os.Stat(recordPath(r.Client,
					request(id).Attachment("red"))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	t.Run("the directory", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, map[string]script{"first": {}})
		n := list(t, "1.1.0", "red", "first")
		r.addAll(n, "c1")
		dir := filepath.Join(r.StateDir, "records")
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, k := range []network.Keep{keep(), {Recorded: true}} {
			if err := r.GC(t.Context(), n, k); cni.CodeOf(err) != cni.CodeIOFailure ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("got %s", describe(err))
			}
			if err := r.manager(nil).GC(t.Context(),
				network.KeepSandboxes{IDs: []string{"c1"}}); cni.CodeOf(err) != cni.CodeIOFailure {
				t.Errorf("of a manager: %s", describe(err))
			}
		}
		r.wantCalls("")
	})
}

// LIF-08, RT-GC-10: GC of a network never runs at the same time as ADD or DEL.
func TestGCExcludes(t *testing.T) {
	t.Parallel()
	for _, tt := range [][2]cni.Command{{cni.Add, cni.GC}, {cni.Del, cni.GC}, {cni.GC, cni.Add},
		{cni.GC, cni.Del}} {
		t.Run(fmt.Sprint(tt[1], " beside ", tt[0]), func(t *testing.T) {
			t.Parallel()
			h := newHang(t, tt[0])
			n := list(t, "1.1.0", "red", "slow")
			call := func(ctx context.Context, verb cni.Command, container string) (err error) {
				switch verb {
				case cni.Add:
					_, err = h.Add(ctx, n, request(container))
				case cni.Del:
					err = h.Del(ctx, request(container).Attachment("red"),
						network.Fallback{Network: n})
				case cni.GC:
					err = h.GC(ctx, n, keep())
				}
				return err
			}
			first := h.enter(func() error { return call(t.Context(), tt[0], "c1") })
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if err := call(ctx, tt[1], "c2"); !strings.Contains(describe(err),
				"network red is busy: ") {
				t.Errorf("the second: %s", describe(err))
			}
			if log := h.calls.Exchanges(); len(log) > 0 { // the first is still running
				t.Errorf("calls %v", log)
			}
			close(h.leave)
			if err := errors.Join(<-first, call(t.Context(), tt[1], "c2")); err != nil {
				t.Error(err)
			}
		})
	}
}

// GC waits for an ADD in progress, and keeps its attachment although the caller of GC cannot list
// it.
func TestGCDuringAdd(t *testing.T) {
	t.Parallel()
	h := newHang(t, cni.Add)
	n := list(t, "1.1.0", "red", "slow")
	added := h.add(n)
	collected := h.gc(n)
	close(h.leave)
	if err := errors.Join(<-added, <-collected); err != nil {
		t.Error(err)
	}
	log := h.calls.Exchanges()
	if len(log) != 2 || log[1].Call.Env.Command != cni.GC {
		t.Fatalf("calls %v", log)
	}
	if log[1].Start.Before(log[0].Start.Add(log[0].Duration)) {
		t.Error("GC began before ADD had ended")
	}
	if v, err := cni.DecodeValidAttachments(log[1].Call.Stdin); err != nil ||
		!slices.Equal(v, valid("c1")) {
		t.Errorf("valid %v, %v", v, err)
	}
	if _, err := h.Record(request("c1").Attachment("red")); err != nil {
		t.Error(err)
	}
}

// hang is a Client with the plugin slow, which blocks in a verb until it is released.
type hang struct {
	*network.Client
	t              *testing.T
	calls          *invoke.Recorder
	entered, leave chan struct{}
}

func newHang(t *testing.T, verb cni.Command) *hang {
	h := &hang{t: t, entered: make(chan struct{}), leave: make(chan struct{})}
	block := func(context.Context, invoke.Call) ([]byte, bool) {
		close(h.entered)
		<-h.leave
		return []byte("{}"), true
	}
	h.calls = &invoke.Recorder{Caller: invoke.Fake{"slow": {verb: block}}}
	h.Client = &network.Client{Isolated: true, StateDir: t.TempDir(), Caller: h.calls}
	return h
}

// enter makes a call and returns when the plugin has started its verb.
func (h *hang) enter(call func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	<-h.entered
	return done
}

// add attaches c1 and returns when the plugin has started ADD.
func (h *hang) add(n *config.Network) <-chan error {
	return h.enter(func() error {
		_, err := h.Add(h.t.Context(), n, request("c1"))
		return err
	})
}

// gc runs GC without valid attachments and returns when it waits for the ADD.
func (h *hang) gc(n *config.Network) <-chan error {
	done := make(chan error, 1)
	go func() { done <- h.GC(h.t.Context(), n, keep()) }()
	waitForExclusive(h.t, h.NetworkLock(n.Name))
	return done
}

// GC removes unfinished records that killed processes left in its network.
func TestGCDrafts(t *testing.T) {
	t.Parallel()
	c := &network.Client{Isolated: true, Caller: invoke.Fake{"x": {}}, StateDir: t.TempDir()}
	for _, name := range []string{"red", "blue"} {
		if _, err := c.Add(t.Context(), list(t, "1.1.0", name, "x"), request("c1")); err != nil {
			t.Fatal(err)
		}
		path := recordPath(c, request("c2").Attachment(name))
		for _, end := range []string{"", "123456"} {
			if err := os.WriteFile(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+end),
				nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.GC(t.Context(), list(t, "1.1.0", "red", "x"), keep("c1")); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(c.StateDir, "records"))
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, e := range entries {
		for _, name := range []string{"red", "blue"} {
			if strings.HasPrefix(strings.TrimPrefix(e.Name(), "."), cni.NetworkOwner(name)) {
				count[name]++
			}
		}
	}
	if count["red"] != 1 || count["blue"] != 3 {
		t.Errorf("files %v", entries)
	}
}

// CACHE-11: an interrupted ADD is stale, although it was never attached.
func TestGCLeftOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	n := list(t, "1.1.0", "red", "first")
	r.addAll(n, "c1")
	editRecord(t, r.Client, request("c1").Attachment("red"), `"attached"`, `"adding"`)
	if err := r.GC(t.Context(), n, keep()); err != nil {
		t.Error(err)
	}
	r.wantCalls("DEL first, GC first")
	r.wantRecorded()
}
