package cni_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance"
)

// seed adds the content of all vectors of the kinds, valid or not.
func seed(f *testing.F, kinds ...conformance.Kind) {
	f.Helper()
	for _, v := range vectors(f) {
		if slices.Contains(kinds, v.Kind) {
			f.Add(v.Data)
		}
	}
}

// SEC-05: no decoder panics on any output or file, and accepted documents survive a round trip.
func FuzzDecodeResult(f *testing.F) {
	for _, v := range vectors(f) {
		if v.Kind == conformance.KindResult {
			f.Add(v.Data, uint8(callVersion(v)))
		}
	}
	for _, r := range conversions {
		for _, v := range cni.Versions() {
			if b, err := r.Encode(v); err == nil {
				f.Add(b, uint8(v))
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, call uint8) {
		conf := cni.Version(call % uint8(cni.Newest+1))
		r, repairs, err := cni.RepairResult(b, conf)
		strict, strictErr := cni.DecodeResultStrict(b, conf)
		if err != nil {
			if strictErr == nil {
				t.Errorf("only the strict decoder accepts it: %v", err)
			}
			return
		}
		if strictErr != nil && repairs == nil {
			t.Errorf("nothing was repaired, but the strict decoder refuses it: %v", strictErr)
		}
		if strictErr == nil && !cmp.Equal(r, strict, sameResult) {
			t.Errorf("strict and tolerant differ: %s", cmp.Diff(strict, r, sameResult))
		}
		own, err := cni.ResultVersion(b, conf)
		if err != nil {
			t.Fatal(err)
		}
		if dropped := r.Dropped(own); dropped != nil && repairs == nil {
			t.Errorf("%v cannot express its own result: %q", own, dropped)
		}
		if _, _, err := r.Relay(own, r); err != nil {
			t.Errorf("%v cannot be passed on: %v", own, err)
		}
		for _, v := range cni.Versions() {
			encoded, err := r.Encode(v)
			if err != nil {
				if v > cni.V020 || len(r.IPs) > 0 {
					t.Errorf("encode in %v: %v", v, err)
				}
				continue
			}
			back, err := cni.DecodeResultStrict(encoded, conf)
			if err != nil {
				t.Fatalf("%v: %s: %v", v, encoded, err)
			}
			if again, err := back.Encode(v); err != nil || string(again) != string(encoded) {
				t.Errorf("%v: %s, then %s, %v", v, encoded, again, err)
			}
			if v == own && repairs == nil {
				if diff := cmp.Diff(r, back, sameResult); diff != "" {
					t.Errorf("%v (-decoded +decoded again):\n%s", v, diff)
				}
			}
		}
	})
}

// SEC-05
func FuzzDecodeError(f *testing.F) {
	seed(f, conformance.KindError)
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := cni.DecodeError(b)
		strict, strictErr := cni.DecodeErrorStrict(b)
		if err != nil {
			if strictErr == nil {
				t.Errorf("only the strict decoder accepts it: %v", err)
			}
			return
		}
		if e.Msg == "" {
			t.Error("no message")
		}
		if strictErr == nil && strict.Error() != e.Error() {
			t.Errorf("strict %v, tolerant %v", strict, e)
		}
		for _, v := range cni.Versions() {
			back, err := cni.DecodeError(e.Encode(v))
			if err != nil || back.Code != e.Code || back.Msg != e.Msg || back.Details != e.Details {
				t.Errorf("%+v was decoded as %+v, %v", e, back, err)
			}
		}
	})
}

// SEC-05
func FuzzDecodeVersionReply(f *testing.F) {
	seed(f, conformance.KindVersion)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := cni.DecodeVersionReply(b)
		if err != nil {
			return
		}
		back, err := cni.DecodeVersionReply(r.Encode())
		if err != nil || !cmp.Equal(r, back) {
			t.Errorf("%+v was decoded as %+v, %v", r, back, err)
		}
	})
}

// SEC-05
func FuzzParseList(f *testing.F) {
	seed(f, conformance.KindConflist)
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, err := cni.ParseList(b); err == nil {
			checkStable(t, l)
			checkRequests(t, l)
		}
	})
}

func FuzzParseSingle(f *testing.F) {
	seed(f, conformance.KindConf)
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, err := cni.ParseSingle(b); err == nil {
			checkStable(t, l)
			checkRequests(t, l)
		}
	})
}

func FuzzParsePlugin(f *testing.F) {
	seed(f, conformance.KindDropin)
	for _, v := range vectors(f) {
		if _, ok := v.Kind.Verb(); ok {
			f.Add(v.Data)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := cni.ParsePlugin(b)
		if err != nil {
			return
		}
		if err := cni.ValidatePluginType(p.Type); err != nil {
			t.Error(err)
		}
		l := parseList(t, `{"name":"n","cniVersion":"1.1.0"}`)
		l.Append(p)
		checkStable(t, l)
		checkRequests(t, l)
	})
}

