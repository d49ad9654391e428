package nftmsg

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// ask calls each with the attributes of each answer, in a buffer that the next answer overwrites.
// message is NFT_MSG_GET….
func (c *Conn) ask(message uint16, flags int, body []byte, each func(attributes []byte)) error {
	return c.exchange.Ask(c.fd, kindOf(message), flags, body, reader(each))
}

// reader skips the header before the attributes of an answer.
func reader(each func(attributes []byte)) func([]byte) error {
	return func(payload []byte) error {
		attributes, err := netlink.ReadBody(payload, new(netlink.Netfilter))
		if err == nil {
			each(attributes)
		}
		return err
	}
}

// HasTable reports whether a table exists.
func (c *Conn) HasTable(t Table) (bool, error) {
	err := c.ask(unix.NFT_MSG_GETTABLE, 0, t.body(netlink.String(unix.NFTA_TABLE_NAME, t.Name)), func([]byte) {})
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
	body := t.body(netlink.String(unix.NFTA_CHAIN_TABLE, t.Name), netlink.String(unix.NFTA_CHAIN_NAME, name))
	err = c.ask(unix.NFT_MSG_GETCHAIN, 0, body, func(attributes []byte) {
		for kind, v := range netlink.Attributes(attributes) {
			switch kind {
			case unix.NFTA_CHAIN_USE:
				s.Use = int(readNumber(v))
			case unix.NFTA_CHAIN_POLICY:
				s.Drops = readNumber(v) == Drop
			}
		}
	})
	return s, err
}

// Rules lists the rules of a chain, none if it does not exist. It reads a list that changes
// meanwhile again, and returns an error that wraps [netlink.ErrInterrupted] if it changes each
// time.
func (c *Conn) Rules(t Table, chain string) (list []Rule, err error) {
	body := t.body(netlink.String(unix.NFTA_RULE_TABLE, t.Name), netlink.String(unix.NFTA_RULE_CHAIN, chain))
	err = c.exchange.List(c.fd, kindOf(unix.NFT_MSG_GETRULE), body, func() { list = nil }, reader(func(attributes []byte) {
		list = append(list, decodeRule(attributes))
	}))
	return list, err
}

// Sets lists the names of the sets and maps of a table. It reads a list that changes meanwhile
// again, as [Conn.Rules] does. The error wraps [unix.ENOENT] if the table does not exist.
func (c *Conn) Sets(t Table) (list []string, err error) {
	body := t.body(netlink.String(unix.NFTA_SET_TABLE, t.Name))
	err = c.exchange.List(c.fd, kindOf(unix.NFT_MSG_GETSET), body, func() { list = nil }, reader(func(attributes []byte) {
		for kind, v := range netlink.Attributes(attributes) {
			if kind == unix.NFTA_SET_NAME {
				list = append(list, netlink.Text(v))
			}
		}
	}))
	return list, err
}

// SetComment returns the comment of a set. The error wraps [unix.ENOENT] if it does not exist.
func (c *Conn) SetComment(s Set) (comment string, err error) {
	body := s.Table.body(s.names(unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME)...)
	err = c.ask(unix.NFT_MSG_GETSET, 0, body, func(attributes []byte) {
		for kind, v := range netlink.Attributes(attributes) {
			if kind == unix.NFTA_SET_USERDATA {
				comment = textOf(v, ofSetComment)
			}
		}
	})
	return comment, err
}

// Elements lists the elements of a set with these keys, alone or in their range, or all elements.
// The error wraps [unix.ENOENT] if the set does not exist, or an element with one of the keys. A
// change of the ruleset while Elements reads all is no error: the kernel does not report whether it
// was this set.
func (c *Conn) Elements(s Set, keys ...[]byte) (list []Element, err error) {
	about, flags := s.names(unix.NFTA_SET_ELEM_LIST_TABLE, unix.NFTA_SET_ELEM_LIST_SET), unix.NLM_F_DUMP
	if keys != nil {
		var wanted []netlink.Attribute
		for _, key := range keys {
			wanted = append(wanted, Element{Key: key}.encode())
		}
		about, flags = append(about, nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, wanted...)), 0
	}
	err = c.ask(unix.NFT_MSG_GETSETELEM, flags, s.Table.body(about...), func(attributes []byte) {
		for kind, v := range netlink.Attributes(attributes) {
			if kind != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				continue
			}
			for _, element := range netlink.Attributes(v) {
				list = append(list, decodeElement(element))
			}
		}
	})
	if errors.Is(err, netlink.ErrInterrupted) {
		err = nil
	}
	return list, err
}
