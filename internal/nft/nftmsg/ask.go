package nftmsg

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// ask calls each with the attributes of each answer, in a buffer that the next answer overwrites.
// message is NFT_MSG_GET….
func (c *Conn) ask(message uint16, flags int, body []byte, each func(attributes []byte)) error {
	return c.exchange.Ask(c.fd, kindOf(message), flags, body, func(payload []byte) error {
		attributes, err := netlink.ReadBody(payload, new(netlink.Netfilter))
		each(attributes)
		return err
	})
}

// HasTable reports whether a table exists.
func (c *Conn) HasTable(t Table) (bool, error) {
	err := c.ask(unix.NFT_MSG_GETTABLE, 0, t.body(netlink.String(unix.NFTA_TABLE_NAME, t.Name)),
		func([]byte) {})
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// ChainState is the state of a chain.
type ChainState struct {
	Use   int  // the number of its rules, and of rules and elements that lead to it
	Drops bool // the policy of a base chain is to drop
}

// Chain returns the state of a chain. The error wraps [unix.ENOENT] if it does not exist.
func (c *Conn) Chain(t Table, name string) (s ChainState, err error) {
	body := t.body(netlink.String(unix.NFTA_CHAIN_TABLE, t.Name),
		netlink.String(unix.NFTA_CHAIN_NAME, name))
	err = c.ask(unix.NFT_MSG_GETCHAIN, 0, body, func(attributes []byte) {
		policy := netlink.Find(attributes, unix.NFTA_CHAIN_POLICY)
		s.Use = int(readNumber(netlink.Find(attributes, unix.NFTA_CHAIN_USE)))
		s.Drops = policy != nil && readNumber(policy) == Drop
	})
	return s, err
}

// Rules lists the rules of a chain, none if it does not exist. It reads the list again if the list
// changes during the dump, and returns an error that wraps [netlink.ErrInterrupted] if that happens
// each time.
func (c *Conn) Rules(t Table, chain string) ([]Rule, error) {
	body := t.body(netlink.String(unix.NFTA_RULE_TABLE, t.Name),
		netlink.String(unix.NFTA_RULE_CHAIN, chain))
	return list(c, unix.NFT_MSG_GETRULE, body, decodeRule)
}

// Sets lists the names of the sets and maps of a table. Like [Conn.Rules] it repeats an interrupted
// dump. The error wraps [unix.ENOENT] if the table does not exist.
func (c *Conn) Sets(t Table) ([]string, error) {
	body := t.body(netlink.String(unix.NFTA_SET_TABLE, t.Name))
	return list(c, unix.NFT_MSG_GETSET, body, func(attributes []byte) string {
		return netlink.Text(netlink.Find(attributes, unix.NFTA_SET_NAME))
	})
}

// list returns the objects of a list; message is NFT_MSG_GET….
func list[T any](
	c *Conn, message uint16, body []byte, decode func(attributes []byte) T,
) ([]T, error) {
	read := func(list []T, payload []byte) ([]T, error) {
		attributes, err := netlink.ReadBody(payload, new(netlink.Netfilter))
		return append(list, decode(attributes)), err
	}
	return netlink.List(&c.exchange, c.fd, kindOf(message), body, read)
}

// SetComment returns the comment of a set. The error wraps [unix.ENOENT] if it does not exist.
func (c *Conn) SetComment(s Set) (comment string, err error) {
	body := s.Table.body(s.names(unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME)...)
	err = c.ask(unix.NFT_MSG_GETSET, 0, body, func(attributes []byte) {
		comment = textOf(netlink.Find(attributes, unix.NFTA_SET_USERDATA), ofSetComment)
	})
	return comment, err
}

// Elements lists the elements of a set with these keys, alone or in their range, or all elements.
// The error wraps [unix.ENOENT] if the set, or an element with one of the keys, does not exist. A
// change of the ruleset while Elements reads all elements is no error: the kernel does not report
// whether it concerned this set.
func (c *Conn) Elements(s Set, keys ...[]byte) (list []Element, err error) {
	about, flags := s.names(unix.NFTA_SET_ELEM_LIST_TABLE,
		unix.NFTA_SET_ELEM_LIST_SET), unix.NLM_F_DUMP
	if keys != nil {
		var wanted []netlink.Attribute
		for _, key := range keys {
			wanted = append(wanted, Element{Key: key}.encode())
		}
		about, flags = append(about, nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, wanted...)), 0
	}
	err = c.ask(unix.NFT_MSG_GETSETELEM, flags, s.Table.body(about...), func(attributes []byte) {
		elements := netlink.Find(attributes, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		for _, element := range netlink.Attributes(elements) {
			list = append(list, decodeElement(element))
		}
	})
	if errors.Is(err, netlink.ErrInterrupted) {
		err = nil
	}
	return list, err
}
