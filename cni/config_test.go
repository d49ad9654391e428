package cni_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
)

func TestParseListReadsFields(t *testing.T) {
	t.Parallel()
	l := parseList(t, `{"cniVersion":"0.4.0","cniVersions":["1.0.0"],"name":"n","disableCheck":"TRUE","disableGC":true,
		"loadOnlyInlinedPlugins":"false","plugins":[
			{"type":"bridge","capabilities":{"mac":true,"ips":false,"dns":null},"ipam":{"type":"host-local"}},
			{"type":"tuning","ipam":{}}]}`)
	type plugin struct {
		Type, IPAM   string
		Capabilities map[string]bool
	}
	type list struct {
		Name                       string
		Version                    cni.Version
		NoCheck, NoGC, OnlyInlined bool
		Plugins                    []plugin
	}
	got := list{Name: l.Name, Version: l.Version, NoCheck: l.DisableCheck, NoGC: l.DisableGC,
		OnlyInlined: l.OnlyInlined}
	for _, p := range l.Plugins {
		got.Plugins = append(got.Plugins, plugin{p.Type, p.IPAM, p.Capabilities})
	}
	want := list{Name: "n", Version: cni.V100, NoCheck: true, NoGC: true, Plugins: []plugin{
		{"bridge", "host-local", map[string]bool{"mac": true, "ips": false, "dns": false}},
		{Type: "tuning"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
}

// CFG-13, CFG-36, SEC-02: cases that the vectors omit.
func TestParseListRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, in string
		code     cni.Code
		says     string
	}{
		{"list keys are matched exactly", `{"Name":"n","plugins":[{"type":"p"}]}`, cni.CodeInvalidConfig, "name is missing"},
		{"null version", `{"name":"n","cniVersion":null,"plugins":[{"type":"p"}]}`, cni.CodeDecodingFailure, "null"},
		{"null versions", `{"name":"n","cniVersions":null,"plugins":[{"type":"p"}]}`, cni.CodeDecodingFailure, "null"},
		{"empty entry of versions", `{"name":"n","cniVersions":[""],"plugins":[{"type":"p"}]}`, cni.CodeDecodingFailure, "empty entry"},
		{"ipam of a wrong type", `{"name":"n","plugins":[{"type":"p","ipam":[]}]}`, cni.CodeDecodingFailure, "network n: plugins[0]: plugin p: ipam"},
		{"ipam type of a wrong type", `{"name":"n","plugins":[{"type":"p","ipam":{"type":1}}]}`, cni.CodeDecodingFailure, "ipam: type: expected a string, found a number"},
		{"ipam type that is a path", `{"name":"n","plugins":[{"type":"p"},{"type":"p","ipam":{"type":"../x"}}]}`, cni.CodeInvalidConfig, "plugins[1]: plugin p: ipam"},
		{"true as a number that no float64 holds", `{"name":"n","disableCheck":1e400,"plugins":[{"type":"p"}]}`, cni.CodeDecodingFailure, "disableCheck: expected a number, found 1e400"},
		{"true as a number", `{"name":"n","loadOnlyInlinedPlugins":1,"plugins":[{"type":"p"}]}`, cni.CodeDecodingFailure, "loadOnlyInlinedPlugins"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l, err := cni.ParseList([]byte(test.in))
			if cni.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%+v, code %d: %v, want %d and %q", l, cni.CodeOf(err), err, test.code,
					test.says)
			}
		})
	}
}

func TestParseSingleDoesNotLiftListKeys(t *testing.T) {
	t.Parallel()
	l, err := cni.ParseSingle([]byte(`{"name":"n","type":"p","cniVersion":"0.4.0","disableCheck":true,"x":1}`))
	if err != nil {
		t.Fatal(err)
	}
	if l.DisableCheck || l.Name != "n" || l.Version != cni.V040 || len(l.Plugins) != 1 {
		t.Errorf("%+v", l)
	}
	request, err := l.Request(cni.Check, 0, cni.RequestData{})
	if want := `{"cniVersion":"0.4.0","disableCheck":true,"name":"n","type":"p","x":1}`; string(request) != want || err != nil {
		t.Errorf("request %s, %v, want %s", request, err, want)
	}
}

func TestParseSingleRefuses(t *testing.T) {
	t.Parallel()
	for in, code := range map[string]cni.Code{
		`{"name":1,"type":"p"}`:                        cni.CodeDecodingFailure,
		`{"name":"n","type":"p","cniVersion":"9.9.9"}`: cni.CodeIncompatibleVersion,
		`{"name":"n","type":"p","cniVersion":null}`:    cni.CodeDecodingFailure,
		`{"name":"n","type":"p","cniVersion":{}}`:      cni.CodeDecodingFailure,
		`{"name":"n","type":"p","capabilities":5}`:     cni.CodeDecodingFailure,
	} {
		if l, err := cni.ParseSingle([]byte(in)); cni.CodeOf(err) != code {
			t.Errorf("%s: %+v, %v, want code %d", in, l, err, code)
		}
	}
}

