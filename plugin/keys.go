package plugin

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
)

// inKeys removes the names of embedded structs, which encoding/json includes in field paths, from
// an error of decoding into t.
func inKeys(err error, t reflect.Type) error {
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		wrong.Field = keys(wrong.Field, t)
	}
	return err
}

func keys(path string, t reflect.Type) string {
	var names []string
	for part := range strings.SplitSeq(path, ".") {
		var embedded bool
		if t, embedded = member(t, part); !embedded {
			names = append(names, part)
		}
	}
	return strings.Join(names, ".")
}

// member returns the type of the struct field with the given JSON key, or of the embedded struct
// with the given type name. It returns nil if there is none.
func member(t reflect.Type, name string) (field reflect.Type, embedded bool) {
	for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice ||
		t.Kind() == reflect.Array) {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil, false
	}
	for i := range t.NumField() {
		f := t.Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if key == "" && f.Name == name || key == name {
			return f.Type, f.Anonymous && key == ""
		}
	}
	return nil, false
}
