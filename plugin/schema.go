package plugin

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Schema is the subset of JSON Schema (draft 2020-12) that configurations need. It does not forbid
// keys that are not in Properties, because plugins ignore unknown keys.
type Schema struct {
	Dialect     string             `json:"$schema,omitempty"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description,omitempty"`
	Type        string             `json:"type,omitempty"` // empty stands for any type
	Const       string             `json:"const,omitempty"`
	Enum        []string           `json:"enum,omitempty"`
	Default     any                `json:"default,omitempty"`
	Minimum     *int64             `json:"minimum,omitempty"`
	Maximum     *int64             `json:"maximum,omitempty"`
	Items       *Schema            `json:"items,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Properties  map[string]*Schema `json:"properties,omitempty"`
	// Additional is the schema of keys that are not in Properties.
	Additional *Schema `json:"additionalProperties,omitempty"`

	// Order lists the keys of Properties in the order of the struct fields.
	Order []string `json:"-"`
	// Field locates the struct field of the property for tools that look up its comment: import
	// path, type and field, separated by dots. For a field of an unnamed type, Field continues the
	// path of the outer field.
	Field string `json:"-"`
	// Optional reports that an absent key differs from the zero value: the field is a pointer.
	Optional bool `json:"-"`
}

// Former is a type with its own UnmarshalJSON that names a type with the same JSON form.
type Former interface {
	JSONForm() any
}

// Schema describes a configuration of the plugin as it appears in a network configuration. It is
// derived from the type given to [Define]: from the fields that encoding/json decodes, and from
// their tags
//
//	default:"cni0"   the meaning of an absent key
//	enum:"a,b"       the allowed strings
//	min:"0" max:"9"  the smallest and the largest number
//	required:"true"  the key is required
//
// Types that implement [encoding.TextUnmarshaler] are strings. A type with its own UnmarshalJSON
// has the empty schema unless it is a [Former].
func (d Definition) Schema() *Schema {
	s := describe(d.configType(), "", nil)
	s.Dialect = "https://json-schema.org/draft/2020-12/schema"
	s.Title, s.Description = d.Name, d.About
	s.Required = append([]string{"type"}, s.Required...)
	capabilities := &Schema{
		Type: "object", Additional: &Schema{Type: "boolean"},
		Description: "capability arguments that the runtime passes in runtimeConfig",
	}
	for _, c := range d.Capabilities {
		capabilities.add(c, &Schema{Type: "boolean"})
	}
	s.add("capabilities", capabilities)
	named := s.Properties["type"]
	if d.Role == RoleIPAM {
		ipam := s.Properties["ipam"]
		s.Required = append(s.Required, "ipam")
		ipam.Required = append([]string{"type"}, ipam.Required...)
		named = &Schema{Type: "string", Description: "file name of the plugin"}
		ipam.add("type", named)
	}
	named.Const = d.Name
	return s
}

func (s *Schema) add(key string, property *Schema) {
	if s.Properties == nil {
		s.Properties = map[string]*Schema{}
	}
	if s.Properties[key] == nil {
		s.Order = append(s.Order, key)
	}
	s.Properties[key] = property
}

// describe returns the schema of type t of a field. outer lists the enclosing structs; a struct
// that contains itself gets the empty schema.
func describe(t reflect.Type, field string, outer []reflect.Type) *Schema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct {
		if slices.Contains(outer, t) {
			return &Schema{}
		}
		outer = append(outer, t)
	}
	switch into := reflect.New(t).Interface().(type) {
	case Former:
		return describe(reflect.TypeOf(into.JSONForm()), field, outer)
	case json.Unmarshaler:
		return &Schema{}
	case encoding.TextUnmarshaler:
		return &Schema{Type: "string"}
	}
	switch t.Kind() {
	case reflect.Bool:
		return &Schema{Type: "boolean"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return &Schema{Type: "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &Schema{Type: "integer", Minimum: new(int64)}
	case reflect.Float32, reflect.Float64:
		return &Schema{Type: "number"}
	case reflect.String:
		return &Schema{Type: "string"}
	case reflect.Slice, reflect.Array:
		if t == reflect.TypeFor[[]byte]() {
			return &Schema{Type: "string"} // base64
		}
		return &Schema{Type: "array", Items: describe(t.Elem(), field, outer)}
	case reflect.Map:
		return &Schema{Type: "object", Additional: describe(t.Elem(), field, outer)}
	case reflect.Struct:
		s := &Schema{Type: "object"}
		s.addFields(t, field, outer)
		return s
	}
	return &Schema{}
}

// addFields adds the fields of a struct and the fields of embedded structs that they do not hide.
func (s *Schema) addFields(t reflect.Type, field string, outer []reflect.Type) {
	if t.Name() != "" {
		field = t.PkgPath() + "." + t.Name()
	}
	var embedded []reflect.Type
	for i := range t.NumField() {
		f := t.Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && key == "" {
			embedded = append(embedded, f.Type)
			continue
		}
		if !f.IsExported() || key == "-" {
			continue
		}
		if key == "" {
			key = f.Name
		}
		if s.Properties[key] != nil {
			continue
		}
		property := describe(f.Type, field+"."+f.Name, outer)
		property.Field = field + "." + f.Name
		property.Optional = f.Type.Kind() == reflect.Pointer
		property.constrain(f.Tag)
		s.add(key, property)
		if f.Tag.Get("required") == "true" {
			s.Required = append(s.Required, key)
		}
	}
	for _, e := range embedded {
		s.addFields(e, field, outer)
	}
}

// constrain applies the tags of a field.
func (s *Schema) constrain(tag reflect.StructTag) {
	if text, ok := tag.Lookup("default"); ok {
		s.Default = text
		if s.Type != "string" {
			s.Default = json.RawMessage(text)
		}
	}
	if text, ok := tag.Lookup("enum"); ok {
		s.Enum = strings.Split(text, ",")
	}
	for key, limit := range map[string]**int64{"min": &s.Minimum, "max": &s.Maximum} {
		if n, err := strconv.ParseInt(tag.Get(key), 10, 64); err == nil {
			*limit = &n
		}
	}
}
