package plugin

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Schema is a JSON Schema (draft 2020-12) of as much as configurations need. Keys that it does not have are not refused:
// plugins ignore what they do not know.
type Schema struct {
	Dialect     string             `json:"$schema,omitempty"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description,omitempty"`
	Type        string             `json:"type,omitempty"` // empty: anything
	Const       string             `json:"const,omitempty"`
	Enum        []string           `json:"enum,omitempty"`
	Default     any                `json:"default,omitempty"`
	Minimum     *int64             `json:"minimum,omitempty"`
	Maximum     *int64             `json:"maximum,omitempty"`
	Items       *Schema            `json:"items,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Properties  map[string]*Schema `json:"properties,omitempty"`
	Additional  *Schema            `json:"additionalProperties,omitempty"` // of keys that are not in Properties

	// Order is the keys of Properties in the order of the type.
	Order []string `json:"-"`
	// Field is where the property comes from, for tools that look up its comment: import path, type and field, with dots;
	// in a type without a name that of the outer field and its own.
	Field string `json:"-"`
	// Optional says that an absent key is not the same as the zero value: the field is a pointer.
	Optional bool `json:"-"`
}

// Former is a type that decodes itself and says which type has the same JSON form.
type Former interface {
	JSONForm() any
}

// Schema describes the configurations of the plugin as they stand in a network configuration. It follows from the type
// that was given to [Define]: what encoding/json would read into it, and the tags of its fields
//
//	default:"cni0"   what an absent key stands for
//	enum:"a,b"       the texts that are allowed
//	min:"0" max:"9"  the least and the greatest number
//	required:"true"  there is no configuration without this key
//
// Types that implement [encoding.TextUnmarshaler] are strings. A type with an UnmarshalJSON of its own can be anything,
// unless it is a [Former].
func (d Definition) Schema() *Schema {
	s := describe(d.configType(), "", nil)
	s.Dialect = "https://json-schema.org/draft/2020-12/schema"
	s.Title, s.Description = d.Name, d.About
	s.Required = append([]string{"type"}, s.Required...)
	capabilities := &Schema{Type: "object", Additional: &Schema{Type: "boolean"}, Description: "what the runtime is to pass on in runtimeConfig"}
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

// describe returns the schema of a type, which is that of a field. outer are the structs it is part of: one that holds
// itself is not followed.
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
			return &Schema{Type: "string"} // in base 64
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

// addFields adds the fields of a struct, and those of embedded ones that they do not hide.
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

// constrain applies what the tags of a field say.
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