// checkRequests checks that a request holds the values of the runtime and no others.
func checkRequests(t *testing.T, l *cni.List) {
	t.Helper()
	for i := range l.Plugins {
		for verb, set := range map[cni.Command][]string{
			cni.Add:    {"name", "cniVersion"},
			cni.Status: {"name", "cniVersion"},
			cni.GC:     {"name", "cniVersion", "cni.dev/valid-attachments", "cni.dev/attachments"},
		} {
			request, err := l.Request(verb, i, cni.RequestData{})
			if err != nil {
				t.Fatal(err)
			}
			if name, version, err := cni.DecodeHeader(request); name != l.Name ||
				version != l.Version.String() || err != nil {
				t.Errorf("%s: header %q, %q, %v", request, name, version, err)
			}
			for key := range members(t, request) {
				taken := strings.HasPrefix(strings.ToLower(key), "cni.dev/")
				for _, k := range []string{"name", "cniVersion", "prevResult", "capabilities"} {
					taken = taken || strings.EqualFold(key, k)
				}
				if verb != cni.Add {
					taken = taken || strings.EqualFold(key, "runtimeConfig")
				}
				if taken && !slices.Contains(set, key) {
					t.Errorf("%s has key %q: %s", verb, key, request)
				}
			}
		}
	}
}

func FuzzParseArgs(f *testing.F) {
	for _, r := range rows(f, conformance.CNIArgs) {
		f.Add(r.Args)
	}
	f.Fuzz(func(t *testing.T, s string) {
		args, err := cni.ParseArgs(s)
		if err != nil {
			return
		}
		if args.String() != s {
			t.Errorf("%q printed as %q", s, args)
		}
		if (args.CheckKnown("IP") == nil) && (args.CheckKnown() != nil) {
			if _, ok := args.Get("IP"); !ok {
				t.Errorf("%q: IP is refused and not there", s)
			}
		}
	})
}

func FuzzDecodeValidAttachments(f *testing.F) {
	for _, v := range vectors(f) {
		if verb, ok := v.Kind.Verb(); ok && verb == cni.GC {
			f.Add(v.Data)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		valid, err := cni.DecodeValidAttachments(b)
		if err != nil {
			return
		}
		request, err := parseList(t, `{"name":"n","cniVersion":"1.1.0","plugins":[{"type":"p"}]}`).
			Request(cni.GC, 0, cni.RequestData{Valid: valid})
		if err != nil {
			t.Fatal(err)
		}
		back, err := cni.DecodeValidAttachments(request)
		if err != nil || !slices.Equal(valid, back) {
			t.Errorf("%v was decoded as %v, %v", valid, back, err)
		}
	})
}

func FuzzParseTag(f *testing.F) {
	for _, a := range []cni.Attachment{{}, {Network: "podnet", Container: "c1", IfName: "eth0"}} {
		f.Add(a.Tag())
		f.Add(string(a.Owner()))
	}
	f.Add("tenon:")
	f.Fuzz(func(t *testing.T, tag string) {
		o, ok := cni.ParseTag(tag)
		if ok != o.Valid() {
			t.Errorf("owner %q, %v", o, ok)
		}
		if ok && !strings.HasPrefix(tag, "tenon:"+string(o)) {
			t.Errorf("%q is of %q", tag, o)
		}
	})
}

func FuzzDecodeHeader(f *testing.F) {
	for _, v := range vectors(f) {
		if _, ok := v.Kind.Verb(); ok {
			f.Add(v.Data)
		}
	}
	f.Add([]byte(`{"Name":"a","name":"b","CNIVERSION":"1.0.0","cniVersion":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		name, version, err := cni.DecodeHeader(b)
		if err != nil {
			if cni.CodeOf(err) != cni.CodeDecodingFailure {
				t.Errorf("code %d: %v", cni.CodeOf(err), err)
			}
			return
		}
		var plugin struct{ Name, CNIVersion string } // as a plugin decodes them later
		if err := json.Unmarshal(b, &plugin); err != nil || plugin.Name != name ||
			plugin.CNIVersion != version {
			t.Errorf("%q, %q, but a plugin sees %+v, %v", name, version, plugin, err)
		}
	})
}

func FuzzRoute(f *testing.F) {
	for _, r := range conversions {
		for _, rt := range r.Routes {
			f.Add([]byte(marshal(f, rt)))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r, back cni.Route
		if json.Unmarshal(b, &r) != nil || r == (cni.Route{}) { // null changes nothing
			return
		}
		if err := json.Unmarshal(marshal(t, r), &back); err != nil || back != r {
			t.Errorf("%+v was decoded as %+v, %v", r, back, err)
		}
	})
}
