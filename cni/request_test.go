package cni_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
)

// Numbers, nulls and unknown keys reach the plugin unchanged (CFG-34, REQ-12, DIS-12).
func TestRequestKeepsValues(t *testing.T) {
	t.Parallel()
	file := vector(t, "conflist-1.1.0-valid-big-number-passthrough.json")
	l := parseList(t, string(file))
	var list struct {
		Plugins []map[string]json.RawMessage `json:"plugins"`
	}
	if err := json.Unmarshal(file, &list); err != nil {
		t.Fatal(err)
	}
	for i, want := range list.Plugins {
		request, err := l.Request(cni.Add, i, cni.RequestData{})
		if err != nil {
			t.Fatal(err)
		}
		got := members(t, request)
		for key, value := range want {
			if !bytes.Equal(compact(t, value), got[key]) {
				t.Errorf("plugin %d: %s is %s, want %s", i, key, got[key], value)
			}
		}
	}
	if !bytes.Contains(file, []byte("9007199254740993")) {
		t.Error("the vector has no number above 2⁵³")
	}
	const odd = `{"a":1e400,"b":-0,"c":[null,{"d":0.10}],"é":"<&>\u2028\ud83d\ude00","f":"\u0000","type":"p"}`
	request,
		err := parseList(t,
		`{"name":"n","cniVersion":"1.1.0","plugins":[`+odd+`]}`).Request(cni.Del, 0,
		cni.RequestData{})
	if err != nil {
		t.Fatal(err)
	}
	got := members(t, request)
	delete(got, "name")
	delete(got, "cniVersion")
	if diff := cmp.Diff(members(t, []byte(odd)), got); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
}

