package network_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// RT-CHK-04, RT-CHK-06, REQ-03, ENV-13: CHECK runs in list order, with the parameters of ADD and
// the final result for all plugins.
func TestCheck(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}, "second": {}})
	q := request("c1")
	q.Args = cni.Args{{Key: "A", Value: "1"}}
	q.Capabilities = map[string]json.RawMessage{"mac": json.RawMessage(`"02:00:00:00:00:01"`)}
	n := list(t, "0.4.0", "red", `{"type":"first","capabilities":{"mac":true}}`, "second")
	if _, err := r.Add(t.Context(), n, q); err != nil {
		t.Fatal(err)
	}
	added := r.entries()
	if err := r.Check(t.Context(), q.Attachment("red"), nil); err != nil {
		t.Fatal(err)
	}
	checked := r.entries()
	if got := callsOf(checked); got != "CHECK first, CHECK second" {
		t.Fatalf("calls %q", got)
	}
	for i, e := range checked {
		want := added[i].Env
		want.Command = cni.Check
		if diff := cmp.Diff(want, e.Env); diff != "" {
			t.Errorf("%s: %s", e, diff)
		}
	}
	const prev = `"prevResult":{"cniVersion":"0.4.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/absent"}],` +
		`"ips":[{"version":"4","interface":0,"address":"10.1.2.3/24"}],"dns":{"search":["first","second"]}}`
	got := []string{string(checked[0].Stdin), string(checked[1].Stdin)}
	want := []string{
		`{"cniVersion":"0.4.0","name":"red",` + prev +
			`,"runtimeConfig":{"mac":"02:00:00:00:00:01"},"type":"first"}`,
		`{"cniVersion":"0.4.0","name":"red",` + prev + `,"type":"second"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// RT-CHK-05: CHECK stops at the first error.
func TestCheckFails(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {},
		"second": {cni.Check: fails(142, "address is gone")}, "third": {}})
	a := r.add(list(t, "1.1.0", "red", "first", "second", "third"))
	if got, want := describe(r.Check(t.Context(), a, nil)),
		"142 red/c1/eth0: second CHECK: address is gone"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	r.wantCalls("CHECK first, CHECK second")
}

// RT-CHK-01, RT-CHK-02, RT-CHK-03, RT-CHK-08, CFG-08, DIS-13, DIS-14, R-13: CHECK calls no plugin
// in these cases.
func TestCheckGates(t *testing.T) {
	t.Parallel()
	off := func(t *testing.T, version, value string) *config.Network {
		return listWith(t, version, "red", `"disableCheck":`+value, "first")
	}
	on := func(t *testing.T, version string) *config.Network {
		return list(t, version, "red", "first")
	}
	const tooOld = "1 red/c1/eth0: CNI version 0.3.1 has no CHECK"
	for _, tt := range []struct {
		name         string
		added, given *config.Network // nil: none
		damage       [2]string
		want         string
	}{
		{"0.3.1", on(t, "0.3.1"), nil, [2]string{}, tooOld},
		{"0.3.1 before anything else", off(t, "0.3.1", "true"), nil, [2]string{}, tooOld},
		{"0.3.1 that is not attached", nil, on(t, "0.3.1"), [2]string{}, tooOld},
		{"disabled", off(t, "1.1.0", "true"), nil, [2]string{}, "success"},
		{"disabled as text", off(t, "0.4.0", `"True"`), nil, [2]string{}, "success"},
		{"disabled since", on(t, "1.1.0"), off(t, "1.1.0", "true"), [2]string{}, "success"},
		{"disabled and not attached", nil, off(t, "1.1.0", "true"), [2]string{}, "success"},
		{"not attached", nil, on(t, "1.1.0"), [2]string{},
			"3 red/c1/eth0: no record of this attachment"},
		{"not attached and nothing given", nil, nil, [2]string{},
			"3 red/c1/eth0: no record of this attachment"},
		{"interrupted ADD", on(t, "1.1.0"), nil, [2]string{`"attached"`, `"adding"`},
			"3 red/c1/eth0: ADD incomplete: run DEL"},
		{"from an earlier boot", on(t, "1.1.0"), nil, [2]string{`"bootID":"`, `"bootID":"x`},
			"3 red/c1/eth0: attached before the last boot: run DEL"},
		{"unreadable result", on(t, "1.1.0"), nil, [2]string{`"address":"`, `"address":"x`},
			"6 red/c1/eth0: record: result: "}, // and the message of the decoder
	} {
		r := newRig(t, map[string]script{"first": {}})
		a := request("c1").Attachment("red")
		if tt.added != nil {
			r.add(tt.added)
		}
		if tt.damage[0] != "" {
			editRecord(t, r.Client, a, tt.damage[0], tt.damage[1])
		}
		if got := describe(r.Check(t.Context(), a, tt.given)); got != tt.want &&
			!(strings.HasSuffix(tt.want, " ") && strings.HasPrefix(got, tt.want)) {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, got, tt.want)
		}
		r.wantCalls("")
	}
}

// RT-CHK-03: CHECK after DEL finds no attachment.
func TestCheckAfterDel(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}})
	a := r.add(list(t, "1.1.0", "red", "first"))
	if err := r.Del(t.Context(), a, network.Fallback{}); err != nil {
		t.Fatal(err)
	}
	if err := r.Check(t.Context(), a, nil); !errors.Is(err, network.ErrNoRecord) {
		t.Errorf("got %s", describe(err))
	}
	r.wantCalls("DEL first")
}
