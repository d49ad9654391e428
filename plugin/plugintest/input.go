package plugintest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
)

// input sends invalid ADD requests. ADD must fail with a documented code and leave no trace, or
// accept keys that it does not know.
func input(_ *testing.T, r *Runtime) {
	r.Container("c")
	before := r.state()
	whole := r.marshal(r.Conf)
	for _, stdin := range [][]byte{
		{}, []byte("null"), []byte("[]"), []byte(`"x"`), []byte("\x00"), whole[:len(whole)/2],
		whole[:len(whole)-1],
		append(slices.Clone(whole), whole...),
	} {
		q := r.Request(cni.Add, "c")
		q.Stdin = stdin
		r.Refused(q, cni.CodeDecodingFailure)
	}
	for _, m := range members(r.Conf) {
		for _, value := range wrong(m.value) {
			q := r.Request(cni.Add, "c")
			q.Conf = m.set(q.Conf, value)
			_, err := r.Do(r.t.Context(), q)
			switch code := cni.CodeOf(err); code {
			case 0:
				q.Command = cni.Del
				r.Must(q)
			case cni.CodeUnsupportedField, cni.CodeDecodingFailure, cni.CodeInvalidConfig:
			default:
				r.t.Errorf("%s = %v: code %d does not report a wrong configuration, want 2, 6 or 7: %v", m, value, code, err)
			}
		}
	}
	r.unknown()
	r.unchanged(before)
}

// unknown sends ADD keys that no plugin knows. ADD must accept them or fail with code 2 and a
// message with key and value, and must ignore unknown args (CFG-40).
func (r *Runtime) unknown() {
	const key, value = "org.example.unknown", "odd"
	q := r.Request(cni.Add, "c")
	q.Conf[key] = value
	_, err := r.Do(r.t.Context(), q)
	named := err == nil || strings.Contains(err.Error(), key) &&
		strings.Contains(err.Error(), value)
	if code := cni.CodeOf(err); err != nil && code != cni.CodeUnsupportedField || !named {
		r.t.Errorf("unknown key %s = %q: code %d, want success, or code 2 and a message with key and value (CFG-40): %v",
			key, value, code, err)
	}
	q.Command = cni.Del
	r.Must(q)

	q = r.Request(cni.Add, "c")
	args := object{key: value}
	if own, ok := q.Conf["args"].(object); ok {
		maps.Copy(args, own)
	}
	q.Conf["args"] = args
	r.Must(q)
	q.Command = cni.Del
	r.Must(q)
}

// wrong returns invalid values for a member with the value v.
func wrong(v any) []any {
	all := []any{5.0, "x", true, []any{}, object{"x": nil}}
	all = slices.DeleteFunc(all, func(w any) bool { return reflect.TypeOf(w) == reflect.TypeOf(v) })
	switch v.(type) {
	case float64:
		all = append(all, -1.5)
	case []any:
		all = append(all, []any{5.0}, []any{nil})
	}
	return all
}

// member is a member of a configuration.
type member struct {
	path  []string
	value any
}

func (m member) String() string { return strings.Join(m.path, ".") }

// members lists all members of a configuration, including nested ones.
func members(conf object) []member {
	var all []member
	var walk func(path []string, v any)
	walk = func(path []string, v any) {
		if path != nil {
			all = append(all, member{path, v})
		}
		for key, inner := range children(v) {
			walk(append(slices.Clip(path), key), inner)
		}
	}
	walk(nil, conf)
	slices.SortFunc(all, func(a, b member) int { return slices.Compare(a.path, b.path) })
	return all
}

// children returns the members of an object and the elements of a list, by key or index.
func children(v any) object {
	switch v := v.(type) {
	case object:
		return v
	case []any:
		o := object{}
		for i, element := range v {
			o[strconv.Itoa(i)] = element
		}
		return o
	}
	return nil
}

// set returns a copy of the configuration with another value for the member.
func (m member) set(conf object, value any) object { return replace(conf, m.path, value).(object) }

func replace(v any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	switch v := v.(type) {
	case object:
		c := maps.Clone(v)
		c[path[0]] = replace(v[path[0]], path[1:], value)
		return c
	case []any:
		c := slices.Clone(v)
		i, err := strconv.Atoi(path[0])
		if err != nil {
			panic(fmt.Sprintf("plugintest: index %q", path[0]))
		}
		c[i] = replace(v[i], path[1:], value)
		return c
	}
	panic(fmt.Sprintf("plugintest: %q in %T", path[0], v))
}