// A plugin that decodes with encoding/json matches keys in any case. A configuration must not add
// a key of the runtime in a different spelling.
func TestRequestStripsReservedKeysInAnyCase(t *testing.T) {
	t.Parallel()
	const config = `{"name":"n","cniVersion":"1.1.0","plugins":[{"type":"p","capabilities":{"mac":true},
		"NAME":"evil","Name":"evil","name":"evil","CNIVERSION":"0.1.0","cniversion":"0.1.0",
		"PrevResult":{"ips":[]},"prevReſult":{"ips":[]},"CAPABILITIES":{},
		"CNI.DEV/valid-attachments":[],"cni.dev/Attachments":[],"cni.dev/":1,"cni.de":2,
		"RuntimeConfig":{"mac":"evil"},"runtimeconfig":{"mac":"evil"}}]}`
	for verb, want := range map[cni.Command]string{
		cni.Add:    `{"cni.de":2,"cniVersion":"1.1.0","name":"n","runtimeConfig":{"mac":"02:00:00:00:00:01"},"type":"p"}`,
		cni.Status: `{"cni.de":2,"cniVersion":"1.1.0","name":"n","type":"p"}`,
		cni.GC: `{"cni.de":2,"cni.dev/attachments":[],"cni.dev/valid-attachments":[],"cniVersion":"1.1.0","name":"n",` +
			`"type":"p"}`,
	} {
		got, err := parseList(t, config).Request(verb, 0, cni.RequestData{
			Capabilities: map[string]json.RawMessage{"mac": json.RawMessage(`"02:00:00:00:00:01"`),
				"ips": json.RawMessage(`[]`)},
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", verb, diff)
		}
		name, version, err := cni.DecodeHeader(got)
		if name != "n" || version != "1.1.0" || err != nil {
			t.Errorf("%s: header %q, %q, %v", verb, name, version, err)
		}
	}
}

// A runtimeConfig in the file stays if the runtime sends none (REQ-10).
func TestRequestKeepsRuntimeConfigOfFile(t *testing.T) {
	t.Parallel()
	l := parseList(t,
		`{"name":"n","cniVersion":"1.0.0","plugins":[{"type":"p","runtimeConfig":{"mac":"x"}}]}`)
	request,
		err := l.Request(cni.Add, 0,
		cni.RequestData{Capabilities: map[string]json.RawMessage{"mac": json.RawMessage(`1`)}})
	if want := `{"cniVersion":"1.0.0","name":"n","runtimeConfig":{"mac":"x"},"type":"p"}`; string(request) != want || err != nil {
		t.Errorf("%s, %v, want %s", request, err, want)
	}
}

// The previous result has the version of the list, and is sent on DEL only since 0.4.0 (REQ-02 to
// REQ-06).
func TestRequestPrevResult(t *testing.T) {
	t.Parallel()
	prev := conversions["full"]
	for _, v := range cni.Versions() {
		l := parseList(t, `{"name":"n","cniVersion":"`+v.String()+`","plugins":[{"type":"p"}]}`)
		for _, verb := range []cni.Command{cni.Add, cni.Check, cni.Del, cni.Status, cni.GC} {
			request, err := l.Request(verb, 0, cni.RequestData{PrevResult: &prev})
			if err != nil {
				t.Fatal(err)
			}
			got := members(t, request)["prevResult"]
			want, err := prev.Encode(v)
			if err != nil {
				t.Fatal(err)
			}
			if verb == cni.Status || verb == cni.GC || verb == cni.Del && v < cni.V040 {
				want = nil
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s %v (-want +got):\n%s", verb, v, diff)
			}
		}
	}
}

func TestRequestRefuses(t *testing.T) {
	t.Parallel()
	l := parseList(t,
		`{"name":"n","cniVersion":"0.2.0","plugins":[{"type":"p","capabilities":{"mac":true}}]}`)
	for says, test := range map[string]struct {
		data cni.RequestData
		code cni.Code
	}{
		"request of ADD for plugin p: prevResult: ": {cni.RequestData{PrevResult: &cni.Result{Interfaces: []cni.Interface{{Name: "eth0"}}}}, cni.CodeInvalidConfig},
		"argument of capability mac is not JSON": {
			cni.RequestData{Capabilities: map[string]json.RawMessage{"mac": json.RawMessage("02:00")}}, cni.CodeDecodingFailure,
		},
		"capability mac": {cni.RequestData{Capabilities: map[string]json.RawMessage{"mac": nil}},
			cni.CodeDecodingFailure},
	} {
		request, err := l.Request(cni.Add, 0, test.data)
		if cni.CodeOf(err) != test.code || !strings.Contains(err.Error(), says) {
			t.Errorf("%s, code %d: %v, want %d and %q", request, cni.CodeOf(err), err, test.code,
				says)
		}
	}
}

// Request does not change the list.
func TestRequestDoesNotChangeList(t *testing.T) {
	t.Parallel()
	l := parseList(t, string(vector(t, "conflist-1.1.0-valid-reserved-keys-discouraged.json")))
	before := storedForm(t, l)
	for _, verb := range []cni.Command{cni.Add, cni.GC} {
		if _, err := l.Request(verb, 0, cni.RequestData{}); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(before, storedForm(t, l)); diff != "" {
		t.Errorf("list (-before +after):\n%s", diff)
	}
}

func TestDecodeHeader(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		in, name, version string
		code              cni.Code
	}{
		{`{"name":"n","cniVersion":"1.1.0"}`, "n", "1.1.0", 0},
		{`{}`, "", "", 0},
		{`{"name":null,"cniVersion":null}`, "", "", 0},
		{`{"name":"n","NAME":"../m"}`, "../m", "", 0}, // as a plugin would decode it
		{`{"name":["n"]}`, "", "", cni.CodeDecodingFailure},
		{``, "", "", cni.CodeDecodingFailure},
		{`"n"`, "", "", cni.CodeDecodingFailure},
	} {
		name, version, err := cni.DecodeHeader([]byte(test.in))
		if name != test.name || version != test.version || cni.CodeOf(err) != test.code {
			t.Errorf("%s: %q, %q, %v", test.in, name, version, err)
		}
	}
}

// R-15, PL-GC-06: a null list is empty; a missing list is refused.
func TestDecodeValidAttachments(t *testing.T) {
	t.Parallel()
	c1, c2 := cni.ValidAttachment{ContainerID: "c1", IfName: "eth0"},
		cni.ValidAttachment{ContainerID: "c2", IfName: "eth0"}
	const one, two = `[{"containerID":"c1","ifname":"eth0"}]`,
		`[{"containerID":"c2","ifname":"eth0"}]`
	for name, test := range map[string]struct {
		in   string
		want []cni.ValidAttachment
		code cni.Code
	}{
		"current": {`{"cni.dev/valid-attachments":` + one + `}`,
			[]cni.ValidAttachment{c1}, 0},
		"tagged": {`{"cni.dev/attachments":` + two + `}`,
			[]cni.ValidAttachment{c2}, 0},
		"current before tagged": {`{"cni.dev/attachments":` + two +
			`,"cni.dev/valid-attachments":` + one + `}`, []cni.ValidAttachment{c1}, 0},
		"none left": {`{"cni.dev/valid-attachments":[],"cni.dev/attachments":` +
			two + `}`, []cni.ValidAttachment{}, 0},
		"null and tagged": {`{"cni.dev/valid-attachments":null,"cni.dev/attachments":` +
			two + `}`, []cni.ValidAttachment{c2}, 0},
		"null": {`{"cni.dev/valid-attachments":null}`, []cni.ValidAttachment{},
			0},
		"null in both spellings": {`{"cni.dev/valid-attachments":null,"cni.dev/attachments":null}`,
			[]cni.ValidAttachment{}, 0},
		"null and tagged only": {`{"cni.dev/attachments":null}`, []cni.ValidAttachment{}, 0},
		"null in another case": {`{"CNI.dev/valid-attachments":null}`, nil,
			cni.CodeInvalidConfig},
		"missing": {`{}`, nil, cni.CodeInvalidConfig},
		"null entry": {`{"cni.dev/valid-attachments":[null]}`, nil,
			cni.CodeInvalidConfig},
		"entry without a name": {`{"cni.dev/valid-attachments":[{"containerID":"c1"}]}`, nil,
			cni.CodeInvalidConfig},
		"entry of a wrong type": {`{"cni.dev/valid-attachments":["c1"]}`, nil,
			cni.CodeDecodingFailure},
		"object": {`{"cni.dev/valid-attachments":{}}`, nil,
			cni.CodeDecodingFailure},
		"request that is not JSON": {`{`, nil, cni.CodeDecodingFailure},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := cni.DecodeValidAttachments([]byte(test.in))
			if cni.CodeOf(err) != test.code {
				t.Errorf("%v, want code %d", err, test.code)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("attachments (-want +got):\n%s", diff)
			}
		})
	}
}

