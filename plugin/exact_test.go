package plugin_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin"
)

// TestExactKeys: if keys differ only in case, the exact key counts at every depth, wherever it
// stands; without an exact key any spelling counts, as in encoding/json.
func TestExactKeys(t *testing.T) {
	t.Parallel()
	type conf struct {
		Mode  string `json:"mode"`
		Boxes []struct {
			Size int `json:"size"`
		} `json:"boxes"`
		Routes []cni.Route       `json:"routes"`
		Free   map[string]string `json:"free"`
		Raw    json.RawMessage   `json:"raw"`
	}
	for _, row := range []struct{ name, document, want string }{
		{"exact first", `{"mode":"a","Mode":"b"}`, `{"mode":"a"}`},
		{"exact last", `{"Mode":"b","MODE":"c","mode":"a"}`, `{"mode":"a"}`},
		{"no exact key", `{"MODE":"a"}`, `{"mode":"a"}`},
		{"folded", `{"mode":"a","boxes":[{"size":1}],"boxeſ":[]}`,
			`{"mode":"a","boxes":[{"size":1}]}`},
		{"escaped", `{"mode":"a","\u004dode":"b"}`, `{"mode":"a"}`},
		{"in a list", `{"boxes":[{"size":1,"Size":2},{"Size":3}]}`,
			`{"boxes":[{"size":1},{"size":3}]}`},
		{"in a type with its own decoder", `{"routes":[{"dst":"10.0.0.0/8","Dst":"11.0.0.0/8"}]}`,
			`{"routes":[{"dst":"10.0.0.0/8"}]}`},
		{"keys of a map", `{"mode":"a","free":{"x":"1","X":"2"}}`,
			`{"mode":"a","free":{"x":"1","X":"2"}}`},
		{"raw value", `{"raw":{"x":1,"X":2}}`, `{"raw":{"x":1,"X":2}}`},
		{"text that looks like a key", `{"mode":"a\":\"Mode\":","Mode":"b"}`,
			`{"mode":"a\":\"Mode\":"}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var got, want conf
			if err := plugin.Decode([]byte(row.document), &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(row.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b cni.Route) bool {
				return a.Dst == b.Dst
			})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// FuzzDecode: a document that encoding/json accepts is accepted, and the other way round.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"mode":"a","Mode":"b"}`, `{"mode":{"mode":1,"MODE":"`, `null`, `[`,
		`{"boxes":[null,{"size":1,"siZe":2}]}`, "{\"\xff\":1}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		type conf struct {
			Mode  any `json:"mode"`
			Boxes []struct {
				Size any `json:"size"`
			} `json:"boxes"`
		}
		var got, want conf
		switch decoded, plain := plugin.Decode(b, &got), json.Unmarshal(b, &want); {
		case plain == nil && decoded != nil:
			t.Errorf("Decode refuses %q: %v", b, decoded)
		case plain != nil && decoded == nil && !json.Valid(b):
			t.Errorf("Decode accepts %q", b)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	document := []byte(`{"cniVersion":"1.0.0","name":"pods","type":"bridge","bridge":"cni0",
		"isGateway":true,"ipMasq":true,"hairpinMode":true,"ipam":{"type":"host-local","ranges":
		[[{"subnet":"10.88.0.0/16","gateway":"10.88.0.1"}]],"routes":[{"dst":"0.0.0.0/0"}]},
		"runtimeConfig":{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}}`)
	var conf plugin.Common
	for b.Loop() {
		if err := plugin.Decode(document, &conf); err != nil {
			b.Fatal(err)
		}
	}
}
