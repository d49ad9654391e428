package invoke

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
)

// Every output of a failed plugin becomes an error with a message.
func FuzzFailure(f *testing.F) {
	for _, stdout := range []string{"", "{}", "null", `{"code":7}`, `{"code":-1,"msg":"x"}`,
		`{"code":11,"msg":"busy","details":"d"}`, `{"cniVersion":"1.0.0","ips":[]}`, "text",
		`{"msg":1}`} {
		f.Add([]byte(stdout), "some text")
	}
	f.Fuzz(func(t *testing.T, stdout []byte, stderr string) {
		object, quoted := failure{said: stderr, Error: &invoke.Error{
			Err: cni.Errorf(cni.CodeInternal, "x"), Status: "exit status 1", Stdout: stdout}}.object()
		if object.Msg == "" || quoted && stderr == "" {
			t.Errorf("%q: %#v", stdout, object)
		}
	})
}

// A result keeps its version, or gets the version of the configuration, and is an object.
func FuzzWithVersion(f *testing.F) {
	for _, stdout := range []string{"", "{}", "null", "[]", `{"cniVersion":""}`, `{"cniVersion":4}`,
		`{"cniVersion":"1.0.0","ips":[]}`, `{"CNIVersion":"1.0.0"}`} {
		f.Add([]byte(stdout), []byte(`{"cniVersion":"0.4.0"}`))
	}
	f.Fuzz(func(t *testing.T, stdout, netconf []byte) {
		version, result, err := withVersion(stdout, netconf)
		if err != nil {
			return
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(result, &object); err != nil || object == nil || version == "" {
			t.Fatalf("%q: version %q, result %q, %v", stdout, version, result, err)
		}
		var own string
		if err := json.Unmarshal(object["cniVersion"], &own); err != nil || own != version {
			t.Errorf("%q: version %q, result %q, %v", stdout, version, result, err)
		}
		again, same, err := withVersion(result, netconf)
		if err != nil || again != version || !bytes.Equal(same, result) {
			t.Errorf("%q becomes %q and %q, %v", stdout, result, same, err)
		}
	})
}
