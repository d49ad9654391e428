package network_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// HandOver writes its own attachments in the format of libcni (CACHE-03), so that DEL gets the
// arguments of ADD, and leaves the attachments of other runtimes alone.
func TestHandOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	r.CacheDir, r.Runtime = t.TempDir(), "mine"
	n, err := config.LoadBytes([]byte(firstConfig))
	if err != nil {
		t.Fatal(err)
	}
	q := request("c1")
	q.Args = cni.Args{{Key: "K", Value: "V"}}
	q.Capabilities = map[string]json.RawMessage{"mac": json.RawMessage(`"02:00:00:00:00:aa"`)}
	a := q.Attachment("red")
	if _, err := r.Add(t.Context(), n, q); err != nil {
		t.Fatal(err)
	}
	other := *r.Client
	other.Runtime = "other"
	if _, err := other.Add(t.Context(), n, request("c2")); err != nil {
		t.Fatal(err)
	}
	elsewhere := r.runtime("mine")
	if _, err := elsewhere.Add(t.Context(), n, request("c3")); err != nil {
		t.Fatal(err)
	}
	before, err := r.Record(a)
	if err != nil {
		t.Fatal(err)
	}

	failure := errors.New("no rules")
	if _, err := r.HandOver(t.Context(), func(context.Context, []network.Record) error {
		return failure
	}); !errors.Is(err, failure) {
		t.Errorf("got %v, want %v", err, failure)
	}
	if files, _ := filepath.Glob(filepath.Join(r.CacheDir, "results", "*")); files != nil {
		t.Errorf("files after a failure: %q", files)
	}

	var seen []string
	handed, err := r.HandOver(t.Context(), func(_ context.Context, records []network.Record) error {
		for _, rec := range records {
			seen = append(seen, rec.Attachment.String())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"red/c1/eth0", "red/c2/eth0", "red/c3/eth0"}, seen); diff != "" {
		t.Errorf("do got (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]cni.Attachment{a}, handed); diff != "" {
		t.Errorf("handed over (-want +got)\n%s", diff)
	}

	content, err := os.ReadFile(filepath.Join(r.CacheDir, "results", "red-c1-eth0"))
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]json.RawMessage
	if err := json.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"kind": `"cniCacheV1"`, "containerId": `"c1"`, "ifName": `"eth0"`, "networkName": `"red"`,
		"cniArgs": `[["K","V"]]`, "capabilityArgs": `{"mac":"02:00:00:00:00:aa"}`,
	} {
		if got := string(file[key]); got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
	after, err := r.Record(a)
	if err != nil || after.Runtime != network.ReferenceRuntime || after.Source == "" {
		t.Fatalf("%+v, %v", after, err)
	}
	if diff := cmp.Diff(before.Parameters, after.Parameters); diff != "" {
		t.Errorf("parameters (-before +after)\n%s", diff)
	}
	if diff := cmp.Diff(before.Result, after.Result, cmp.Comparer(sameResult)); diff != "" {
		t.Errorf("result (-before +after)\n%s", diff)
	}
	if rec, err := r.Record(request("c2").Attachment("red")); err != nil || rec.Runtime != "other" {
		t.Errorf("record of another runtime: %+v, %v", rec, err)
	}

	key := request("c3").Attachment("red")
	if rec, err := elsewhere.Record(key); err != nil || rec.StateDir != elsewhere.StateDir {
		t.Errorf("record in another state directory: %+v, %v", rec, err)
	}

	r.CacheDir = network.NoCacheDir
	if _, err := r.Add(t.Context(), n, request("c4")); err != nil {
		t.Fatal(err)
	}
	_, err = r.HandOver(t.Context(), func(context.Context, []network.Record) error {
		t.Error("called without a directory to hand over to")
		return nil
	})
	if cni.CodeOf(err) != cni.CodeInvalidConfig {
		t.Errorf("without a cache directory: %v", err)
	}
}

func sameResult(a, b *cni.Result) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, errX := a.Encode(cni.Newest)
	y, errY := b.Encode(cni.Newest)
	return errX == nil && errY == nil && string(x) == string(y)
}
