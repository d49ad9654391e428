package cni_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
)

func TestVersionsParseAndPrint(t *testing.T) {
	t.Parallel()
	var names []string
	for _, v := range cni.Versions() {
		names = append(names, v.String())
		if parsed, err := cni.ParseVersion(v.String()); parsed != v || err != nil {
			t.Errorf("%v parsed as %v, %v", v, parsed, err)
		}
		if b := marshal(t, v); string(b) != `"`+v.String()+`"` {
			t.Errorf("%v marshalled as %s", v, b)
		}
	}
	want := []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	if !slices.IsSorted(cni.Versions()) || cni.Newest != slices.Max(cni.Versions()) {
		t.Errorf("%v are not in order, or %v is not the newest", cni.Versions(), cni.Newest)
	}
	if s := (cni.Newest + 1).String(); s != "Version(8)" {
		t.Errorf("an unpublished version prints as %q", s)
	}
}

// DIS-11
func TestParseVersion(t *testing.T) {
	t.Parallel()
	if v, err := cni.ParseVersion(""); v != cni.V010 || err != nil {
		t.Errorf("absent version is %v, %v", v, err)
	}
	for s, want := range map[string]cni.Code{
		"1.2.3":              cni.CodeIncompatibleVersion,
		"0.5.0":              cni.CodeIncompatibleVersion,
		"0.10.0":             cni.CodeIncompatibleVersion,
		"99999999999999.0.0": cni.CodeIncompatibleVersion,
		"1.0":                cni.CodeDecodingFailure,
		"1.0.0.0":            cni.CodeDecodingFailure,
		"1..0":               cni.CodeDecodingFailure,
		"v1.0.0":             cni.CodeDecodingFailure,
		"1.0.0-rc1":          cni.CodeDecodingFailure,
		"+1.0.0":             cni.CodeDecodingFailure,
		"01.0.0":             cni.CodeDecodingFailure,
		"1.0.0\n":            cni.CodeDecodingFailure,
		" 1.0.0":             cni.CodeDecodingFailure,
		"1.0.\u0660":         cni.CodeDecodingFailure, // a digit, but not a decimal one
	} {
		if v, err := cni.ParseVersion(s); v != 0 || cni.CodeOf(err) != want {
			t.Errorf("%q: %v, %v, want code %d", s, v, err, want)
		}
	}
}

func TestSelectVersionRefusesEmptyEntry(t *testing.T) {
	t.Parallel()
	if v, err := cni.SelectVersion("1.0.0", []string{"1.1.0",
		""}); cni.CodeOf(err) != cni.CodeDecodingFailure {
		t.Errorf("%v, %v", v, err)
	}
}

// The verb × version matrix of the specification.
func TestVersionHas(t *testing.T) {
	t.Parallel()
	since := map[cni.Command]cni.Version{
		cni.Add: cni.V010, cni.Del: cni.V010, cni.VersionCommand: cni.V010, cni.Check: cni.V040,
		cni.GC:     cni.V110,
		cni.Status: cni.V110, "GET": cni.Newest + 1,
	}
	for verb, first := range since {
		for _, v := range cni.Versions() {
			if v.Has(verb) != (v >= first) {
				t.Errorf("%v has %s: %v", v, verb, v.Has(verb))
			}
		}
	}
}

// DIS-08
func TestVersionPrevResultOnDel(t *testing.T) {
	t.Parallel()
	for _, v := range cni.Versions() {
		if v.PrevResultOnDel() != (v >= cni.V040) {
			t.Errorf("%v: %v", v, v.PrevResultOnDel())
		}
	}
}

func TestVersionSameForm(t *testing.T) {
	t.Parallel()
	family := map[cni.Version]string{
		cni.V010: "A", cni.V020: "A", cni.V030: "B", cni.V031: "B", cni.V040: "B", cni.V100: "C",
		cni.V110: "C",
	}
	for _, v := range cni.Versions() {
		for _, w := range cni.Versions() {
			if v.SameForm(w) != (family[v] == family[w]) {
				t.Errorf("%v and %v: %v", v, w, v.SameForm(w))
			}
		}
	}
}

func TestVersionReply(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]cni.VersionReply{
		`{"cniVersion":"0.2.0"}`: {CNIVersion: "0.2.0", Supported: []string{"0.1.0", "0.2.0"}},
		`{"cniVersion":"9.0.0","supportedVersions":["9.0.0","0.4.0"]}` + "\n": {
			CNIVersion: "9.0.0", Supported: []string{"9.0.0", "0.4.0"},
		},
	} {
		r, err := cni.DecodeVersionReply([]byte(in))
		if err != nil {
			t.Errorf("%s: %v", in, err)
		}
		if diff := cmp.Diff(want, r); diff != "" {
			t.Errorf("%s (-want +got):\n%s", in, diff)
		}
	}
}

func TestVersionReplySupports(t *testing.T) {
	t.Parallel()
	r := cni.VersionReply{CNIVersion: "1.1.0", Supported: []string{"0.4.0", "1.0.0"}}
	for _, v := range cni.Versions() {
		if want := v == cni.V040 || v == cni.V100; r.Supports(v) != want {
			t.Errorf("%v: %v", v, r.Supports(v))
		}
	}
	if want := `{"cniVersion":"1.1.0","supportedVersions":["0.4.0","1.0.0"]}`; string(r.Encode()) != want {
		t.Errorf("%s, want %s", r.Encode(), want)
	}
}

// Encode writes the same bytes as encoding/json.
func TestVersionReplyEncode(t *testing.T) {
	t.Parallel()
	for _, r := range []cni.VersionReply{
		{},
		{CNIVersion: "1.1.0", Supported: []string{}},
		{CNIVersion: "1.1.0", Supported: []string{"1.1.0"}},
		{CNIVersion: "1.1.0", Supported: []string{"0.4.0", "1.0.0-rc1"}},
		{CNIVersion: `a"b\c`, Supported: []string{"1.0.0"}},
		{CNIVersion: "1.0.0", Supported: []string{"é\n", ""}},
	} {
		want, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(r.Encode())); diff != "" {
			t.Error(diff)
		}
	}
}
