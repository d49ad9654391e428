package script_test

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

func snapshot(settings ...map[string]string) *script.Snapshot {
	s := &script.Snapshot{Host: &host.Host{Version: host.Version}, Files: map[string]script.FileState{"/run/x": {Mode: "-rw-r--r--"}}}
	for i, m := range settings {
		s.Host.Namespaces = append(s.Host.Namespaces, host.Namespace{ID: string(rune('a' + i)), Settings: m})
	}
	return s
}

func example() *script.Recording {
	call := func(name string) script.Step {
		return script.Step{Calls: []script.Call{{
			Name: name, Path: "/run/p", Args: []string{"a\n"}, Env: []string{"A=\xff", "B=ü"}, Stdin: script.Literal("\x00\xfe"),
		}}}
	}
	result := func(name string) []script.Result {
		return []script.Result{{Name: name, Stdout: []byte("\x00\xff"), Survivors: []string{"sh"},
			Recorded: []script.Recorded{{Plugin: "p", Env: []string{"A=\xff"}}}}}
	}
	first := map[string]string{"x": "1", "y": "1"}
	return &script.Recording{
		Scenario: script.Scenario{Name: "example", Files: []script.File{{Path: "/run/f", Data: "\xff"}}, Steps: []script.Step{{Shell: "true"}, call("add"), call("del"), call("del2")}},
		Start:    snapshot(first),
		Events: []script.Event{
			{Step: 0, Output: "o", After: snapshot(first, map[string]string{"z": "1"})},
			{Step: 1, Calls: result("add"), After: snapshot(map[string]string{"x": "2", "w": ""}, map[string]string{"z": "1"})},
			{Step: 2, Calls: result("del")},
			{Step: 3, Calls: result("del2"), After: snapshot(first)},
		},
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	want := example()
	if err := want.Encode(&b); err != nil {
		t.Fatal(err)
	}
	got, err := script.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if !reflect.DeepEqual(want, example()) {
		t.Error("Encode changes the recording")
	}
}

// FuzzDecode checks that Decode returns either an error or a recording that can be encoded, decoded
// and searched.
func FuzzDecode(f *testing.F) {
	var b bytes.Buffer
	if err := example().Encode(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := script.Decode(bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, script.ErrFormat) {
				t.Error(err)
			}
			return
		}
		r.Before("add")
		if s := r.After("add"); s != nil {
			s.Container("c1")
			host.Diff(r.Start.Host, s.Host)
		}
		var first, second bytes.Buffer
		if err := r.Encode(&first); err != nil {
			t.Fatal(err)
		}
		text := first.String()
		again, err := script.Decode(&first)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Encode(&second); err != nil || second.String() != text {
			t.Errorf("%v\n%s\n%s", err, text, second.String())
		}
	})
}
