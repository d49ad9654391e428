package network_test

import (
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// A network that lacks a required plugin refuses ADD and STATUS, but not DEL.
func TestPolicy(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}, "mesh": {}})
	bare := list(t, "1.1.0", "red", "first")
	a := r.add(bare)
	r.Policy = &config.Policy{RequiredPlugins: map[string][]string{"*": {"first"},
		"red": {"mesh", "second"}}, Source: "/etc/p"}

	const lacks = "network red lacks the plugin mesh and second, which /etc/p requires: its plugins are: first"
	_, err := r.Add(t.Context(), bare, request("c2"))
	if got, want := describe(err), "7 red/c2/eth0: "+lacks; got != want {
		t.Errorf("ADD: got  %s\nwant %s", got, want)
	}
	if got, want := describe(r.Status(t.Context(), bare)), "50 "+lacks; got != want {
		t.Errorf("STATUS: got  %s\nwant %s", got, want)
	}
	if got := describe(r.Status(t.Context(),
		list(t, "0.4.0", "red", "first"))); !strings.HasPrefix(got, "50 ") {
		t.Errorf("STATUS below 1.1.0: %s", got)
	}
	r.wantCalls("")
	for verb, err := range map[string]error{
		"CHECK": r.Check(t.Context(), a, bare),
		"GC": r.GC(t.Context(), bare,
			network.Keep{Attachments: []cni.ValidAttachment{{ContainerID: "c1", IfName: "eth0"}}}),
		"DEL": r.Del(t.Context(), a, network.Fallback{Network: bare}),
	} {
		if err != nil {
			t.Errorf("%s: %s", verb, describe(err))
		}
	}
	r.entries()

	for _, other := range []*config.Network{list(t, "1.1.0", "blue", "first"),
		list(t, "1.1.0", "green", "mesh", "first")} {
		if _, err := r.Add(t.Context(), other, request("c3")); err != nil {
			t.Errorf("%s: %s", other.Name, describe(err))
		}
	}
	delete(r.Policy.RequiredPlugins, "red")
	r.add(bare)
}
