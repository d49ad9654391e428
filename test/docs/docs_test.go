package docs

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/all"
)

var update = flag.Bool("update", false, "rewrite docs/plugins and docs/schema")

const root = "../.."

// described returns the schema of a plugin with its descriptions.
func described(t *testing.T, d plugin.Definition) *plugin.Schema {
	t.Helper()
	s := d.Schema()
	if err := (&comments{root: root}).annotate(s); err != nil {
		t.Errorf("%s: %v", d.Name, err)
	}
	return s
}

// encode writes a schema as people read it.
func encode(t *testing.T, s *plugin.Schema) string {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestReference compares the pages and schemas of all plugins with the sources. There must be no
// others.
func TestReference(t *testing.T) {
	t.Parallel()
	files := map[string]string{filepath.Join(root, "docs", "plugins", "README.md"): index(all.Described())}
	for _, d := range all.Described() {
		s := described(t, d)
		files[filepath.Join(root, "docs", "schema", d.Name+".json")] = encode(t, s)
		files[filepath.Join(root, "docs", "plugins", d.Name+".md")] = page(d, s)
	}
	for name, want := range files {
		if *update {
			if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, _ := os.ReadFile(name)
		if diff := cmp.Diff(string(got), want); diff != "" {
			t.Errorf("%s is stale, run make golden (-there +made):\n%s", name, diff)
		}
	}
	for _, pattern := range []string{"docs/schema/*", "docs/plugins/*"} {
		there, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range there {
			if files[name] == "" {
				t.Errorf("%s: there is no such plugin", name)
			}
		}
	}
}

// TestDocHasNoTableOfOptions: doc.md does not repeat generated content.
func TestDocHasNoTableOfOptions(t *testing.T) {
	t.Parallel()
	for _, d := range all.Described() {
		if strings.Contains(d.Doc, "| key |") {
			t.Errorf("doc.md of %s has a table of options: it comes from the comments of the fields", d.Name)
		}
	}
}

// TestRoles: only IPAM plugins define an ipam section of their own.
func TestRoles(t *testing.T) {
	t.Parallel()
	for _, d := range all.Described() {
		own := d.Schema().Properties["ipam"].Field != general+"IPAM"
		if own != (d.Role == plugin.RoleIPAM) {
			t.Errorf("%s: role %d, ipam section of its own: %t", d.Name, d.Role, own)
		}
	}
}

// compile returns the published schema of a plugin.
func compile(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile(filepath.Join(root, "docs", "schema", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func accepts(t *testing.T, s *jsonschema.Schema, document string) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(v)
}

// TestExamplesObeySchemas validates every example against the published schemas of its plugin and
// its IPAM plugin.
func TestExamplesObeySchemas(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, d := range all.Described() {
		for _, example := range d.Examples() {
			var conf struct {
				Type string
				IPAM struct{ Type string }
			}
			if err := json.Unmarshal([]byte(example.Config), &conf); err != nil {
				t.Fatal(err)
			}
			for _, typ := range []string{conf.Type, conf.IPAM.Type} {
				if !slices.ContainsFunc(all.Described(), func(d plugin.Definition) bool { return d.Name == typ }) {
					continue
				}
				checked++
				if err := accepts(t, compile(t, typ), example.Config); err != nil {
					t.Errorf("%s, %q: schema %s: %v", d.Name, example.Name, typ, err)
				}
			}
		}
	}
	if checked < len(all.Described()) {
		t.Errorf("%d examples", checked)
	}
}

func TestSchemasRefuse(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ plugin, conf string }{
		"no type":                        {"bridge", `{"name":"n"}`},
		"another plugin's":               {"bridge", `{"type":"macvlan"}`},
		"string for a boolean":           {"bridge", `{"type":"bridge","isGateway":"true"}`},
		"text for a number":              {"bridge", `{"type":"bridge","mtu":"1500"}`},
		"fraction":                       {"bridge", `{"type":"bridge","mtu":1500.5}`},
		"too large":                      {"bridge", `{"type":"bridge","mtu":65536}`},
		"too small":                      {"bridge", `{"type":"bridge","mtu":-1}`},
		"none of the words":              {"bridge", `{"type":"bridge","ipMasqBackend":"ipset"}`},
		"string for an object":           {"bridge", `{"type":"bridge","ipam":"host-local"}`},
		"capability that is no boolean":  {"bridge", `{"type":"bridge","capabilities":{"mac":"yes"}}`},
		"unknown capability as a number": {"bridge", `{"type":"bridge","capabilities":{"x":1}}`},
		"capabilities as a list":         {"bridge", `{"type":"bridge","capabilities":["mac"]}`},
		"nameserver instead of a list":   {"bridge", `{"type":"bridge","dns":{"nameservers":"10.0.0.1"}}`},
		"no ipam":                        {"host-local", `{"type":"bridge"}`},
		"ipam of another plugin":         {"host-local", `{"type":"bridge","ipam":{"type":"static"}}`},
		"ranges without sets":            {"host-local", `{"type":"bridge","ipam":{"type":"host-local","ranges":[{"subnet":"10.0.0.0/24"}]}}`},
		"range without subnet":           {"host-local", `{"type":"bridge","ipam":{"type":"host-local","ranges":[[{"rangeStart":"10.0.0.5"}]]}}`},
		"route without dst":              {"host-local", `{"type":"bridge","ipam":{"type":"host-local","routes":[{"gw":"10.0.0.1"}]}}`},
		"route table as text":            {"host-local", `{"type":"bridge","ipam":{"type":"host-local","routes":[{"dst":"::/0","table":"main"}]}}`},
	} {
		if accepts(t, compile(t, row.plugin), row.conf) == nil {
			t.Errorf("%s: %s accepts %s", name, row.plugin, row.conf)
		}
	}
}

func TestSchemasAllowUnknownKeys(t *testing.T) {
	t.Parallel()
	const conf = `{"type":"bridge","keyA":["x"],"ipam":{"type":"host-local","later":{}},"capabilities":{"other":false}}`
	for _, name := range []string{"bridge", "host-local"} {
		if err := accepts(t, compile(t, name), conf); err != nil {
			t.Error(err)
		}
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	keys := map[string]string{"IsGateway": "isGateway", "Mode": "mode", "ipam": "ipam"}
	for comment, want := range map[string]string{
		"Mode is the way\nit works.":             "The way it works",
		"Mode implies IsGateway, see [Options].": "Implies isGateway, see Options",
		"version of this call":                   "Version of this call",
		"Modes are several. Mode is one.":        "Modes are several. mode is one",
		"":                                       "",
	} {
		if got := plain(comment, "Mode", keys, nil); got != want {
			t.Errorf("%q became %q, want %q", comment, got, want)
		}
	}
}

// All interface plugins have the common options: their configuration embeds attach.Common.
func TestCommonOptions(t *testing.T) {
	t.Parallel()
	for _, p := range all.Described() {
		if p.Role == plugin.RoleInterface && p.Schema().Properties["secondDefaultRoute"] == nil {
			t.Errorf("%s has no secondDefaultRoute", p.Name)
		}
	}
}
