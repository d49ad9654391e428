package format_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/ops/format"
)

// sample has a value of each kind.
type sample struct {
	Name  string            `json:"name"`
	IPs   []string          `json:"ips"`
	Size  uint64            `json:"size"`
	Ratio float64           `json:"ratio"`
	Ready bool              `json:"ready"`
	Ports []map[string]int  `json:"ports"`
	Map   map[string]string `json:"map"`
	None  []string          `json:"none"`
	Null  *int              `json:"null"`
	Empty struct{}          `json:"empty"`
}

func newSample() sample {
	return sample{Name: "web", IPs: []string{"10.1.0.2", "fd00::2"}, Size: math.MaxUint64, Ratio: 5e-7,
		Ready: true, Ports: []map[string]int{{"container": 80, "host": 8080}, {"host": 53}},
		Map: map[string]string{"a key": "b: c", "on": "x\ny"}, None: []string{}}
}

func output(t *testing.T, argument string) *format.Output {
	t.Helper()
	o := &format.Output{Others: []string{format.Wide}}
	if err := o.Set(argument); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestFormats writes one value in each format, alone and as one of several.
func TestFormats(t *testing.T) {
	t.Parallel()
	const asYAML = `name: web
ips:
  - "10.1.0.2"
  - "fd00::2"
size: 18446744073709551615
ratio: 5.0e-7
ready: true
ports:
  - container: 80
    host: 8080
  - host: 53
map:
  a key: "b: c"
  "on": "x\ny"
none: []
"null": null
empty: {}
`
	for _, row := range []struct{ format, whole, each string }{
		{"json", `{
  "name": "web",
  "ips": [
    "10.1.0.2",
    "fd00::2"
  ],
  "size": 18446744073709551615,
  "ratio": 5e-7,
  "ready": true,
  "ports": [
    {
      "container": 80,
      "host": 8080
    },
    {
      "host": 53
    }
  ],
  "map": {
    "a key": "b: c",
    "on": "x\ny"
  },
  "none": [],
  "null": null,
  "empty": {}
}
`, `{"name":"web","ips":["10.1.0.2","fd00::2"],"size":18446744073709551615,"ratio":5e-7,"ready":true,` +
			`"ports":[{"container":80,"host":8080},{"host":53}],"map":{"a key":"b: c","on":"x\ny"},` +
			`"none":[],"null":null,"empty":{}}` + "\n"},
		{"yaml", asYAML, "---\n" + asYAML},
		{`go-template={{.name}} {{join .ips ","}} {{.size}} {{json .map}}`,
			`web 10.1.0.2,fd00::2 18446744073709551615 {"a key":"b: c","on":"x\ny"}` + "\n", ""},
		{`go-template={{range .ports}}{{if gt .host 1024}}{{.host}}{{"\n"}}{{end}}{{end}}`, "8080\n", ""},
		{"go-template={{if .none}}{{.name}}{{end}}", "\n", ""},
	} {
		t.Run(row.format, func(t *testing.T) {
			t.Parallel()
			o := output(t, row.format)
			if row.each == "" {
				row.each = row.whole
			}
			var whole, each bytes.Buffer
			if err := errors.Join(o.Write(&whole, newSample()), o.WriteEach(&each, newSample())); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{row.whole, row.each}, []string{whole.String(), each.String()}); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if !o.Structured() {
				t.Error("the output is not for programs")
			}
		})
	}
}

