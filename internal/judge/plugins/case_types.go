package plugins

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// wrongTypes are requests with values of the wrong JSON type. A plugin that does not read the key may
// accept them.
func (s *Setup) wrongTypes() (list []wrongInput) {
	add := func(key string, value any) {
		list = append(list, wrongInput{"type-" + key, "", anyRefusal, With(key, value)})
	}
	add("type", 5)
	add("dns", "x")
	add("args", "x")
	add("runtimeConfig", "x")
	request := s.Request(1)
	for _, key := range sortedKeys(request) {
		if slices.Contains([]string{"cniVersion", "name", "type", "runtimeConfig"}, key) ||
			key == "ipam" && s.Role != IPAM {
			continue
		}
		for _, m := range nested([]string{key}, request[key]) {
			if name := strings.Join(m.path, "."); name != "ipam" && name != "ipam.type" {
				list = append(list, wrongInput{"type-" + name, "", anyRefusal, m.wrong})
			}
		}
	}
	return list
}

// member is a value in a request, and the keys and indexes that lead to it.
type member struct {
	path  []string
	value any
}

// nested returns a value and all values in it.
func nested(path []string, value any) (list []member) {
	list = append(list, member{path, value})
	switch v := value.(type) {
	case map[string]any:
		for _, key := range sortedKeys(v) {
			list = append(list, nested(append(slices.Clip(path), key), v[key])...)
		}
	case []any:
		for i, element := range v {
			list = append(list, nested(append(slices.Clip(path), strconv.Itoa(i)), element)...)
		}
	}
	return list
}

// wrong gives the member of a request a value of another JSON type.
func (m member) wrong(d *Draft) {
	var at any = d.Request
	for _, step := range m.path[:len(m.path)-1] {
		switch v := at.(type) {
		case map[string]any:
			at = v[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil {
				panic(err) // see nested
			}
			at = v[i]
		}
	}
	var value any = "x"
	if _, text := m.value.(string); text {
		value = map[string]any{"x": 1}
	}
	last := m.path[len(m.path)-1]
	switch v := at.(type) {
	case map[string]any:
		v[last] = value
	case []any:
		i, err := strconv.Atoi(last)
		if err != nil {
			panic(err) // see nested
		}
		v[i] = value
	}
}

// typesCase sends values of the wrong JSON type, each for a container of its own.
var typesCase = &Case{
	Name: "types", Once: true, Rows: []string{"CFG-30", "CFG-38", "ERR-12"},
	Script: func(s *Setup) (*script.Scenario, string) {
		var steps []script.Step
		list := s.wrongTypes()
		for i, w := range list {
			steps = append(steps, quiet(s.Call(w.name, cni.Add, i+1, w.call)))
		}
		return s.Scenario(len(list), steps...), ""
	},
	Judge: func(j *Judgment) {
		j.refused(j.Setup.wrongTypes(), nil)
		for call, row := range map[string]string{"type-type": "CFG-30", "type-dns": "CFG-38"} {
			if r, _ := j.Call(call); r.Status == 0 {
				j.Info(row, "the plugin does not judge the JSON type of the key")
			} else {
				j.Pass(row)
			}
		}
	},
}
