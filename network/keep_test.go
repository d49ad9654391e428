package network_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// collected runs GC and returns the calls and the attachments that the plugins got as valid.
func (r *rig) collected(
	n *config.Network, k network.Keep,
) (calls string, told []cni.ValidAttachment) {
	r.t.Helper()
	if err := r.GC(r.t.Context(), n, k); err != nil {
		r.t.Error(err)
	}
	log := r.entries()
	if len(log) == 0 {
		r.t.Fatal("no calls")
	}
	told, err := cni.DecodeValidAttachments(log[len(log)-1].Stdin)
	if err != nil {
		r.t.Error(err)
	}
	return callsOf(log), told
}

// Without AllRuntimes, GC judges only the attachments of its own runtime. It keeps the attachments
// of other runtimes, whatever their state, and passes them to the plugins as valid.
func TestGCOfTwoRuntimes(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	n := list(t, "1.1.0", "red", "first")
	for _, name := range []string{"crio", "podman", ""} {
		r.Runtime = name
		r.addAll(n, "of-"+name+"x")
	}
	r.Runtime = "podman"
	r.addAll(n, "cut-short")
	editRecord(t, r.Client, request("cut-short").Attachment("red"), `"attached"`, `"adding"`)
	if record, err := r.Record(request("of-criox").Attachment("red")); err != nil ||
		record.Runtime != "crio" {
		t.Fatal(record, err)
	}

	r.Runtime = "crio"
	stale, err := r.Stale(n, keep())
	if err != nil || len(stale) != 1 || stale[0].Attachment.Container != "of-criox" {
		t.Errorf("stale %v, %v", stale, err)
	}
	r.wantCalls("")
	calls, told := r.collected(n, keep())
	slices.SortFunc(told,
		func(a, b cni.ValidAttachment) int { return strings.Compare(a.ContainerID, b.ContainerID) })
	if calls != "DEL first, GC first" ||
		!slices.Equal(told, valid("cut-short", "of-podmanx", "of-x")) {
		t.Errorf("calls %s, valid %v", calls, told)
	}
	r.wantRecorded("red/of-podmanx/eth0 attached", "red/of-x/eth0 attached",
		"red/cut-short/eth0 adding")

	k := keep("of-x")
	k.AllRuntimes = true
	calls, told = r.collected(n, k)
	if calls != "DEL first, DEL first, GC first" || !slices.Equal(told, valid("of-x")) {
		t.Errorf("all runtimes: calls %s, valid %v", calls, told)
	}
}

// RT-GC-01, RT-GC-08: GC with Recorded keeps recorded attachments, which it lists while no ADD
// runs. It deletes interrupted ones.
func TestGCKeepsRecorded(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	n := list(t, "1.1.0", "red", "first")
	r.addAll(n, "a", "b", "cut-short", "earlier")
	editRecord(t, r.Client, request("cut-short").Attachment("red"), `"attached"`, `"adding"`)
	editRecord(t, r.Client, request("earlier").Attachment("red"), `"bootID":"`, `"bootID":"x`)
	calls, told := r.collected(n, network.Keep{Recorded: true})
	slices.SortFunc(told,
		func(a, b cni.ValidAttachment) int { return strings.Compare(a.ContainerID, b.ContainerID) })
	if calls != "DEL first, DEL first, GC first" || !slices.Equal(told, valid("a", "b")) {
		t.Errorf("calls %s, valid %v", calls, told)
	}
	r.wantRecorded("red/a/eth0 attached", "red/b/eth0 attached")

	// The list of valid attachments would lack a record without a readable key.
	if err := os.Truncate(recordPath(r.Client, request("b").Attachment("red")), 10); err != nil {
		t.Fatal(err)
	}
	if err := r.GC(t.Context(), n, network.Keep{Recorded: true}); err != nil {
		t.Errorf("with a damaged record: %s", describe(err))
	}
	r.wantCalls("")
	if stale, err := r.Stale(n, network.Keep{Recorded: true}); err != nil || stale != nil {
		t.Errorf("with a damaged record: %v, %s", stale, describe(err))
	}
	k := keep()
	k.Recorded = true
	if err := r.GC(t.Context(), n, k); cni.CodeOf(err) != cni.CodeInvalidConfig {
		t.Errorf("list and Recorded: %s", describe(err))
	}
}