// A plugin decodes the list that the runtime sends for GC.
func TestValidAttachmentsRoundTrip(t *testing.T) {
	t.Parallel()
	l := parseList(t, `{"name":"n","cniVersion":"1.1.0","plugins":[{"type":"p"}]}`)
	for _, valid := range [][]cni.ValidAttachment{{},
		{{ContainerID: "a", IfName: "eth0"}, {ContainerID: "b", IfName: "<&>"}}} {
		request, err := l.Request(cni.GC, 0, cni.RequestData{Valid: valid})
		if err != nil {
			t.Fatal(err)
		}
		got, err := cni.DecodeValidAttachments(request)
		if err != nil || !slices.Equal(valid, got) {
			t.Errorf("%v was decoded as %v, %v", valid, got, err)
		}
		keys := slices.Sorted(maps.Keys(members(t, request)))
		if want := []string{"cni.dev/attachments", "cni.dev/valid-attachments", "cniVersion",
			"name", "type"}; !slices.Equal(want, keys) {
			t.Errorf("keys %q, want %q", keys, want)
		}
	}
}

func compact(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return out.Bytes()
}

// TestNerdctlMark checks that plugins receive nerdctl's mark as the only key of the list, unless
// they have their own.
func TestNerdctlMark(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		`{"cniVersion":"1.0.0","name":"n","nerdctlID":2,"nerdctlLabels":{},"plugins":[{"type":"p"}]}`:     `{"cniVersion":"1.0.0","name":"n","nerdctlID":2,"type":"p"}`,
		`{"cniVersion":"1.0.0","name":"n","nerdctlID":"a","plugins":[{"type":"p","nerdctlID":"b"}]}`:      `{"cniVersion":"1.0.0","name":"n","nerdctlID":"b","type":"p"}`,
		`{"cniVersion":"1.0.0","name":"n","nerdctlLabels":{},"somethingElse":1,"plugins":[{"type":"p"}]}`: `{"cniVersion":"1.0.0","name":"n","type":"p"}`,
	} {
		l, err := cni.ParseList([]byte(list))
		if err != nil {
			t.Fatal(err)
		}
		got, err := l.Request(cni.Add, 0, cni.RequestData{})
		if err != nil || string(got) != want {
			t.Errorf("got %s, %v; want %s", got, err, want)
		}
	}
}
