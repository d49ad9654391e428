package plugin

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
)

type keyed struct {
	*Outer
	Args struct {
		CNI Outer `json:"cni"`
	} `json:"args"`
	List  []Outer        `json:"list"`
	Map   map[string]int `json:"map"`
	Named Outer          `json:"Inner"`
}

type Outer struct {
	Inner
	MTU int `json:"mtu"`
}

type Inner struct {
	Sub struct {
		Flag bool `json:"flag"`
	} `json:"sub"`
	Plain int
}

// TestInKeys checks that an error names the keys of the configuration, without the embedded Go
// structs.
func TestInKeys(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"mtu":"x"}`:                             "mtu",
		`{"sub":{"flag":1}}`:                      "sub.flag",
		`{"sub":1}`:                               "sub",
		`{"Plain":"x"}`:                           "Plain",
		`{"args":{"cni":{"sub":{"flag":1}}}}`:     "args.cni.sub.flag",
		`{"list":[{"mtu":1},{"sub":{"flag":1}}]}`: "list.sub.flag",
		`{"map":{"Inner":"x"}}`:                   "map",
		`{"Inner":{"mtu":"x"}}`:                   "Inner.mtu",
		`[]`:                                      "",
	} {
		var into keyed
		err := inKeys(json.Unmarshal([]byte(text), &into), reflect.TypeFor[keyed]())
		var wrong *json.UnmarshalTypeError
		if !errors.As(err, &wrong) {
			t.Errorf("%s: %v", text, err)
		} else if wrong.Field != want {
			t.Errorf("%s: names %q, want %q", text, wrong.Field, want)
		}
	}
}