// TestYAMLText quotes every text that YAML could take for something else.
func TestYAMLText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"web-1.a_b/c":          "web-1.a_b/c",
		"/run/netns/web":       "/run/netns/web",
		"namespace gone":       "namespace gone",
		"":                     `""`,
		" a":                   `" a"`,
		"a ":                   `"a "`,
		"a: b":                 `"a: b"`,
		"a #b":                 `"a #b"`,
		"- a":                  `"- a"`,
		"~":                    `"~"`,
		"Yes":                  `"Yes"`,
		"NULL":                 `"NULL"`,
		"1500":                 `"1500"`,
		"0x1f":                 `"0x1f"`,
		"02:00:00:00:00:01":    `"02:00:00:00:00:01"`,
		"2026-11-23":           `"2026-11-23"`,
		".inf":                 `".inf"`,
		`"quoted" \`:           `"\"quoted\" \\"`,
		"a\tb\x7f\u0085\u2028": `"a\tb\x7f\u0085\u2028"`,
		"<b> & ü":              `"<b> & ü"`,
	} {
		var b bytes.Buffer
		if err := output(t, "yaml").Write(&b, in); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); got != want+"\n" {
			t.Errorf("%q becomes %s, want %s", in, got, want)
		}
	}
	var b bytes.Buffer
	nested := json.RawMessage(`[[[1,[]],[]],[{"a":[{"b":1}]}],{}]`)
	if err := output(t, "yaml").Write(&b, nested); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("- - - 1\n    - []\n  - []\n- - a:\n      - b: 1\n- {}\n", b.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestErrors: an error object of CNI has the format of the output, but a template is not for it.
func TestErrors(t *testing.T) {
	t.Parallel()
	const object = `{"cniVersion":"1.1.0","code":7,"msg":"a \u003c b"}`
	for argument, want := range map[string]string{
		"json":              object + "\n",
		"yaml":              "cniVersion: \"1.1.0\"\ncode: 7\nmsg: \"a < b\"\n",
		"go-template={{.}}": "",
		"wide":              "",
	} {
		var b bytes.Buffer
		if err := output(t, argument).WriteError(&b, []byte(object)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, b.String()); diff != "" {
			t.Errorf("%s (-want +got)\n%s", argument, diff)
		}
	}
}

// TestUnknownFormats: an argument that is no format is an error with the names of the formats.
func TestUnknownFormats(t *testing.T) {
	t.Parallel()
	for _, argument := range []string{"", "xml", "JSON", "json=", "wide=x", "custom-columns=A:.a"} {
		err := (&format.Output{Others: []string{format.Wide}}).Set(argument)
		unknown := (*format.UnknownError)(nil)
		if !errors.As(err, &unknown) || unknown.Name != argument {
			t.Errorf("%q: %v", argument, err)
		} else if diff := cmp.Diff([]string{"wide", "json", "yaml", "go-template"}, unknown.Known); diff != "" {
			t.Errorf("%q (-want +got)\n%s", argument, diff)
		}
	}
	if err := new(format.Output).Set("wide"); !errors.As(err, new(*format.UnknownError)) {
		t.Errorf("a command without wide tables accepts wide: %v", err)
	}
}

// TestBrokenTemplates: a template that cannot be parsed is refused before the command runs. One that
// does not fit the value is an error, and nothing is written.
func TestBrokenTemplates(t *testing.T) {
	t.Parallel()
	for _, argument := range []string{"go-template", "go-template={{", "go-template={{nosuch .}}"} {
		if err := new(format.Output).Set(argument); !errors.As(err, new(*format.TemplateError)) {
			t.Errorf("%q: %v", argument, err)
		}
	}
	for _, row := range []struct {
		template string
		value    any
		list     bool
	}{
		{"{{.name}}", []any{map[string]any{"name": "web"}}, true},
		{"some text {{.name.first}}", map[string]any{"name": "web"}, false},
		{`{{join .name ","}}`, map[string]any{"name": "web"}, false},
	} {
		var b bytes.Buffer
		err := output(t, "go-template="+row.template).Write(&b, row.value)
		broken := (*format.TemplateError)(nil)
		if !errors.As(err, &broken) || broken.List != row.list || b.Len() > 0 {
			t.Errorf("%s: %v, list %v, wrote %q", row.template, err, broken != nil && broken.List, &b)
		}
	}
}
