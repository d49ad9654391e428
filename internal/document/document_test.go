package document_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/document"
)

// Resolve returns the value at a pointer with its position.
func TestResolve(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, content, pointer, want string }{
		{"document", ` {"a": 1}`, "", `{"a": 1}`},
		{"member", `{"a": {"b": [1, "x"]}}`, "/a/b/1", `"x"`},
		{"escaped", `{"a/~b": 1}`, "/a~1~0b", "1"},
		{"different case", `{"A": 1}`, "/a", "1"},
		{"exact before different case", `{"a": 1, "A": 2}`, "/a", "1"},
		{"last of equal keys", `{"a": 1, "A": 2, "a": 3}`, "/a", "3"},
		{"a key that is a number", `{"0": 5}`, "/0", "5"},
		{"missing member", `{"a": {"b": 1}}`, "/a/c/d", `{"b": 1}`},
		{"missing element", `{"a": [1]}`, "/a/1", `[1]`},
	} {
		n := document.Parse([]byte(tt.content)).Resolve(tt.pointer)
		if got := string(n.Raw); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
		if line, column := n.Position(); line != 1 ||
			!strings.HasPrefix(tt.content[column-1:], tt.want) {
			t.Errorf("%s: %d:%d", tt.name, line, column)
		}
	}
}

// Columns count characters.
func TestPosition(t *testing.T) {
	t.Parallel()
	n := document.Parse([]byte("{\n\"ä€\" :\r\n\t[ 1,\n 2]}")).Get("ä€")
	line, column := n.Elements[1].Position()
	if line != 4 || column != 2 {
		t.Errorf("got %d:%d", line, column)
	}
	if line, column = document.At([]byte("é\né"), 3).Position(); line != 2 || column != 1 {
		t.Errorf("position without a value: got %d:%d", line, column)
	}
	if line, column = document.At(nil, 7).Position(); line != 1 || column != 1 {
		t.Errorf("position after the end: got %d:%d", line, column)
	}
}

// Parse returns the values before a syntax error.
func TestParseBroken(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		``:                           "",
		`{"a": "x", "b": [1, {"c"`:   "a b",
		`{"a": "x" "b": 2}`:          "a",
		`{"a": tru, "b": 2}`:         "a",
		`{"a": 1]`:                   "a",
		`{"a": 1}}`:                  "a",
		`{"a": ` + deep(20000) + `,`: "a",
	} {
		var keys []string
		for _, m := range document.Parse([]byte(content)).Members {
			keys = append(keys, m.Key)
		}
		if got := strings.Join(keys, " "); got != want {
			t.Errorf("%.30q: got %q, want %q", content, got, want)
		}
	}
}

func deep(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

// The values equal the output of encoding/json, and all positions lie within the document.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{"a": [1, true, null, "x"], "A": {"b/~": -1.5e3}}`,
		`[[], {}, ""]`, "{\n\"é\": 1,", `{"a": 1} x`, "\xef\xbb\xbf{}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		root := document.Parse(b)
		root.Find(func(n *document.Node) bool {
			if line, column := n.Position(); line < 1 || column < 1 ||
				line > 1+strings.Count(string(b), "\n") {
				t.Errorf("%s at %d:%d", n.Pointer, line, column)
			}
			return false
		})
		if !json.Valid(b) {
			return
		}
		var want, got any
		if json.Unmarshal(b, &want) != nil { // a number that is too large
			return
		}
		got = value(root)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

func value(n *document.Node) any {
	switch n.Kind {
	case document.Object:
		m := map[string]any{}
		for _, member := range n.Members {
			m[member.Key] = value(member.Value)
		}
		return m
	case document.Array:
		list := []any{}
		for _, e := range n.Elements {
			list = append(list, value(e))
		}
		return list
	default:
		var v any
		if json.Unmarshal(n.Raw, &v) != nil {
			return "not JSON"
		}
		return v
	}
}
