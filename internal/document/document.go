// Package document parses JSON documents into values with positions, for messages that refer to a
// position in a file. It does not know the meaning of the values.
package document

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Kind is the type of a JSON value.
type Kind string

// The kinds of values. The value at the first syntax error of a document is Invalid.
const (
	Invalid Kind = ""
	Object  Kind = "object"
	Array   Kind = "array"
	String  Kind = "string"
	Number  Kind = "number"
	Boolean Kind = "boolean"
	Null    Kind = "null"
)

// Node is a value of a document with its position. A nil Node represents an absent value, which has
// no members.
type Node struct {
	Kind     Kind
	Pointer  string   // JSON pointer (RFC 6901); empty for the document
	Members  []Member // of an object, in order
	Elements []*Node  // of an array
	Raw      json.RawMessage

	document []byte
	offset   int
}

// Member is a member of an object.
type Member struct {
	Key   string
	Name  *Node // the key as a value, for its position
	Value *Node
}

// Parse parses a document. If a part of it is not JSON, Parse returns the values before that part.
func Parse(document []byte) *Node {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	p := parser{document: document, Decoder: d}
	return p.value("", 0)
}

// At returns a Node for a position without a value, such as the position of a syntax error.
func At(document []byte, offset int) *Node {
	return &Node{document: document, offset: max(0, min(offset, len(document)))}
}

// deepest is the maximum depth of nested arrays and objects, as in encoding/json.
const deepest = 10000

type parser struct {
	document []byte
	*json.Decoder
	failed bool
}

// start returns the offset of the next token.
func (p *parser) start() int {
	offset := int(p.InputOffset())
	return len(p.document) - len(bytes.TrimLeft(p.document[offset:], " \t\r\n,:"))
}

// token returns the next token. It returns nil, as for null, after the last one.
func (p *parser) token() json.Token {
	token, err := p.Token()
	p.failed = p.failed || err != nil
	return token
}

func (p *parser) value(pointer string, depth int) *Node {
	n := &Node{Pointer: pointer, document: p.document, offset: p.start()}
	switch t := p.token().(type) {
	case json.Delim:
		n.Kind = Array
		if t == '{' {
			n.Kind = Object
		}
		p.failed = p.failed || depth == deepest
		for !p.failed && p.More() {
			p.child(n, depth+1)
		}
		if !p.failed {
			p.token() // the closing bracket
		}
	case string:
		n.Kind = String
	case json.Number:
		n.Kind = Number
	case bool:
		n.Kind = Boolean
	default:
		if p.failed {
			return n
		}
		n.Kind = Null
	}
	n.Raw = p.document[n.offset:p.InputOffset()]
	return n
}

func (p *parser) child(n *Node, depth int) {
	if n.Kind == Array {
		n.Elements = append(n.Elements, p.value(n.Pointer+"/"+strconv.Itoa(len(n.Elements)), depth))
		return
	}
	name := &Node{Kind: String, document: p.document, offset: p.start()}
	key, _ := p.token().(string)
	if p.failed {
		return
	}
	n.Members = append(n.Members, Member{key, name, p.value(n.Pointer+"/"+escape(key), depth)})
}

// escape encodes ~ and / in a key of a JSON pointer (RFC 6901 section 3).
func escape(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}

func unescape(token string) string {
	return strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
}

// Position returns the line and the column of the start of the value, both from 1; columns count
// characters.
func (n *Node) Position() (line, column int) {
	before := n.document[:n.offset]
	line = 1 + bytes.Count(before, []byte("\n"))
	return line, 1 + utf8.RuneCount(before[1+bytes.LastIndexByte(before, '\n'):])
}

// Label returns the last key of the pointer with the indices after it, such as "ranges[0]".
func (n *Node) Label() string {
	label := ""
	for _, token := range slices.Backward(strings.Split(n.Pointer, "/")) {
		if _, err := strconv.Atoi(token); err != nil {
			return token + label
		}
		label = "[" + token + "]" + label
	}
	return label
}

// Get returns the member with a key, or with several keys a nested member. It matches keys as
// configurations are read: exactly, or else without regard to case; the last match counts. It
// returns nil if there is no match.
func (n *Node) Get(keys ...string) *Node {
	for _, key := range keys {
		var found *Node
		exact := false
		for _, m := range n.Keys() {
			if m.Key == key || !exact && strings.EqualFold(m.Key, key) {
				found, exact = m.Value, exact || m.Key == key
			}
		}
		n = found
	}
	return n
}

// Resolve returns the value at a JSON pointer or, if it does not exist, the innermost existing
// value that would contain it. Keys match as in [Node.Get].
func (n *Node) Resolve(pointer string) *Node {
	for _, token := range strings.Split(pointer, "/")[1:] {
		next := n.Get(unescape(token))
		if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(n.Elements) {
			next = n.Elements[i]
		}
		if next == nil {
			break
		}
		n = next
	}
	return n
}

// Element returns an element of an array, or the array itself if there is no such element.
func (n *Node) Element(i int) *Node {
	if n == nil || i >= len(n.Elements) {
		return n
	}
	return n.Elements[i]
}

// Keys returns the members of an object, and none for other values.
func (n *Node) Keys() []Member {
	if n == nil {
		return nil
	}
	return n.Members
}

// All returns the elements of an array, and none for other values.
func (n *Node) All() []*Node {
	if n == nil {
		return nil
	}
	return n.Elements
}

// Text returns the value of a string, and "" for other values.
func (n *Node) Text() string {
	var s string
	if n == nil || n.Kind != String || json.Unmarshal(n.Raw, &s) != nil {
		return ""
	}
	return s
}

// IsTrue reports whether the value is true.
func (n *Node) IsTrue() bool { return n != nil && string(n.Raw) == "true" }

// Find returns the first value, in document order, for which fits returns true.
func (n *Node) Find(fits func(*Node) bool) *Node {
	for _, m := range n.Keys() {
		if found := m.Value.Find(fits); found != nil {
			return found
		}
	}
	for _, e := range n.All() {
		if found := e.Find(fits); found != nil {
			return found
		}
	}
	if n != nil && fits(n) {
		return n
	}
	return nil
}
