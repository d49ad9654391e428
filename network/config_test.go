package network_test

import (
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// VER-04, R-14: a network without a version has version 0.1.0 in requests and in the record.
func TestNoVersion(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	n, err := config.LoadBytes([]byte(`{"name":"red","plugins":[{"type":"first"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Add(t.Context(), n, request("c1")); err != nil {
		t.Fatal(err)
	}
	a := request("c1").Attachment("red")
	record, err := r.Record(a)
	if err != nil || record.List.Version != cni.V010 {
		t.Errorf("recorded %+v, %v", record, err)
	}
	if err := r.Del(t.Context(), a, network.Fallback{}); err != nil {
		t.Error(err)
	}
	for _, e := range r.entries() {
		if want := `{"cniVersion":"0.1.0","name":"red","type":"first"}`; string(e.Stdin) != want {
			t.Errorf("%s: got %s, want %s", e, e.Stdin, want)
		}
	}
}

// CFG-08, R-13: disableCheck can be text in any letter case.
func TestDisableCheckAsText(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	for value, calls := range map[string]string{`"true"`: "", `"TRUE"`: "", `true`: "",
		`"false"`: "CHECK first", `false`: "CHECK first"} {
		n := listWith(t, "0.4.0", "red", `"disableCheck":`+value, "first")
		a := r.add(n)
		if err := r.Check(t.Context(), a, nil); err != nil {
			t.Errorf("%s: %v", value, err)
		}
		r.wantCalls(calls)
		if err := r.Del(t.Context(), a, network.Fallback{}); err != nil {
			t.Error(err)
		}
		r.entries()
	}
	if _, err := config.LoadBytes([]byte(`{"cniVersion":"0.4.0","name":"red","disableCheck":"maybe","plugins":[{"type":"x"}]}`)); err == nil {
		t.Error("maybe is accepted")
	}
}
