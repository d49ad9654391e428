package ordered_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/containernetworking/cni/pkg/types/internal/ordered"
)

func TestMarshal(t *testing.T) {
	t.Parallel()
	type object = map[string]any
	for _, tt := range []struct {
		name string
		in   any
		want string
	}{
		{"keys of all objects are sorted", struct{ B, A any }{struct{ D, C int }{1, 2}, []int{}},
			`{"A":[],"B":{"C":2,"D":1}}`},
		{"numbers keep their text", struct{ N uint64 }{12345678901234567890},
			`{"N":12345678901234567890}`},
		{"empty dns is omitted", object{"dns": object{}, "a": 1}, `{"a":1}`},
		{"other dns stays", object{"dns": object{"domain": "d"}}, `{"dns":{"domain":"d"}}`},
		{"dns that is no object stays", object{"dns": []int{}}, `{"dns":[]}`},
		{"only the outermost dns", object{"a": object{"dns": object{}}}, `{"a":{"dns":{}}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if b, err := ordered.Marshal(tt.in); err != nil || string(b) != tt.want {
				t.Errorf("%s, %v, want %s", b, err, tt.want)
			}
		})
	}
	for _, in := range []any{make(chan int), []int{}, "text"} {
		if b, err := ordered.Marshal(in); err == nil {
			t.Errorf("%v becomes %s", in, b)
		}
	}
}

var errWrite = errors.New("disk full")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errWrite }

func TestWriteIndented(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := ordered.WriteIndented(&b, []string{"<a>"}); err != nil ||
		b.String() != "[\n    \"\\u003ca\\u003e\"\n]" {
		t.Errorf("%v, %s", err, &b)
	}
	if err := ordered.WriteIndented(failing{}, 1); !errors.Is(err, errWrite) {
		t.Errorf("error of the writer: %v", err)
	}
	b.Reset()
	if err := ordered.WriteIndented(&b, make(chan int)); err == nil || b.Len() > 0 {
		t.Errorf("%v, %s", err, &b)
	}
}
