package nft

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel/nlmsg"
)

// Questions of our own: those of the library take 20 times as long, see package nlmsg.

// question is about something in a table.
type question struct {
	kind  uint16 // NFT_MSG_GET…
	table *nftables.Table
	about []nlmsg.Attribute // the first is the name of the table
	dump  bool              // of all there are
}

// ask calls each with the attributes of each thing that the kernel tells. That somebody changes a ruleset during a dump is no
// matter: the order in a set of ours does not depend on it, and ours change under the lock only.
func (c *Conn) ask(q question, each func(kind uint16, value []byte)) error {
	flags := 0
	if q.dump {
		flags = unix.NLM_F_DUMP
	}
	body := nlmsg.Body(nlmsg.Netfilter{Family: byte(q.table.Family)}, q.about...)
	var failed error
	err := c.socket.Control(func(fd uintptr) {
		failed = c.exchange.Ask(int(fd), unix.NFNL_SUBSYS_NFTABLES<<8|q.kind, flags, body, func(payload []byte) error {
			attributes, err := nlmsg.Read(payload, new(nlmsg.Netfilter))
			for kind, value := range nlmsg.Attributes(attributes) {
				each(kind, value)
			}
			return err
		})
	})
	if errors.Is(failed, nlmsg.ErrInterrupted) {
		failed = nil
	}
	return errors.Join(err, failed)
}

// setComment returns the comment of a set. The error wraps [unix.ENOENT] if there is no such set.
func (c *Conn) setComment(s *nftables.Set) (comment string, err error) {
	err = c.ask(question{kind: unix.NFT_MSG_GETSET, table: s.Table, about: []nlmsg.Attribute{
		nlmsg.String(unix.NFTA_SET_TABLE, s.Table.Name), nlmsg.String(unix.NFTA_SET_NAME, s.Name),
	}}, func(kind uint16, value []byte) {
		if kind == unix.NFTA_SET_USERDATA {
			comment, _ = userdata.GetString(value, userdata.NFTNL_UDATA_SET_COMMENT)
		}
	})
	return comment, err
}

// chainUse returns what the kernel counts for a chain: its rules, and the rules and elements that lead to it. The error
// wraps [unix.ENOENT] if there is no such chain.
func (c *Conn) chainUse(table *nftables.Table, chain string) (use int, err error) {
	err = c.ask(question{kind: unix.NFT_MSG_GETCHAIN, table: table, about: []nlmsg.Attribute{
		nlmsg.String(unix.NFTA_CHAIN_TABLE, table.Name), nlmsg.String(unix.NFTA_CHAIN_NAME, chain),
	}}, func(kind uint16, value []byte) {
		if kind == unix.NFTA_CHAIN_USE {
			use = int(number(value))
		}
	})
	return use, err
}

// read reads the elements of a set: those that have these keys, alone or in their range, or all.
func (c *Conn) read(s *nftables.Set, keys ...[]byte) (list []nftables.SetElement, err error) {
	q := question{kind: unix.NFT_MSG_GETSETELEM, table: s.Table, dump: keys == nil, about: []nlmsg.Attribute{
		nlmsg.String(unix.NFTA_SET_ELEM_LIST_TABLE, s.Table.Name), nlmsg.String(unix.NFTA_SET_ELEM_LIST_SET, s.Name),
	}}
	if keys != nil {
		var wanted []nlmsg.Attribute
		for _, key := range keys {
			wanted = append(wanted, nested(unix.NFTA_LIST_ELEM, nested(unix.NFTA_SET_ELEM_KEY, nlmsg.Bytes(unix.NFTA_DATA_VALUE, key))))
		}
		q.about = append(q.about, nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, wanted...))
	}
	err = c.ask(q, func(kind uint16, value []byte) {
		if kind != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			return
		}
		for _, element := range nlmsg.Attributes(value) {
			list = append(list, decodeElement(element))
		}
	})
	return list, err
}

// nested is an attribute that holds others, as nftables has them.
func nested(kind uint16, inside ...nlmsg.Attribute) nlmsg.Attribute {
	return nlmsg.Nest(kind|unix.NLA_F_NESTED, inside...)
}

// nftaSetElemKeyEnd is missing in package unix.
const nftaSetElemKeyEnd = 10

func decodeElement(element []byte) (x nftables.SetElement) {
	for kind, value := range nlmsg.Attributes(element) {
		switch kind {
		case unix.NFTA_SET_ELEM_KEY:
			x.Key = dataValue(value)
		case nftaSetElemKeyEnd:
			x.KeyEnd = dataValue(value)
		case unix.NFTA_SET_ELEM_DATA:
			x.Val, x.VerdictData = dataValue(value), dataVerdict(value)
		case unix.NFTA_SET_ELEM_USERDATA:
			x.Comment, _ = userdata.GetString(value, userdata.NFTNL_UDATA_SET_ELEM_COMMENT)
		}
	}
	return x
}

// dataValue returns the value of a key, or of an element of a map; nil if that is a verdict.
func dataValue(data []byte) []byte {
	for kind, value := range nlmsg.Attributes(data) {
		if kind == unix.NFTA_DATA_VALUE {
			return bytes.Clone(value)
		}
	}
	return nil
}

// dataVerdict returns the verdict of an element of a map; nil if that has a value.
func dataVerdict(data []byte) *expr.Verdict {
	for kind, value := range nlmsg.Attributes(data) {
		if kind != unix.NFTA_DATA_VERDICT {
			continue
		}
		v := new(expr.Verdict)
		for kind, value := range nlmsg.Attributes(value) {
			switch kind {
			case unix.NFTA_VERDICT_CODE:
				v.Kind = expr.VerdictKind(int32(number(value)))
			case unix.NFTA_VERDICT_CHAIN:
				v.Chain = nlmsg.Text(value)
			}
		}
		return v
	}
	return nil
}

// number reads one as nftables has them, in network byte order.
func number(value []byte) uint32 {
	if len(value) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(value)
}
