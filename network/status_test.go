package network_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// RT-STA-03, REQ-14, ENV-08: STATUS calls the plugins in their order, without data of an
// attachment.
func TestStatus(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}, "second": {}})
	if err := r.Status(t.Context(), list(t, "1.1.0", "red",
		`{"type":"first","runtimeConfig":{"mac":"x"}}`, "second")); err != nil {
		t.Fatal(err)
	}
	log := r.entries()
	if got := callsOf(log); got != "STATUS first, STATUS second" {
		t.Errorf("calls %q", got)
	}
	for _, e := range log {
		if diff := cmp.Diff(cni.Env{Command: cni.Status, Path: r.plugins}, e.Env); diff != "" {
			t.Errorf("%s: %s", e, diff)
		}
		if want := `{"cniVersion":"1.1.0","name":"red","type":"` + e.Plugin +
			`"}`; string(e.Stdin) != want {
			t.Errorf("%s: got %s, want %s", e, e.Stdin, want)
		}
	}
}

// RT-STA-01, RT-STA-02, RT-STA-04: results of STATUS.
func TestStatusOutcome(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {cni.Status: fails(cni.CodeNotAvailable,
		"no addresses")}, "second": {}})
	for _, tt := range []struct {
		name        string
		n           *config.Network
		want, calls string
	}{
		{"the first error ends it", list(t, "1.1.0", "red", "second", "first", "second"),
			"50 network red: first STATUS: no addresses", "STATUS second, STATUS first"},
		{"below 1.1.0 no plugin is called", list(t, "1.0.0", "red", "first"), "success", ""},
		{"missing binary", list(t, "1.1.0", "red", "absent"),
			"7 network red: plugin \"absent\" not found in " + r.plugins +
				": install the plugin there or add its directory to the plugin directories (CNI_PATH)", ""},
		{"no network", nil, "7 no network given", ""},
	} {
		if got := describe(r.Status(t.Context(), tt.n)); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
		r.wantCalls(tt.calls)
	}
	r.add(list(t, "1.1.0", "red", "first"))
}

// STATUS and readers of records wait neither for an ADD that hangs, nor for a GC that waits
// for it.
func TestStatusDuringAdd(t *testing.T) {
	t.Parallel()
	h := newHang(t, cni.Add)
	n := list(t, "1.1.0", "red", "slow")
	added := h.add(n)
	collected := h.gc(n)
	if err := h.Status(t.Context(), n); err != nil {
		t.Error(err)
	}
	if _, err := h.Versions(t.Context(), "slow"); err != nil {
		t.Error(err)
	}
	if records, err := h.List(); err != nil || len(records) != 1 ||
		records[0].State != network.Adding {
		t.Errorf("records %v, %v", records, err)
	}
	if record, err := h.Record(request("c1").Attachment("red")); err != nil ||
		record.State != network.Adding {
		t.Errorf("record %v, %v", record, err)
	}
	close(h.leave)
	if err := errors.Join(<-added, <-collected); err != nil {
		t.Error(err)
	}
}

// RT-VRS-02, RT-VRS-03, RT-VRS-04, REQ-16, VER-14, VER-15: the request of VERSION and the decoding
// of answers.
func TestVersions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		reply act
		want  string
	}{
		{"an answer, unknown versions included",
			act{Stdout: `{"cniVersion":"0.4.0","supportedVersions":["0.4.0","2.0.0"]}`},
			"0.4.0 2.0.0"},
		{"0.2.0 without a list", act{Stdout: `{"cniVersion":"0.2.0"}`}, "0.1.0 0.2.0"},
		{"later without a list", act{Stdout: `{"cniVersion":"0.4.0"}`},
			"6 first VERSION: VERSION reply has no supportedVersions"},
		{"unknown command, by code", fails(cni.CodeInvalidEnvironment, "what?"), "0.1.0"},
		{"unknown command, by the message of old plugins",
			fails(100, "unknown CNI_COMMAND: VERSION"), "0.1.0"},
		{"another failure", fails(cni.CodeIOFailure, "disk"), "5 first VERSION: disk"},
		{"no error object", act{Exit: 2},
			"999 first VERSION: exit status 2 without a usable error object"},
	} {
		r := newRig(t, map[string]script{"first": {cni.VersionCommand: tt.reply}})
		v, err := r.Versions(t.Context(), "first")
		got := strings.Join(v.Supported, " ")
		if err != nil {
			got = describe(err)
		}
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
		log := r.entries()
		want := cni.Env{Command: cni.VersionCommand, Netns: "dummy", IfName: "dummy",
			Path: r.plugins}
		if len(log) != 1 || log[0].Env != want || string(log[0].Stdin) != `{"cniVersion":"1.1.0"}` {
			t.Errorf("%s: log %v", tt.name, log)
		}
	}
	r := newRig(t, nil)
	if _, err := r.Versions(t.Context(), "absent"); cni.CodeOf(err) != cni.CodeInvalidConfig {
		t.Errorf("missing binary: %s", describe(err))
	}
}

// VER-16, ERR-11, CFG-32: Validate returns all problems, each with its code, or the declared
// capabilities.
func TestValidate(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]script{"first": {}, "second": {},
		"old": {cni.VersionCommand: {Stdout: `{"cniVersion":"0.4.0","supportedVersions":["0.3.1","0.4.0"]}`}}})
	capabilities, err := r.Validate(t.Context(), list(t, "1.1.0", "red",
		`{"type":"first","capabilities":{"portMappings":true,"mac":true,"ips":false}}`,
		`{"type":"second","capabilities":{"mac":true}}`))
	if err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"mac", "portMappings"}, capabilities); diff != "" {
		t.Error(diff)
	}
	r.wantCalls("VERSION first, VERSION second")

	_, err = r.Validate(t.Context(), list(t, "1.1.0", "red", "absent", "old", "first"))
	want := "7 network red: plugin \"absent\" not found in " + r.plugins +
		": install the plugin there or add its directory to the plugin directories (CNI_PATH)\n" +
		"plugin old does not support CNI version 1.1.0: supported: 0.3.1, 0.4.0"
	if got := describe(err); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := codes(err),
		[]cni.Code{cni.CodeInvalidConfig, cni.CodeIncompatibleVersion}; !slices.Equal(got, want) {
		t.Errorf("codes %v, want %v", got, want)
	}
	if _, err := r.Validate(t.Context(), nil); cni.CodeOf(err) != cni.CodeInvalidConfig {
		t.Errorf("no network: %s", describe(err))
	}
}
