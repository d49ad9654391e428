package nft

import (
	"bytes"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// state caches the state of a network namespace for a diff. Each fact is read from the kernel once,
// when the diff first asks for it, because reading large sets takes milliseconds. After the first
// failure nothing more is read; err keeps it.
type state struct {
	conn *Conn // nil if all facts are given

	statuses map[name]status            // of skeletons, by their first set
	sets     map[name]contents          // of sets that were read as a whole
	lookups  map[string]*nftmsg.Element // by set and key
	chains   map[name][][]nftmsg.Expr
	err      error
}

// name identifies a set or a chain.
type name struct {
	table nftmsg.Table
	name  string
}

func (s *set) id() name   { return name{s.Table, s.Name} }
func (ch chain) id() name { return name{ch.Table, ch.Name} }

// status is the condition of a skeleton.
type status int

const (
	absent   status = iota // does not exist
	damaged                // lacks a chain or rules, as after a flush, which keeps the elements
	outdated               // has another version and rules in each chain
	current
)

// inForce reports whether the elements of the skeleton's sets take effect.
func (s status) inForce() bool { return s >= outdated }

type contents struct {
	exists   bool
	elements []nftmsg.Element
}

func (c *Conn) state() *state {
	return &state{
		conn: c, statuses: map[name]status{}, sets: map[name]contents{},
		lookups: map[string]*nftmsg.Element{}, chains: map[name][][]nftmsg.Expr{},
	}
}

// fact returns a fact from known, or reads it. It is the zero value after a failure.
func fact[K comparable, V any](h *state, known map[K]V, key K, read func(*Conn) (V, error)) (v V) {
	v, ok := known[key]
	if ok || h.conn == nil || h.err != nil {
		return v
	}
	v, err := read(h.conn)
	if err != nil {
		h.err = err
		return *new(V)
	}
	known[key] = v
	return v
}

// status returns the condition of a skeleton.
func (h *state) status(s skeleton) status {
	return fact(h, h.statuses, s.sets[0].id(), func(c *Conn) (status, error) { return c.status(s) })
}

// contents returns all elements of a set, and whether it exists.
func (h *state) contents(s *set) contents {
	return fact(h, h.sets, s.id(), func(c *Conn) (contents, error) { return c.contents(s) })
}

func (h *state) elements(s *set) []nftmsg.Element { return h.contents(s).elements }

// lookup returns the element with a key, alone or in its range; nil if there is none.
func (h *state) lookup(s *set, key []byte) *nftmsg.Element {
	if all, known := h.sets[s.id()]; known && !s.Interval || h.conn == nil {
		for _, x := range all.elements {
			if bytes.Compare(x.Key, key) <= 0 && bytes.Compare(key, lastKey(x)) <= 0 {
				return &x
			}
		}
		return nil
	}
	id := fmt.Sprintf("%d %s %x", s.Table.Family, s.Name, key)
	return fact(h, h.lookups, id, func(c *Conn) (*nftmsg.Element, error) {
		return c.lookup(s, key)
	})
}

// lookupAll returns the existing elements with the keys of keys.
func (h *state) lookupAll(s *set, others []nftmsg.Element) (list []nftmsg.Element) {
	for _, o := range others {
		if x := h.lookup(s, o.Key); x != nil {
			list = append(list, *x)
		}
	}
	return list
}

// rules returns the rules of a chain.
func (h *state) rules(ch chain) [][]nftmsg.Expr {
	return fact(h, h.chains, ch.id(), func(c *Conn) ([][]nftmsg.Expr, error) { return c.exprs(ch) })
}

// filled reports whether a chain exists with all its rules.
func (h *state) filled(ch chain) bool { return len(h.rules(ch)) == len(ch.rules) }

// found interprets the kernel's answer to a request for an object, such as "nft set ": it reports
// whether the object exists.
func found(answer error, kind, name string) (bool, error) {
	if errors.Is(answer, unix.ENOENT) {
		return false, nil
	}
	if answer != nil {
		return false, fmt.Errorf("%s%s: %w", kind, name, explain(answer, lackingQuestion))
	}
	return true, nil
}

// version returns the version of a skeleton, "" if it does not exist.
func (c *Conn) version(s skeleton) (string, error) {
	comment, err := c.messages.SetComment(s.sets[0].Set)
	_, err = found(err, "nft set ", s.sets[0].Name)
	return comment, err
}

func (c *Conn) status(s skeleton) (status, error) {
	version, err := c.version(s)
	if version == "" || err != nil {
		return absent, err
	}
	complete, ok := c.hasRules, outdated
	if version == s.version {
		complete, ok = c.hasAllRules, current
	}
	for _, ch := range s.chains {
		if yes, err := complete(s, ch); !yes || err != nil {
			return damaged, err
		}
	}
	return ok, nil
}

func (c *Conn) hasRules(_ skeleton, ch chain) (bool, error) {
	rules, err := c.exprs(ch)
	return len(rules) > 0, err
}

// hasAllRules reports whether a chain of the skeleton has its rules.
func (c *Conn) hasAllRules(s skeleton, ch chain) (bool, error) {
	state, err := c.messages.Chain(s.table, ch.Name)
	if exists, err := found(err, "nft chain ", ch.Name); !exists {
		return false, err
	}
	if want := len(ch.rules) + s.jumpsTo(ch.Name); state.Use <= want {
		return state.Use == want, nil
	}
	// Chains outside the skeleton lead to it too.
	rules, err := c.exprs(ch)
	return len(rules) == len(ch.rules), err
}

// exprs returns the rules of a chain, none if it does not exist.
func (c *Conn) exprs(ch chain) (list [][]nftmsg.Expr, err error) {
	rules, err := c.messages.Rules(ch.Table, ch.Name)
	if err != nil {
		return nil, fmt.Errorf("rules of nft chain %s: %w", ch.Name, err)
	}
	for _, r := range rules {
		rule := make([]nftmsg.Expr, len(r.Exprs))
		for i, e := range r.Exprs {
			rule[i] = e
		}
		list = append(list, rule)
	}
	return list, nil
}

func (c *Conn) contents(s *set) (contents, error) {
	list, err := c.messages.Elements(s.Set)
	exists, err := found(err, "elements of nft set ", s.Name)
	return contents{exists, list}, err
}

func (c *Conn) lookup(s *set, key []byte) (*nftmsg.Element, error) {
	list, err := c.messages.Elements(s.Set, key)
	if exists, err := found(err, "element of nft set ", s.Name); !exists {
		return nil, err
	}
	if len(list) != 1 {
		return nil, fmt.Errorf("element of nft set %s: %d answers", s.Name, len(list))
	}
	return &list[0], nil
}
