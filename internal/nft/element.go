package nft

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// MaxComment is the length in bytes of the longest comment of an element.
const MaxComment = 128

// Element is an element that an owner wants in a set of a rule set.
type Element struct {
	ruleSet *RuleSet
	set     string
	raw     nftmsg.Element // without comment

	// scope is the length of the beginning of the key that names the subject of the element. The
	// owner of a request becomes the only owner of elements with the same subject.
	scope int

	absent bool   // the element must not exist; only in a set that is a policy
	chain  *chain // in a verdict map, the target, which exists while an element leads to it

	// shares reports whether another owner's mapping of the same ports suffices. It may be nil.
	shares func(owner string) bool
}

func newElement(rs *RuleSet, set *set, x nftmsg.Element, scope int) Element {
	return Element{ruleSet: rs, set: set.Name, raw: x, scope: scope}
}

// keyElement returns an element with its whole key as the subject.
func keyElement(rs *RuleSet, set *set, key []byte) Element {
	return newElement(rs, set, nftmsg.Element{Key: key}, len(key))
}

// Request lists all elements that an owner wants in their rule sets. The owner becomes the comment
// of each element and has 1 to [MaxComment] bytes.
type Request struct {
	Owner    string
	Elements []Element

	// Peers is the prefix of the owners of the same network. The owner replaces other owners of its
	// addresses that have this prefix: an address is unique within a network. It shares an address
	// with owners that do not have it. With an empty prefix it replaces all.
	Peers string
}

// Held is an element that exists.
type Held struct {
	Set     string // its name
	Key     []byte
	KeyEnd  []byte // the last key of a range, nil unless it is a range
	Value   []byte // in a map
	Comment string // its owner, "" if elements of another set keep it
	Text    string // describes the element for users

	// Waiting reports that an owner of another network holds the address, so that its options are in
	// force.
	Waiting bool

	Unwanted bool // in the result of [Conn.Missing]: the element exists and must not
}

func (s *set) held(x nftmsg.Element) Held {
	if s.waitsFor != nil {
		h := s.waitsFor.held(s.waitsFor.awaited(x))
		h.Waiting = true
		return h
	}
	return Held{
		Set: s.Name, Key: x.Key, KeyEnd: x.KeyEnd, Value: x.Value,
		Comment: x.Comment, Text: s.text(x),
	}
}

// owned returns the element as it exists for an owner.
func (s *set) owned(e Element, owner string) nftmsg.Element {
	x := e.raw
	if s.references == "" {
		x.Comment = owner
	}
	return x
}

func checkOwner(comment string) error {
	if comment == "" || len(comment) > MaxComment || strings.ContainsRune(comment, 0) {
		return fmt.Errorf("comment %q must have 1 to %d bytes and no NUL", comment, MaxComment)
	}
	return nil
}

func contains(list []nftmsg.Element, x nftmsg.Element) bool {
	return slices.ContainsFunc(list, func(y nftmsg.Element) bool { return equal(x, y) })
}

// equal compares elements. The kernel does not always report the end of a range of one key.
func equal(a, b nftmsg.Element) bool {
	return bytes.Equal(a.Key, b.Key) && bytes.Equal(lastKey(a), lastKey(b)) &&
		bytes.Equal(a.Value, b.Value) && chainOf(a) == chainOf(b) && a.Comment == b.Comment
}

// lastKey returns the last key of an element, which is its only one unless it is a range.
func lastKey(x nftmsg.Element) []byte {
	if x.KeyEnd == nil {
		return x.Key
	}
	return x.KeyEnd
}

// ruleSetsOf lists the rule sets of the elements of requests, each once.
func ruleSetsOf(requests ...Request) (list []*RuleSet) {
	for _, r := range requests {
		for _, e := range r.Elements {
			if !slices.Contains(list, e.ruleSet) {
				list = append(list, e.ruleSet)
			}
		}
	}
	return list
}