// The keys of a plugin's object match in any case, as in libcni (CFG-13).
func TestParsePluginIgnoresCase(t *testing.T) {
	t.Parallel()
	l, err := cni.ParseSingle([]byte(`{"NAME":"n","CniVersion":"0.3.1","Type":"p","Capabilities":{"mac":true},"IPAM":{"TYPE":"static"}}`))
	if err != nil {
		t.Fatal(err)
	}
	p := l.Plugins[0]
	if l.Name != "n" || l.Version != cni.V031 || p.Type != "p" || !p.Capabilities["mac"] ||
		p.IPAM != "static" {
		t.Errorf("%+v, %+v", l, p)
	}
	for in, want := range map[string]string{
		`{"TYPE":"a","type":"b","Type":"c"}`: "b", // the exact one counts
		// otherwise the type that a plugin sees, the last in a request
		`{"TYPE":"a","tYPE":"b","Type":"c"}`: "b",
	} {
		if p, err := cni.ParsePlugin([]byte(in)); err != nil || p.Type != want {
			t.Errorf("%s: %+v, %v", in, p, err)
		}
	}
	if p, err := cni.ParsePlugin([]byte(`{"":"a"}`)); err == nil {
		t.Errorf("type is %q", p.Type)
	}
}

// A stored list equals the list that ran.
func TestMarshalListIsStable(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		parse := map[string]func([]byte) (*cni.List, error){"conflist": cni.ParseList,
			"conf": cni.ParseSingle}[string(v.Kind)]
		if parse == nil || v.Verdict != "valid" {
			continue
		}
		t.Run(v.File, func(t *testing.T) {
			t.Parallel()
			l, err := parse(v.Data)
			if err != nil {
				t.Fatal(err)
			}
			checkStable(t, l)
		})
	}
}

// checkStable checks that a list yields the same requests after it was stored and read again.
func checkStable(t *testing.T, l *cni.List) {
	t.Helper()
	form := storedForm(t, l)
	back, err := cni.ParseList([]byte(form))
	if err != nil {
		t.Fatalf("%s: %v", form, err)
	}
	if again := storedForm(t, back); again != form {
		t.Errorf("stored twice: %s, then %s", form, again)
	}
	if back.Version != l.Version || back.Name != l.Name || back.DisableCheck != l.DisableCheck ||
		back.DisableGC != l.DisableGC {
		t.Errorf("%+v was read as %+v", l, back)
	}
	if !back.OnlyInlined && len(l.Plugins) > 0 {
		t.Error("drop-in files would be added again")
	}
	if diff := cmp.Diff(requests(t, l), requests(t, back)); diff != "" {
		t.Errorf("requests (-before +after):\n%s", diff)
	}
}

