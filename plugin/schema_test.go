package plugin_test

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin"
)

// described has a field for each feature of a schema.
type described struct {
	plugin.Common
	DNS      int              `json:"dns" required:"true"` // hides the DNS of Common
	Flag     bool             `json:"flag,omitempty"`
	Small    uint8            `json:"small" max:"7"`
	Level    int              `json:"level" min:"-1" max:"9" default:"3"`
	Rate     *float64         `json:"rate"`
	Mode     string           `json:"mode" enum:"a,b" default:"a"`
	Subnet   netip.Prefix     `json:"subnet"`
	Sets     [][]inner        `json:"sets"`
	Labels   map[string][]int `json:"labels"`
	Routes   []cni.Route      `json:"routes"`
	Raw      json.RawMessage  `json:"raw"`
	Any      any              `json:"any"`
	Secret   []byte           `json:"secret"`
	Self     *inner           `json:"self"`
	Untagged string
	Left     string `json:"-"`
}

type inner struct {
	ID    int             `json:"id" required:"true"`
	Outer []inner         `json:"outer"`
	Place struct{ X int } `json:"place"`
}

func TestSchema(t *testing.T) {
	t.Parallel()
	d := plugin.DefineFlow(plugin.Info{Name: "demo", About: "shows", Capabilities: []string{"mac"}},
		func() (plugin.Configuration, plugin.Plugin) { return new(described), nil })
	s := d.Schema()
	const want = `{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "demo", "description": "shows",
		"type": "object", "required": ["type", "dns"],
		"properties": {
			"dns": {"type": "integer"},
			"flag": {"type": "boolean"},
			"small": {"type": "integer", "minimum": 0, "maximum": 7},
			"level": {"type": "integer", "minimum": -1, "maximum": 9, "default": 3},
			"rate": {"type": "number"},
			"mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
			"subnet": {"type": "string"},
			"sets": {"type": "array", "items": {"type": "array", "items": {"type": "object", "required": ["id"], "properties": {
				"id": {"type": "integer"}, "outer": {"type": "array", "items": {}},
				"place": {"type": "object", "properties": {"X": {"type": "integer"}}}}}}},
			"labels": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}},
			"routes": {"type": "array", "items": {"type": "object", "required": ["dst"], "properties": {
				"dst": {"type": "string"}, "gw": {"type": "string"}, "mtu": {"type": "integer"}, "advmss": {"type": "integer"},
				"priority": {"type": "integer"}, "table": {"type": "integer"}, "scope": {"type": "integer"}}}},
			"raw": {}, "any": {}, "secret": {"type": "string"},
			"self": {"type": "object", "required": ["id"], "properties": {
				"id": {"type": "integer"}, "outer": {"type": "array", "items": {}},
				"place": {"type": "object", "properties": {"X": {"type": "integer"}}}}},
			"Untagged": {"type": "string"},
			"type": {"type": "string", "const": "demo"},
			"cniVersion": {"type": "string"},
			"ipam": {"type": "object", "properties": {"type": {"type": "string"}}},
			"name": {"type": "string"},
			"prevResult": {},
			"runtimeConfig": {},
			"args": {},
			"capabilities": {"type": "object", "properties": {"mac": {"type": "boolean"}},
				"additionalProperties": {"type": "boolean"}, "description": "capability arguments that the runtime passes in runtimeConfig"}
		}}`
	for key, want := range map[string]bool{"flag": false, "level": false, "rate": true,
		"self": true} {
		if got := s.Properties[key].Optional; got != want {
			t.Errorf("%s is optional: %t", key, got)
		}
	}
	for _, key := range []string{"runtimeConfig", "args"} { // not tested here
		s.Properties[key] = &plugin.Schema{}
	}
	got, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(indented(t, []byte(want)), indented(t, got)); diff != "" {
		t.Errorf("schema (-want +got):\n%s", diff)
	}
	const module = "github.com/tenon-cni/tenon/"
	for key, want := range map[string]string{"dns": module + "plugin_test.described.DNS",
		"name": module + "plugin.Common.Name"} {
		if got := s.Properties[key].Field; got != want {
			t.Errorf("%s comes from %s, want %s", key, got, want)
		}
	}
	if got, want := s.Properties["self"].Properties["place"].Properties["X"].Field,
		module+"plugin_test.inner.Place.X"; got != want {
		t.Errorf("a field of a type without a name comes from %s, want %s", got, want)
	}
	if diff := cmp.Diff([]string{"dns", "flag", "small"}, s.Order[:3]); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// managed has its own ipam section.
type managed struct {
	plugin.Common
	IPAM struct {
		Pool string `json:"pool" required:"true"`
	} `json:"ipam"`
}

func TestSchemaOfIPAM(t *testing.T) {
	t.Parallel()
	d := plugin.DefineFlow(plugin.Info{Name: "pool", Role: plugin.RoleIPAM},
		func() (plugin.Configuration, plugin.Plugin) { return new(managed), nil })
	s := d.Schema()
	ipam := s.Properties["ipam"]
	if ipam.Properties["type"].Const != "pool" || s.Properties["type"].Const != "" {
		t.Errorf("type is %q, ipam.type %q", s.Properties["type"].Const,
			ipam.Properties["type"].Const)
	}
	if diff := cmp.Diff([][]string{{"type", "ipam"}, {"type", "pool"}},
		[][]string{s.Required, ipam.Required}); diff != "" {
		t.Errorf("required (-want +got):\n%s", diff)
	}
}

// indented returns an object as indented text with sorted members.
func indented(t *testing.T, document []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(document, &v); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// refuser returns the configured error.
type refuser struct {
	plugin.Plugin
	conf *described
}

func (r refuser) Validate(*plugin.Call) error {
	if r.conf.Mode == "b" {
		return cni.Errorf(cni.CodeUnsupportedField, "mode: b is not supported")
	}
	return nil
}

// Validate needs no namespace and runs nothing: the plugin's other methods are nil.
func TestDefinitionValidate(t *testing.T) {
	t.Parallel()
	type nameless struct{ plugin.Common }
	d := plugin.DefineFlow(plugin.Info{Name: "demo", Versions: []cni.Version{cni.V110}},
		func() (plugin.Configuration, plugin.Plugin) {
			conf := new(described)
			return conf, refuser{conf: conf}
		})
	for name, row := range map[string]struct {
		conf string
		want cni.Code
	}{
		"not JSON": {`{`, cni.CodeDecodingFailure},
		"version": {`{"cniVersion":"1.0.0","name":"n","type":"demo"}`,
			cni.CodeIncompatibleVersion},
		"the plugin says no": {`{"cniVersion":"1.1.0","name":"n","type":"demo","mode":"b"}`,
			cni.CodeUnsupportedField},
		"wrong JSON type": {`{"cniVersion":"1.1.0","name":"n","type":"demo","flag":1}`,
			cni.CodeDecodingFailure},
		"its own ipam plugin": {`{"cniVersion":"1.1.0","name":"n","type":"demo","ipam":{"type":"demo"}}`, cni.CodeInvalidConfig},
	} {
		if err := d.Validate([]byte(row.conf)); cni.CodeOf(err) != row.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	silent := plugin.DefineFlow(plugin.Info{Name: "silent"},
		func() (plugin.Configuration, plugin.Plugin) { return new(nameless), nil })
	if err := silent.Validate([]byte(`{"name":"n","type":"silent"}`)); err != nil {
		t.Errorf("a plugin without a Validator: %v", err)
	}
}
