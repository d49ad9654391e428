package cni_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance"
)

// CFG-01, CFG-02, CFG-03, CFG-06, CFG-07, CFG-08, CFG-09, CFG-10, CFG-11, CFG-20, CFG-30, CFG-31,
// CFG-32, CFG-36, CFG-38, VER-01, VER-08, VER-09: each vector of these kinds is accepted, or
// refused with one of its codes. ERR-12, RES-09, RES-10, RES-18, DIS-15, DIS-16, DIS-21: documents
// that cannot be decoded and invalid documents have different codes.
func TestVectors(t *testing.T) {
	t.Parallel()
	judges := map[conformance.Kind]func(v conformance.Vector) error{
		conformance.KindConflist: func(v conformance.Vector) error { _, err := cni.ParseList(v.Data); return err },
		conformance.KindConf:     func(v conformance.Vector) error { _, err := cni.ParseSingle(v.Data); return err },
		conformance.KindDropin:   func(v conformance.Vector) error { _, err := cni.ParsePlugin(v.Data); return err },
		conformance.KindResult:   func(v conformance.Vector) error { _, err := cni.DecodeResultStrict(v.Data, callVersion(v)); return err },
		conformance.KindError:    func(v conformance.Vector) error { _, err := cni.DecodeErrorStrict(v.Data); return err },
		conformance.KindVersion:  func(v conformance.Vector) error { _, err := cni.DecodeVersionReply(v.Data); return err },
	}
	judged := map[conformance.Kind]int{}
	for _, v := range vectors(t) {
		judge := judges[v.Kind]
		if verb, ok := v.Kind.Verb(); ok {
			judge = func(v conformance.Vector) error { return judgeRequest(verb, v.Data) }
		}
		// the plugin decides that
		if judge == nil || v.File == "request-check-invalid-no-prevresult-code7.json" {
			continue
		}
		judged[v.Kind]++
		t.Run(v.File, func(t *testing.T) {
			t.Parallel()
			checkVerdict(t, v.Verdict, v.Codes, judge(v))
		})
	}
	for kind := range judges {
		if judged[kind] == 0 {
			t.Errorf("no vector of kind %s", kind)
		}
	}
}

// callVersion returns the version of the ADD call with the result v.
func callVersion(v conformance.Vector) cni.Version {
	if version, err := cni.ParseVersion(v.Version); err == nil {
		return version
	}
	return cni.Newest
}

// judgeRequest validates standard input as a plugin does before it reads its own keys.
func judgeRequest(verb cni.Command, stdin []byte) error {
	if verb == cni.VersionCommand {
		return nil // VERSION needs no request
	}
	name, version, err := cni.DecodeHeader(stdin)
	if err != nil {
		return err
	}
	if err := cni.ValidateNetworkName(name); err != nil {
		return err
	}
	v, err := cni.ParseVersion(version)
	if err != nil {
		return err
	}
	if !v.Has(verb) {
		return cni.Errorf(cni.CodeIncompatibleVersion, "%v has no %s", v, verb)
	}
	if verb == cni.GC {
		_, err := cni.DecodeValidAttachments(stdin)
		return err
	}
	var body struct {
		PrevResult json.RawMessage `json:"prevResult"`
	}
	if err := json.Unmarshal(stdin, &body); err != nil {
		return err
	}
	if body.PrevResult == nil {
		return nil
	}
	own, err := cni.ResultVersion(body.PrevResult, v)
	if err != nil {
		return err
	}
	if !own.SameForm(v) {
		return cni.Errorf(cni.CodeInvalidConfig, "prevResult is of %v", own)
	}
	_, err = cni.DecodeResult(body.PrevResult, v)
	return err
}

// CFG-03, ENV-04, ENV-05, ENV-06
func TestIdentifierVectors(t *testing.T) {
	t.Parallel()
	validate := map[conformance.Field]func(string) error{
		conformance.FieldContainerID: cni.ValidateContainerID,
		conformance.FieldNetworkName: cni.ValidateNetworkName,
		conformance.FieldIfName:      cni.ValidateIfName,
	}
	for _, r := range rows(t, conformance.Identifiers) {
		t.Run(fmt.Sprintf("%s %.20q", r.Field, r.Value), func(t *testing.T) {
			t.Parallel()
			checkVerdict(t, r.Verdict, r.Codes, validate[r.Field](r.Value))
		})
	}
}