// storedForm returns a list as text. json.Marshal would escape characters such as "<" in the
// plugins' values.
func storedForm(t testing.TB, l *cni.List) string {
	t.Helper()
	b, err := l.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func requests(t *testing.T, l *cni.List) []string {
	t.Helper()
	var all []string
	for i := range l.Plugins {
		request, err := l.Request(cni.Add, i, cni.RequestData{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(request))
	}
	return all
}

func TestAppendedPluginsAreStored(t *testing.T) {
	t.Parallel()
	l := parseList(t, `{"cniVersion":"1.1.0","name":"n","x":{"y":1}}`)
	p, err := cni.ParsePlugin([]byte(`{"type":"p","name":"own","n":1.10}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := storedForm(t, l), `{"cniVersion":"1.1.0","name":"n","x":{"y":1}}`; got != want {
		t.Errorf("without plugins: %s, want %s", got, want)
	}
	l.Append(p)
	want := `{"cniVersion":"1.1.0","loadOnlyInlinedPlugins":true,"name":"n","plugins":[{"n":1.10,"name":"own","type":"p"}],"x":{"y":1}}`
	if got := storedForm(t, l); got != want {
		t.Errorf("stored %s, want %s", got, want)
	}
	checkStable(t, l)
	if want := []string{`{"cniVersion":"1.1.0","n":1.10,"name":"n","type":"p"}`}; !cmp.Equal(want,
		requests(t, l)) {
		t.Errorf("requests %q, want %q", requests(t, l), want)
	}
}

func parseList(t testing.TB, text string) *cni.List {
	t.Helper()
	l, err := cni.ParseList([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// members splits an object without changing its values.
func members(t testing.TB, b []byte) map[string]json.RawMessage {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return m
}

// VER-05, VER-07, VER-08, CFG-07: the supported versions of a network, and the selected one.
func TestListVersions(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][]cni.Version{
		``:                     {cni.V010},
		`"cniVersion":"0.4.0"`: {cni.V040},
		`"cniVersions":[]`:     {cni.V010},
		`"cniVersion":"","cniVersions":["1.0.0"]`: {cni.V100},
		`"cniVersion":"0.3.1","cniVersions":["1.1.0","99.0.0","0.5.0","0.4.0","0.3.1"]`: {cni.V031,
			cni.V040, cni.V110},
		`"cniVersion":"99.0.0","cniVersions":["1.0.0"]`: {cni.V100},
	} {
		if in != "" {
			in += ","
		}
		for form, parse := range map[string]func([]byte) (*cni.List, error){
			`"plugins":[{"type":"p"}]`: cni.ParseList, `"type":"p"`: cni.ParseSingle,
		} {
			l, err := parse([]byte(`{` + in + `"name":"n",` + form + `}`))
			if err != nil {
				t.Fatal(err)
			}
			if !cmp.Equal(want, l.Versions) || l.Version != want[len(want)-1] {
				t.Errorf("%s: version %v out of %v, want %v", in, l.Version, l.Versions, want)
			}
			checkStable(t, l)
			back := parseList(t, storedForm(t, l))
			if !cmp.Equal(want, back.Versions) {
				t.Errorf("%s: stored with %v", in, back.Versions)
			}
		}
	}
}

// VER-10: a list that runs in one version is stored with that version, and the original list does
// not change.
func TestListWithVersion(t *testing.T) {
	t.Parallel()
	l := parseList(t,
		`{"cniVersion":"0.4.0","cniVersions":["1.0.0","1.1.0"],"name":"n","plugins":[{"type":"p"}]}`)
	old := l.WithVersion(cni.V100)
	want := `{"cniVersion":"1.0.0","loadOnlyInlinedPlugins":true,"name":"n","plugins":[{"type":"p"}]}`
	if got := storedForm(t, old); got != want {
		t.Errorf("stored %s, want %s", got, want)
	}
	if want := []string{`{"cniVersion":"1.0.0","name":"n","type":"p"}`}; !cmp.Equal(want,
		requests(t, old)) {
		t.Errorf("requests %q", requests(t, old))
	}
	if l.Version != cni.V110 || len(l.Versions) != 3 {
		t.Errorf("changed: %+v", l)
	}
}

// The stored form reflects the fields of a list, even changed ones.
func TestMarshalChangedList(t *testing.T) {
	t.Parallel()
	l := parseList(t,
		`{"cniVersion":"0.4.0","cniVersions":["1.0.0"],"disableCheck":"True","disableGC":true,"name":"n","plugins":[{"TYPE":"p","x":1}]}`)
	want := `{"cniVersion":"1.0.0","cniVersions":["0.4.0","1.0.0"],"disableCheck":"True","disableGC":true,"loadOnlyInlinedPlugins":true,"name":"n","plugins":[{"TYPE":"p","x":1}]}`
	if got := storedForm(t, l); got != want {
		t.Errorf("unchanged: %s, want %s", got, want)
	}
	l.Name, l.DisableCheck, l.DisableGC, l.Version, l.Plugins[0].Type = "m", false, true, cni.V040,
		"q"
	want = `{"cniVersion":"0.4.0","disableCheck":false,"disableGC":true,"loadOnlyInlinedPlugins":true,"name":"m","plugins":[{"type":"q","x":1}]}`
	if got := storedForm(t, l); got != want {
		t.Errorf("changed: %s, want %s", got, want)
	}
	checkStable(t, l)
}

// A list constructed by the caller can be stored.
func TestMarshalHandMadeList(t *testing.T) {
	t.Parallel()
	l := &cni.List{Name: "n", Version: cni.V110, DisableCheck: true, Plugins: []*cni.PluginConfig{
		{Type: "p", Capabilities: map[string]bool{"mac": true}, IPAM: "static"}, {Type: "q"},
	}}
	want := `{"cniVersion":"1.1.0","disableCheck":true,"loadOnlyInlinedPlugins":true,"name":"n",` +
		`"plugins":[{"capabilities":{"mac":true},"ipam":{"type":"static"},"type":"p"},{"type":"q"}]}`
	if got := storedForm(t, l); got != want {
		t.Errorf("stored %s, want %s", got, want)
	}
	checkStable(t, l)
}
