package types_test

import (
	"errors"
	"net"
	"reflect"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

// refusing returns its error for every text.
type refusing struct{ Text string }

var errRefused = errors.New("refused")

func (r *refusing) UnmarshalText(b []byte) error { return errRefused }

type Nested struct{ Deep types.UnmarshallableString }

type arguments struct {
	types.CommonArgs
	*Nested
	IP      net.IP
	On      types.UnmarshallableBool
	Name    types.UnmarshallableString
	Pointer *types.UnmarshallableString
	Double  **types.UnmarshallableString
	Plain   string
	Any     interface{}
	Refuses refusing
	hidden  types.UnmarshallableString
}

func text(s string) *types.UnmarshallableString {
	t := types.UnmarshallableString(s)
	return &t
}

func TestLoadArgs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, args string
		want       arguments
	}{
		{"nothing", "", arguments{}},
		{"known keys", "IP=10.0.0.5;Name=web", arguments{IP: net.ParseIP("10.0.0.5"), Name: "web"}},
		{"pointer is set", "Pointer=a", arguments{Pointer: text("a")}},
		{"empty value", "Name=;Pointer=", arguments{Pointer: text("")}},
		{"the last value wins", "Name=a;Name=b", arguments{Name: "b"}},
		{"bool", "On=TRUE", arguments{On: true}},
		{"unknown keys ignored", "IgnoreUnknown=1;A=b;Name=n",
			arguments{CommonArgs: types.CommonArgs{IgnoreUnknown: true}, Name: "n"}},
		{"IgnoreUnknown comes last", "A=b;IgnoreUnknown=True",
			arguments{CommonArgs: types.CommonArgs{IgnoreUnknown: true}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got arguments
			if err := types.LoadArgs(tt.args, &got); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestLoadArgsErrors(t *testing.T) {
	t.Parallel()
	const noText = "does not implement encoding.TextUnmarshaler"
	const pointer = "*types.UnmarshallableString"
	for _, tt := range []struct {
		name, args, want string
		badField         bool
	}{
		{"no equals sign", "Name", `ARGS: invalid pair "Name"`, false},
		{"two equals signs", "Name=a=b", `ARGS: invalid pair "Name=a=b"`, false},
		{"trailing semicolon", "Name=a;", `ARGS: invalid pair ""`, false},
		{"unknown keys, all of them", "A=1;Name=n;B=2", `ARGS: unknown args ["A=1" "B=2"]`, false},
		{"explicitly refused", "A=1;IgnoreUnknown=0", `ARGS: unknown args ["A=1"]`, false},
		{"keys match exactly", "name=a; Name=b", `ARGS: unknown args ["name=a" " Name=b"]`, false},
		{"empty key", "=a", `ARGS: unknown args ["=a"]`, false},
		{"bad value", "IP=x", `ARGS: error parsing value of pair "IP=x": invalid IP address: x`, false},
		{"bad bool", "On=YES",
			`ARGS: error parsing value of pair "On=YES": boolean unmarshal error: invalid input yes`, false},
		{"not text", "Plain=a",
			"ARGS: cannot unmarshal into field 'Plain' - type '*string' " + noText, true},
		{"interface", "Any=a",
			"ARGS: cannot unmarshal into field 'Any' - type '*interface {}' " + noText, true},
		{"double pointer", "Double=a",
			"ARGS: cannot unmarshal into field 'Double' - type '*" + pointer + "' " + noText, true},
		{"unexported field", "hidden=a", "field 'hidden' has no valid interface", true},
		{"field of a nil struct", "Deep=a", "field 'Deep' has no valid interface", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got arguments
			err := types.LoadArgs(tt.args, &got)
			if got.hidden != "" {
				t.Errorf("unexported field: %q", got.hidden)
			}
			if message(err) != tt.want {
				t.Errorf("%v\nwant %s", err, tt.want)
			}
			if errors.As(err, &types.UnmarshalableArgsError{}) != tt.badField {
				t.Errorf("%T", err)
			}
		})
	}
}

func TestLoadArgsWrapsTheErrorOfTheField(t *testing.T) {
	t.Parallel()
	got := arguments{}
	if err := types.LoadArgs("Name=n;Refuses=x;IP=1.1.1.1", &got); !errors.Is(err, errRefused) {
		t.Errorf("%v", err)
	}
	if got.Name != "n" || got.IP != nil {
		t.Errorf("LoadArgs does not stop at the first error: %+v", got)
	}
}

func TestLoadArgsKeepsPointers(t *testing.T) {
	t.Parallel()
	own := text("before")
	got := arguments{Pointer: own, Nested: &Nested{}}
	if err := types.LoadArgs("Pointer=after;Deep=d", &got); err != nil {
		t.Fatal(err)
	}
	if got.Pointer != own || *own != "after" || got.Deep != "d" {
		t.Errorf("%+v, %s", got, *own)
	}
}

// Upstream panics for all of these.
func TestLoadArgsIntoOtherContainers(t *testing.T) {
	t.Parallel()
	const unknown = `ARGS: unknown args ["A=b"]`
	type bare struct{ Name types.UnmarshallableString }
	var b bare
	if err := types.LoadArgs("Name=n", &b); err != nil || b.Name != "n" {
		t.Errorf("struct without IgnoreUnknown: %v, %+v", err, b)
	}
	for name, tt := range map[string]struct {
		container any
		want      string
	}{
		"no IgnoreUnknown":        {&bare{}, unknown},
		"IgnoreUnknown is text":   {&struct{ IgnoreUnknown string }{"true"}, unknown},
		"IgnoreUnknown is nil":    {&struct{ IgnoreUnknown *bool }{}, unknown},
		"IgnoreUnknown is a bool": {&struct{ IgnoreUnknown bool }{true}, ""},
		"struct":                  {bare{}, "not a pointer to a struct"},
		"map":                     {map[string]string{}, "not a pointer to a struct"},
		"nil":                     {nil, "not a pointer to a struct"},
		"nil pointer":             {(*bare)(nil), "not a pointer to a struct"},
	} {
		err := types.LoadArgs("A=b", tt.container)
		if (err == nil) != (tt.want == "") || !strings.HasSuffix(message(err), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

func TestUnmarshallableBool(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]types.UnmarshallableBool{
		"1": true, "true": true, "tRUE": true, "0": false, "false": false, "FALSE": false,
	} {
		got := !want
		if err := got.UnmarshalText([]byte(in)); err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "yes", "2", " true", "T"} {
		var b types.UnmarshallableBool
		want := "boolean unmarshal error: invalid input " + strings.ToLower(in)
		if err := b.UnmarshalText([]byte(in)); message(err) != want {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestUnmarshallableString(t *testing.T) {
	t.Parallel()
	var s types.UnmarshallableString
	if err := s.UnmarshalText([]byte("a b")); err != nil || s != "a b" {
		t.Errorf("%q, %v", s, err)
	}
}

func TestGetKeyField(t *testing.T) {
	t.Parallel()
	a := &arguments{Name: "n", Nested: &Nested{Deep: "d"}}
	for key, want := range map[string]string{"Name": "n", "Deep": "d"} {
		if f := types.GetKeyField(key, reflect.ValueOf(a)); !f.CanSet() || f.String() != want {
			t.Errorf("%s: %v", key, f)
		}
	}
	for name, f := range map[string]reflect.Value{
		"unknown":      types.GetKeyField("name", reflect.ValueOf(a)),
		"nil embedded": types.GetKeyField("Deep", reflect.ValueOf(&arguments{})),
		"struct":       types.GetKeyField("Name", reflect.ValueOf(*a)),
		"nil":          types.GetKeyField("Name", reflect.Value{}),
	} {
		if f.IsValid() {
			t.Errorf("%s: %v", name, f)
		}
	}
}

func FuzzLoadArgs(f *testing.F) {
	for _, s := range []string{"IgnoreUnknown=1;K8S_POD_NAME=web", "IP=::1;On=0;Name=a", "A=b=c;;="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, args string) {
		first, second := arguments{}, arguments{}
		err := types.LoadArgs(args, &first)
		if again := types.LoadArgs(args, &second); message(again) != message(err) {
			t.Errorf("%v, then %v", err, again)
		}
		if !reflect.DeepEqual(first, second) {
			t.Errorf("%+v, then %+v", first, second)
		}
		if err == nil && args != "" && strings.Count(args, "=") != strings.Count(args, ";")+1 {
			t.Errorf("%q is accepted", args)
		}
	})
}
