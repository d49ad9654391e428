package nft

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// MaxComment is the length in bytes of the longest comment of an element.
const MaxComment = 128

// Entry is an element that an owner wants in a set of a concern.
type Entry struct {
	concern *Concern
	set     string
	element nftmsg.Element // without comment
	scope   int            // so many bytes of the key say what it is about: what others have about the same is replaced
	chain   *chain         // where the element leads, in a verdict map: there as long as an element leads to it, or nil

	kin func(comment string) bool // in a map of ports, whose element for the same ports will do, or nil
}

func newEntry(concern *Concern, set *set, x nftmsg.Element, scope int) Entry {
	return Entry{concern: concern, set: set.Name, element: x, scope: scope}
}

// absent is the scope of an entry that must not be there, in a set that is a policy.
const absent = -1

// Claim is everything that an owner wants. The elements carry Tag as comment, 1 to [MaxComment] bytes.
type Claim struct {
	Tag     string
	Entries []Entry
}

// Held is an element that is there.
type Held struct {
	Set     string // its name
	Key     []byte
	KeyEnd  []byte // the last key of a range, nil if it is no range
	Value   []byte // in a map
	Comment string // names the owner, "" if it is kept by elements of another set
	Text    string // what it says, for people

	Unwanted bool // in the answer of [Conn.Missing]: it is there and must not be
}

// held is an element as others see it.
func (s *set) held(x nftmsg.Element) Held {
	return Held{Set: s.Name, Key: x.Key, KeyEnd: x.KeyEnd, Value: x.Value, Comment: x.Comment, Text: s.text(x)}
}

// owned is the element of an entry as its owner has it.
func (s *set) owned(e Entry, tag string) nftmsg.Element {
	x := e.element
	if s.users == "" {
		x.Comment = tag
	}
	return x
}

func checkComment(comment string) error {
	if comment == "" || len(comment) > MaxComment || strings.ContainsRune(comment, 0) {
		return fmt.Errorf("comment %q: not 1 to %d bytes without NUL", comment, MaxComment)
	}
	return nil
}

// elements lists a set; one that is not there has none.
func (c *Conn) elements(set nftmsg.Set) ([]nftmsg.Element, error) {
	es, err := c.messages.Elements(set)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("elements of nft set %s: %w", set.Name, explain(err, lackingQuestion))
	}
	return es, nil
}

// element reads the element that has a key, alone or in its range; nil if there is none.
func (c *Conn) element(set nftmsg.Set, key []byte) (*nftmsg.Element, error) {
	es, err := c.messages.Elements(set, key)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("element of nft set %s: %w", set.Name, explain(err, lackingQuestion))
	case len(es) != 1:
		return nil, fmt.Errorf("element of nft set %s: %d answers", set.Name, len(es))
	}
	return &es[0], nil
}

func contains(list []nftmsg.Element, x nftmsg.Element) bool {
	return slices.ContainsFunc(list, func(y nftmsg.Element) bool { return equal(x, y) })
}

// equal compares elements. The end of a range of one is not always told.
func equal(a, b nftmsg.Element) bool {
	return bytes.Equal(a.Key, b.Key) && bytes.Equal(lastKey(a), lastKey(b)) && bytes.Equal(a.Value, b.Value) && chainOf(a) == chainOf(b) &&
		a.Comment == b.Comment
}

// lastKey returns the last key of an element, which is its only one unless it is a range.
func lastKey(x nftmsg.Element) []byte {
	if x.KeyEnd == nil {
		return x.Key
	}
	return x.KeyEnd
}

func entriesOf(claims []Claim) (all []Entry) {
	for _, claim := range claims {
		all = append(all, claim.Entries...)
	}
	return all
}

// concerns lists the concerns of entries, each once.
func concerns(entries []Entry) (list []*Concern) {
	for _, e := range entries {
		if !slices.Contains(list, e.concern) {
			list = append(list, e.concern)
		}
	}
	return list
}
