package lint

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// kind is the type of a JSON value.
type kind string

const (
	isObject  kind = "object"
	isArray   kind = "array"
	isString  kind = "string"
	isNumber  kind = "number"
	isBoolean kind = "boolean"
	isNull    kind = "null"
)

// node is a value of a document and where it stands.
type node struct {
	kind     kind
	pointer  string
	members  []member // of an object, in their order
	elements []*node  // of an array
	raw      json.RawMessage

	document []byte
	offset   int
}

type member struct {
	key   string
	name  *node // the key as a value, for its place
	value *node
}

// parse reads a document that is JSON.
func parse(document []byte) *node {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	p := parser{document, d}
	return p.value("")
}

type parser struct {
	document []byte
	*json.Decoder
}

// start is where the next token begins.
func (p parser) start() int {
	offset := int(p.InputOffset())
	return len(p.document) - len(bytes.TrimLeft(p.document[offset:], " \t\r\n,:"))
}

func (p parser) value(pointer string) *node {
	n := &node{pointer: pointer, document: p.document, offset: p.start()}
	token, err := p.Token()
	if err != nil {
		return n
	}
	switch t := token.(type) {
	case json.Delim:
		n.kind = isArray
		if t == '{' {
			n.kind = isObject
		}
		for p.More() {
			p.child(n)
		}
		p.Token() // the closing bracket: the document is JSON
	case string:
		n.kind = isString
	case json.Number:
		n.kind = isNumber
	case bool:
		n.kind = isBoolean
	default:
		n.kind = isNull
	}
	n.raw = p.document[n.offset:p.InputOffset()]
	return n
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

func (p parser) child(n *node) {
	if n.kind == isArray {
		n.elements = append(n.elements, p.value(n.pointer+"/"+strconv.Itoa(len(n.elements))))
		return
	}
	name := &node{kind: isString, document: p.document, offset: p.start()}
	token, _ := p.Token()
	key, _ := token.(string)
	n.members = append(n.members, member{key, name, p.value(n.pointer + "/" + escape.Replace(key))})
}

// label is the last key on the way to the value, with the indices behind it: "ranges[0]".
func (n *node) label() string {
	label := ""
	for _, token := range slices.Backward(strings.Split(n.pointer, "/")) {
		if _, err := strconv.Atoi(token); err != nil {
			return token + label
		}
		label = "[" + token + "]" + label
	}
	return label
}

// position is the line and the column, in characters, where the value begins.
func (n *node) position() (line, column int) { return position(n.document, n.offset) }

func position(document []byte, offset int) (line, column int) {
	before := document[:min(offset, len(document))]
	line = 1 + bytes.Count(before, []byte("\n"))
	return line, 1 + utf8.RuneCount(before[1+bytes.LastIndexByte(before, '\n'):])
}

// get returns the member with a key, in its exact spelling or else in any other; the last of several. It returns nil if
// there is none, and for what is no object.
func (n *node) get(key string) *node {
	if n == nil {
		return nil
	}
	var found *node
	exact := false
	for _, m := range n.members {
		if m.key == key || !exact && strings.EqualFold(m.key, key) {
			found, exact = m.value, m.key == key
		}
	}
	return found
}

// path is get for a member of a member.
func (n *node) path(keys ...string) *node {
	for _, key := range keys {
		n = n.get(key)
	}
	return n
}

// element returns an element of an array; the array itself if there is no such element.
func (n *node) element(i int) *node {
	if n == nil || i >= len(n.elements) {
		return n
	}
	return n.elements[i]
}

// keys are the members of an object, none of anything else.
func (n *node) keys() []member {
	if n == nil {
		return nil
	}
	return n.members
}

// all are the elements of an array, none of anything else.
func (n *node) all() []*node {
	if n == nil {
		return nil
	}
	return n.elements
}

// text returns the value of a string, "" of anything else.
func (n *node) text() string {
	var s string
	if n == nil || n.kind != isString || json.Unmarshal(n.raw, &s) != nil {
		return ""
	}
	return s
}

// isTrue reports whether the value is true.
func (n *node) isTrue() bool { return n != nil && string(n.raw) == "true" }

// find returns the first value, in the order of the document, that fits.
func (n *node) find(fits func(*node) bool) *node {
	for _, m := range n.keys() {
		if found := m.value.find(fits); found != nil {
			return found
		}
	}
	for _, e := range n.all() {
		if found := e.find(fits); found != nil {
			return found
		}
	}
	if n != nil && fits(n) {
		return n
	}
	return nil
}
