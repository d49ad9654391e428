package plugins

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// hostileInputs are members of a request that a decoder may stumble over, by the name of the call.
var hostileInputs = []struct {
	name string
	text script.Text
}{
	{"deep", script.Text{{Literal: `"x":`}, {Literal: "[", Repeat: 200_000}, {Literal: "]", Repeat: 200_000}}},
	{"deep-objects", script.Text{{Literal: `"x":`}, {Literal: `{"a":`, Repeat: 100_000}, {Literal: "1"}, {Literal: "}", Repeat: 100_000}}},
	{"open", script.Text{{Literal: `"x":`}, {Literal: "[", Repeat: 1_000_000}}},
	{"many-digits", script.Text{{Literal: `"x":1`}, {Literal: "0", Repeat: 1_000_000}}},
	{"large-exponent", script.Literal(`"x":1e999999999,"mtu":1e400`)},
	{"many-elements", script.Text{{Literal: `"x":[0`}, {Literal: ",0", Repeat: 1_000_000}, {Literal: "]"}}},
	{"large", script.Text{{Literal: `"x":"`}, {Literal: "x", Repeat: 10 << 20}, {Literal: `"`}}},
	{"white-space", script.Text{{Literal: `"x":1`}, {Literal: " ", Repeat: 10 << 20}}},
	{"duplicate-keys", script.Literal(`"name":"other","name":"conform","ipam":{},"ipam":null,"cniVersion":5,"cniVersion":"9.9.9"`)},
	{"nul", script.Literal("\"x\":\"\x00\"")},
	{"nul-escape", script.Literal(`"name":"a\u0000b","x\u0000":"\u0000"`)},
	{"invalid-utf-8", script.Literal("\"name\":\"a\xff\xc0\x80\"")},
	{"lone-surrogate", script.Literal(`"name":"\ud800","x":"\udfff\ud800"`)},
	{"null-members", script.Literal(`"ipam":null,"dns":null,"args":null,"runtimeConfig":null,"capabilities":null,"prevResult":null`)},
	{"null-elements", script.Literal(`"prevResult":{"interfaces":[null],"ips":[null],"routes":[null],"dns":null}`)},
}

// hostileCase sends input that is meant to break the plugin. It may accept or refuse each, but must
// end in order.
var hostileCase = &Case{
	Name: "hostile", Once: true, Rows: []string{"SEC-05"},
	Script: func(s *Setup) (*script.Scenario, string) {
		var steps []script.Step
		for _, h := range hostileInputs {
			steps = append(steps, quiet(s.Call(h.name, cni.Add, 1, members(h.text))))
		}
		return s.Scenario(1, steps...), ""
	},
	Judge: func(j *Judgment) {
		var wrong []string
		for _, h := range hostileInputs {
			j.Claim(h.name)
			r, _ := j.Call(h.name)
			o, _ := firstObject(r.Stdout)
			crash := bytes.Contains(r.Stderr, []byte("panic")) || bytes.Contains(r.Stderr, []byte("fatal error"))
			if r.Failed != "" || r.Late || r.Flooded || r.Signal != 0 || r.Status != 0 && (o["code"] == nil || crash) {
				wrong = append(wrong, fmt.Sprintf("%s: %s", h.name, describe(r)))
			}
		}
		j.Expect(wrong == nil, Verdict{Row: "SEC-05", Severity: report.Medium, Title: "hostile input breaks the plugin",
			Expected: "a result, or exit status 1 with an error object, for each input", Actual: strings.Join(wrong, "; "),
			Hint: "bound the depth of the decoder, and report its errors"})
	},
}

// members appends the text of members to the request.
func members(text script.Text) func(*Draft) {
	return func(d *Draft) {
		t, err := script.Object(d.Request)
		if err != nil {
			panic(err) // see Setup.Call
		}
		last := len(t) - 1
		t[last].Literal = strings.TrimSuffix(t[last].Literal, "}")
		d.Stdin = slices.Concat(t, script.Literal(","), text, script.Literal("}"))
	}
}