// VER-05, VER-07, VER-08, VER-09, DIS-22.
func TestVersionSelectionVectors(t *testing.T) {
	t.Parallel()
	for i, r := range rows(t, conformance.VersionSelections) {
		t.Run(fmt.Sprintf("%d %s %s", i, r.CNIVersion, r.CNIVersions), func(t *testing.T) {
			t.Parallel()
			list := map[string]any{"name": "n", "plugins": []any{map[string]string{"type": "p"}}}
			single := map[string]any{"name": "n", "type": "p"}
			for key, raw := range map[string]json.RawMessage{"cniVersion": r.CNIVersion,
				"cniVersions": r.CNIVersions} {
				if raw != nil {
					list[key], single[key] = raw, raw
				}
			}
			for form, parsed := range map[string]struct {
				parse  func([]byte) (*cni.List, error)
				config any
			}{"list": {cni.ParseList, list}, "single": {cni.ParseSingle, single}} {
				l, err := parsed.parse(marshal(t, parsed.config))
				if r.Want == "" {
					checkVerdict(t, conformance.Invalid, r.Codes, err)
				} else if err != nil || l.Version.String() != r.Want {
					t.Errorf("%s: %+v, %v, want version %s", form, l, err, r.Want)
				}
			}
		})
	}
}

// CONV-22, CONV-23
func TestArgsVectors(t *testing.T) {
	t.Parallel()
	for _, r := range rows(t, conformance.CNIArgs) {
		t.Run(fmt.Sprintf("%q", r.Args), func(t *testing.T) {
			t.Parallel()
			args, err := cni.ParseArgs(r.Args)
			if err == nil {
				err = args.CheckKnown(r.Known...)
			}
			checkVerdict(t, r.Verdict, []cni.Code{cni.CodeInvalidEnvironment}, err)
		})
	}
}

// DIS-05, DIS-06, DIS-07, DIS-12: requests hold exactly the expected values.
func TestDerivedRequestVectors(t *testing.T) {
	t.Parallel()
	for _, r := range rows(t, conformance.DerivedRequests) {
		t.Run(r.ID, func(t *testing.T) {
			t.Parallel()
			var list map[string]any
			if err := json.Unmarshal(r.List, &list); err != nil {
				t.Fatal(err)
			}
			list["plugins"] = []json.RawMessage{r.Plugin}
			l, err := cni.ParseList(marshal(t, list))
			if err != nil {
				t.Fatal(err)
			}
			data := cni.RequestData{Capabilities: r.Capabilities, Valid: r.Valid}
			if r.PrevResult != nil {
				if data.PrevResult, err = cni.DecodeResult(r.PrevResult, l.Version); err != nil {
					t.Fatal(err)
				}
			}
			request, err := l.Request(r.Verb, 0, data)
			if err != nil {
				t.Fatal(err)
			}
			want, got := object(t, r.Want), object(t, request)
			// also sent, for the text of the tag spec-v1.1.0
			if slices.Contains(r.Upstream, "cni.dev/attachments") {
				want["cni.dev/attachments"] = want["cni.dev/valid-attachments"]
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func checkVerdict(t *testing.T, verdict conformance.Verdict, codes []cni.Code, err error) {
	t.Helper()
	switch {
	case verdict == conformance.Valid && err != nil:
		t.Errorf("refused: %v", err)
	case verdict == conformance.Invalid && err == nil:
		t.Errorf("accepted, want codes %v", codes)
	case verdict == conformance.Invalid && codes != nil && !slices.Contains(codes, cni.CodeOf(err)):
		t.Errorf("code %d, want one of %v: %v", cni.CodeOf(err), codes, err)
	}
}

func vectors(t testing.TB) []conformance.Vector {
	t.Helper()
	return rows(t, conformance.Vectors)
}

// vector returns the content of an example.
func vector(t testing.TB, file string) []byte {
	t.Helper()
	all := vectors(t)
	i := slices.IndexFunc(all, func(v conformance.Vector) bool { return v.File == file })
	if i < 0 {
		t.Fatalf("no vector %s", file)
	}
	return all[i].Data
}

func rows[T any](t testing.TB, read func() ([]T, error)) []T {
	t.Helper()
	all, err := read()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// object decodes a JSON object with exact numbers.
func object(t testing.TB, b []byte) map[string]any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return m
}
