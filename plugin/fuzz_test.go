package plugin_test

import (
	"encoding/json"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
)

// For any input, a plugin prints at most one document: a result in the version of the request, or
// an error object with an assigned code. A DEL with a valid name and version succeeds.
func FuzzServe(f *testing.F) {
	vectors, err := conformance.Vectors()
	if err != nil {
		f.Fatal(err)
	}
	verbs := []cni.Command{cni.Add, cni.Del, cni.Check, cni.Status, cni.GC, cni.VersionCommand}
	for _, v := range vectors {
		if _, ok := v.Kind.Verb(); ok {
			for verb := range verbs {
				f.Add(v.Data, uint8(verb), "IP=10.0.0.2")
			}
		}
	}
	f.Add([]byte(complete), uint8(0), "MAC=02:00:00:00:00:01;IgnoreUnknown=1")
	f.Fuzz(func(t *testing.T, stdin []byte, verb uint8, args string) {
		env := environment(verbs[int(verb)%len(verbs)])
		env.Args = args
		d := new(recorder).define(plugin.Info{Args: []string{"MAC", "IP"}})
		out, ok := d.Handler(invoke.Fake{})(t.Context(), invoke.Call{Env: env, Stdin: stdin})
		switch {
		case !ok:
			e, err := cni.DecodeErrorStrict(out)
			if err != nil {
				t.Fatalf("%s: %v", out, err)
			}
			judgeRefusal(t, env.Command, stdin, e)
		case env.Command == cni.Add:
			checkResult(t, out, stdin)
		case env.Command == cni.VersionCommand:
			if _, err := cni.DecodeVersionReply(out); err != nil {
				t.Error(err)
			}
		case len(out) > 0:
			t.Errorf("%s printed %s", env.Command, out)
		}
	})
}

// judgeRefusal fails the test if the plugin had no reason to refuse the request.
func judgeRefusal(t *testing.T, verb cni.Command, stdin []byte, e *cni.Error) {
	t.Helper()
	name, version, err := cni.DecodeHeader(stdin)
	v, versionErr := cni.ParseVersion(version)
	header := err == nil && cni.ValidateNetworkName(name) == nil && versionErr == nil && v.Has(verb)
	if header && verb == cni.Del {
		t.Errorf("DEL is refused: %v", e)
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(stdin, &object) != nil && e.Code != cni.CodeDecodingFailure {
		t.Errorf("%s: code %d for a document that is not an object: %v", stdin, e.Code, e)
	}
}
