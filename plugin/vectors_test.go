package plugin_test

import (
	"context"
	"slices"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
)

// TestRequestVectors runs every request of the conformance vectors through a plugin that needs
// prevResult on CHECK.
func TestRequestVectors(t *testing.T) {
	t.Parallel()
	d := define(plugin.Info{Name: "demo"},
		verbs(func(_ context.Context, c *call) (*cni.Result, error) {
			if c.Command == cni.Check && c.Prev == nil {
				return nil, cni.Errorf(cni.CodeInvalidConfig, "prevResult is missing")
			}
			return result, nil
		}))
	vectors, err := conformance.Vectors()
	if err != nil {
		t.Fatal(err)
	}
	requests := 0
	for _, v := range vectors {
		verb, ok := v.Kind.Verb()
		if !ok {
			continue
		}
		requests++
		t.Run(v.File, func(t *testing.T) {
			t.Parallel()
			out, err := d.Serve(t.Context(), environment(verb), v.Data, invoke.Fake{})
			printed, ok := d.Handler(invoke.Fake{})(t.Context(),
				invoke.Call{Env: environment(verb), Stdin: v.Data})
			if v.Verdict == conformance.Invalid {
				if code := cni.CodeOf(err); !slices.Contains(v.Codes, code) {
					t.Errorf("code %d, want one of %v: %v", code, v.Codes, err)
				}
				if object, decodeErr := cni.DecodeErrorStrict(printed); ok || decodeErr != nil ||
					object.Code != cni.CodeOf(err) {
					t.Errorf("handler printed %s, success %t (%v)", printed, ok, decodeErr)
				}
				return
			}
			if err != nil || !ok || string(out) != string(printed) {
				t.Fatalf("error %v; handler printed %s, success %t", err, printed, ok)
			}
			switch verb {
			case cni.Add:
				checkResult(t, out, v.Data)
			case cni.VersionCommand:
				if _, err := cni.DecodeVersionReply(out); err != nil {
					t.Error(err)
				}
			default:
				if len(out) > 0 {
					t.Errorf("printed %s, want nothing", out)
				}
			}
		})
	}
	if requests == 0 {
		t.Error("the vectors contain no requests")
	}
}

// checkResult checks that out is a result in the version of the request.
func checkResult(t *testing.T, out, request []byte) {
	t.Helper()
	_, text, err := cni.DecodeHeader(request)
	if err != nil {
		t.Fatal(err)
	}
	want, err := cni.ParseVersion(text)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cni.DecodeResultStrict(out, 0); err != nil {
		t.Error(err)
	}
	if got, err := cni.ResultVersion(out, 0); err != nil || got != want {
		t.Errorf("result has version %v, want %v (%v)", got, want, err)
	}
}