// An attachment created after the caller began to make its list is in use, although the list cannot
// contain it.
func TestGCSince(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	n := list(t, "1.1.0", "red", "first")
	r.addAll(n, "before")
	k := keep()
	k.Since = time.Now()
	r.addAll(n, "after")
	calls, told := r.collected(n, k)
	if calls != "DEL first, GC first" || !slices.Equal(told, valid("after")) {
		t.Errorf("calls %s, valid %v", calls, told)
	}
	r.wantRecorded("red/after/eth0 attached")
	if calls, _ := r.collected(n, keep()); calls != "DEL first, GC first" {
		t.Errorf("without a time: calls %s", calls)
	}
}

// An interrupted or failed DEL is recorded. Only DEL and ADD accept the attachment then.
func TestDelIsNoted(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {cni.Del: fails(cni.CodeTryAgainLater, "busy")}})
	n := list(t, "1.1.0", "red", "first")
	a := r.add(n)
	for range 2 {
		if err := r.Del(t.Context(), a,
			network.Fallback{}); cni.CodeOf(err) != cni.CodeTryAgainLater {
			t.Errorf("got %s", describe(err))
		}
	}
	r.wantRecorded("red/c1/eth0 deleting")
	if got, want := describe(r.Check(t.Context(), a, nil)),
		"3 red/c1/eth0: DEL was started but has not succeeded: run DEL again"; got != want {
		t.Errorf("CHECK: got %s, want %s", got, want)
	}
	r.wantCalls("DEL first, DEL first")

	var reports []string
	report := func(done network.Recovered) {
		reports = append(reports, string(done.Record.State)+" "+describe(done.Err))
	}
	if err := r.Recover(t.Context(), report); cni.CodeOf(err) != cni.CodeTryAgainLater {
		t.Errorf("got %s", describe(err))
	}
	r.script("first", script{})
	if err := r.Recover(t.Context(), report); err != nil {
		t.Error(err)
	}
	want := []string{"deleting 11 red/c1/eth0: first DEL: busy", "deleting success"}
	if !slices.Equal(reports, want) {
		t.Errorf("reports %q, want %q", reports, want)
	}
	r.wantRecorded()
}

// If the start of DEL cannot be recorded, because the disk is full or read-only, DEL runs anyway.
func TestDelCannotBeNoted(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	a := r.add(list(t, "1.1.0", "red", "first"))
	noted := strings.TrimSuffix(recordPath(r.Client, a), ".json") + ".deleting"
	if err := os.MkdirAll(filepath.Join(noted, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := r.Del(t.Context(), a, network.Fallback{}); cni.CodeOf(err) != cni.CodeIOFailure {
		t.Errorf("got %s", describe(err))
	}
	r.wantCalls("DEL first")
	if !strings.Contains(r.log.String(), "cannot record the start of DEL") {
		t.Errorf("log %q", r.log)
	}
}

// CACHE-11: Recover removes unfinished files of killed processes, but keeps the files of running
// processes.
func TestRecoverFiles(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	n := list(t, "1.1.0", "red", "first")
	r.add(n)
	draft := filepath.Join(r.StateDir, "records",
		"."+string(request("c2").Attachment("red").Owner())+".json123")
	free := filepath.Join(r.StateDir, "locks", "container-free")
	for _, path := range []string{draft, free} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	held := filepath.Join(r.StateDir, "locks", "container-held")
	release, err := network.LockExclusive(t.Context(), held)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Recover(t.Context(), nil); err != nil {
		t.Error(err)
	}
	for path, want := range map[string]bool{draft: false, free: false, held: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: exists %t, want %t", path, err == nil, want)
		}
	}
	release()
	r.wantRecorded("red/c1/eth0 attached")
	r.wantCalls("")
}
