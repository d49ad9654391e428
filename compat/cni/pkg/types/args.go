package types

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"
)

// CommonArgs holds the key of CNI_ARGS that all plugins know. A plugin embeds it in a struct with
// its own keys and passes that to [LoadArgs].
type CommonArgs struct {
	// IgnoreUnknown makes LoadArgs accept keys without a field.
	IgnoreUnknown UnmarshallableBool `json:"ignoreunknown,omitempty"`
}

// UnmarshallableBool is a bool for CNI_ARGS: 1, 0, true or false, in upper or lower case.
type UnmarshallableBool bool

// UnmarshalText decodes a bool. The error names the text in lower case.
func (b *UnmarshallableBool) UnmarshalText(data []byte) error {
	switch s := strings.ToLower(string(data)); s {
	case "1", "true":
		*b = true
	case "0", "false":
		*b = false
	default:
		return fmt.Errorf("boolean unmarshal error: invalid input %s", s)
	}
	return nil
}

// UnmarshallableString is a string for CNI_ARGS.
type UnmarshallableString string

// UnmarshalText sets s to the text. It never fails.
func (s *UnmarshallableString) UnmarshalText(data []byte) error {
	*s = UnmarshallableString(data)
	return nil
}

// UnmarshalableArgsError is the error of [LoadArgs] for a field that cannot hold a value of
// CNI_ARGS. The caller of LoadArgs must change its struct.
type UnmarshalableArgsError struct {
	error
}

// GetKeyField returns the field keyString of the struct to which v points. It returns the zero
// Value if v is not a pointer to a struct, if there is no such field, and if the field belongs to
// an embedded pointer that is nil.
func GetKeyField(keyString string, v reflect.Value) reflect.Value {
	field, _ := fieldOf(v, keyString)
	return field
}

// LoadArgs sets the fields of container, a pointer to a struct, to the values of CNI_ARGS. Keys
// match names of fields exactly, and blanks are significant. A field must implement
// [encoding.TextUnmarshaler] as a value, or as a pointer, which LoadArgs sets if it is nil. Keys
// without a field are an error, unless the struct has the bool field IgnoreUnknown (see
// [CommonArgs]) and it is true in the end, wherever the arguments set it.
//
// LoadArgs stops at the first invalid pair, field or value; it
// returns an [UnmarshalableArgsError] for a field, and for a value it wraps the error of
// UnmarshalText. The empty text
// changes nothing.
func LoadArgs(args string, container interface{}) error {
	if args == "" {
		return nil
	}
	v := reflect.ValueOf(container)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return UnmarshalableArgsError{
			fmt.Errorf("ARGS: cannot unmarshal into type '%T': it is not a pointer to a struct", container),
		}
	}
	var unknown []string
	// With SplitSeq, which is a function, the compiler would name the result "#rv1" in export data.
	for _, pair := range strings.Split(args, ";") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || strings.Contains(value, "=") {
			return fmt.Errorf("ARGS: invalid pair %q", pair)
		}
		field, known := fieldOf(v, key)
		if !known {
			unknown = append(unknown, pair)
			continue
		}
		u, err := textUnmarshaler(key, field)
		if err != nil {
			return err
		}
		if err := u.UnmarshalText([]byte(value)); err != nil {
			return fmt.Errorf("ARGS: error parsing value of pair %q: %w", pair, err)
		}
	}
	if len(unknown) > 0 && !ignoresUnknown(v) {
		return fmt.Errorf("ARGS: unknown args %q", unknown)
	}
	return nil
}

// fieldOf returns a field of the struct to which v points. The field is the zero Value, although
// known, if it belongs to an embedded pointer that is nil.
func fieldOf(v reflect.Value, name string) (field reflect.Value, known bool) {
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return reflect.Value{}, false
	}
	f, known := v.Elem().Type().FieldByName(name)
	if !known {
		return reflect.Value{}, false
	}
	field, _ = v.Elem().FieldByIndexErr(f.Index)
	return field, true
}

// textUnmarshaler returns the decoder of a field; it sets a nil pointer to a new value first.
func textUnmarshaler(name string, field reflect.Value) (encoding.TextUnmarshaler, error) {
	if !field.CanSet() {
		return nil, UnmarshalableArgsError{fmt.Errorf("field '%s' has no valid interface", name)}
	}
	pointer := field.Addr()
	if field.Kind() == reflect.Pointer {
		if pointer = field; field.IsNil() {
			pointer = reflect.New(field.Type().Elem())
		}
	}
	u, ok := pointer.Interface().(encoding.TextUnmarshaler)
	if !ok {
		return nil, UnmarshalableArgsError{fmt.Errorf("ARGS: cannot unmarshal into field '%s' - "+
			"type '%s' does not implement encoding.TextUnmarshaler", name, pointer.Type())}
	}
	if field.Kind() == reflect.Pointer {
		field.Set(pointer)
	}
	return u, nil
}

// ignoresUnknown reports whether the field IgnoreUnknown of the struct to which v points is true.
func ignoresUnknown(v reflect.Value) bool {
	field, _ := fieldOf(v, "IgnoreUnknown")
	return reflect.Indirect(field).Kind() == reflect.Bool && reflect.Indirect(field).Bool()
}
