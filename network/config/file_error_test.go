package config_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/conformance"
	"github.com/tenon-cni/tenon/network/config"
)

// The position of an error in a file is marked with |.
func TestFileErrorPlace(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, content string }{
		{"first byte", `|x`},
		{"within a line", "{\n \"name\" |x}"},
		{"columns are characters", "{\"name\": \"ä€\" |x}"},
		{"after the object", "{\"name\": \"n\"}\n|x"},
		{"last byte of an incomplete document", "{\n \"name\":|\n"},
		{"wrong type", `{"name": |5}`},
		{"list-level value",
			"{\"name\": \"n\", \"cniVersion\": \"1.1.0\",\r\n\"disableCheck\"\t:  |\"maybe\"}"},
		{"innermost existing object for a missing key",
			`{"name": "n", "plugins": [{"type": "a"}, |{"x": 1}]}`},
		{"key in different case", `{"name": "n", "plugins": [{"TYPE": |5}]}`},
		{"last of equal keys", `{"name": "n", "plugins": [{"type": 1, "type": |2}]}`},
		{"exact key before one in different case",
			`{"name": "n", "plugins": [{"type": |"a/b", "Type": 2}]}`},
		{"key with a slash",
			`{"name": "n", "plugins": [{"type": "x", "capabilities": {"a/~b": |1}}]}`},
		{"delegate", `{"name": "n", "plugins": [{"type": "x", "ipam": { "type": |"../y"}}]}`},
		{"nowhere", `{"plugins": []}`},
		{"nothing", ``},
	} {
		content := strings.Replace(tt.content, "|", "", 1)
		dir := tree(t, map[string]string{"10.conflist": content})
		_, err := config.LoadFile(filepath.Join(dir, "10.conflist"))
		var e *config.FileError
		if !errors.As(err, &e) {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got := mark(content, e); got != tt.content {
			t.Errorf("%s: got %q, want %q (%v)", tt.name, got, tt.content, err)
		}
	}
}

// mark inserts a bar at the position of e.
func mark(content string, e *config.FileError) string {
	if e.Line == 0 {
		return content
	}
	lines := strings.Split(content, "\n")
	line := []rune(lines[e.Line-1])
	lines[e.Line-1] = string(line[:e.Column-1]) + "|" + string(line[e.Column-1:])
	return strings.Join(lines, "\n")
}

// Every position lies within the document, and every valid JSON document states its name.
func FuzzBroken(f *testing.F) {
	vectors, err := conformance.Vectors()
	if err != nil {
		f.Fatal(err)
	}
	for _, v := range vectors {
		if v.Kind == conformance.KindConflist || v.Kind == conformance.KindConf {
			f.Add(v.Data)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, name := config.WhatIsWrong(b)
		if e == nil {
			return
		}
		if lines := bytes.Count(b, []byte("\n")) + 1; e.Line < 0 || e.Line > lines ||
			(e.Line == 0) != (e.Column == 0) || e.Column > len(b)+1 {
			t.Errorf("position %d:%d of %d lines", e.Line, e.Column, lines)
		}
		var m map[string]any
		if json.Unmarshal(b, &m) == nil {
			if want, isText := m["name"].(string); isText && name != want {
				t.Errorf("name %q, want %q", name, want)
			}
		}
	})
}
