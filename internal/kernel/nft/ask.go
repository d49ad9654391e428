package nft

import (
	"encoding/binary"
	"errors"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/kernel/nlmsg"
)

// Questions of our own: those of the library take 20 times as long, see package nlmsg.

// genmsgLen is the length of struct nfgenmsg, which comes before the attributes.
const genmsgLen = 4

// question is about something in a table.
type question struct {
	kind  uint16 // NFT_MSG_GET…
	table *nftables.Table
	about []netlink.Attribute // the first is the name of the table
	dump  bool                // of all there are
}

// ask returns the attributes of each thing that the kernel tells. That somebody changes a ruleset during a dump is no matter:
// the order in a set of ours does not depend on it, and ours change under the lock only.
func (c *Conn) ask(q question, each func(*netlink.AttributeDecoder) error) error {
	attributes, err := netlink.MarshalAttributes(q.about)
	if err != nil {
		return err
	}
	flags := 0
	if q.dump {
		flags = unix.NLM_F_DUMP
	}
	body := append([]byte{byte(q.table.Family), unix.NFNETLINK_V0, 0, 0}, attributes...)
	var failed error
	err = c.socket.Control(func(fd uintptr) {
		failed = c.exchange.Ask(int(fd), unix.NFNL_SUBSYS_NFTABLES<<8|q.kind, flags, body, func(payload []byte) error {
			if len(payload) < genmsgLen {
				return unix.EBADMSG
			}
			a, err := netlink.NewAttributeDecoder(payload[genmsgLen:])
			if err != nil {
				return err
			}
			a.ByteOrder = binary.BigEndian
			return errors.Join(each(a), a.Err())
		})
	})
	if errors.Is(failed, nlmsg.ErrInterrupted) {
		failed = nil
	}
	return errors.Join(err, failed)
}

func named(kind uint16, name string) netlink.Attribute {
	return netlink.Attribute{Type: kind, Data: append([]byte(name), 0)}
}

// setComment returns the comment of a set. The error wraps [unix.ENOENT] if there is no such set.
func (c *Conn) setComment(s *nftables.Set) (comment string, err error) {
	err = c.ask(question{kind: unix.NFT_MSG_GETSET, table: s.Table, about: []netlink.Attribute{
		named(unix.NFTA_SET_TABLE, s.Table.Name), named(unix.NFTA_SET_NAME, s.Name),
	}}, func(a *netlink.AttributeDecoder) error {
		for a.Next() {
			if a.Type() == unix.NFTA_SET_USERDATA {
				comment, _ = userdata.GetString(a.Bytes(), userdata.NFTNL_UDATA_SET_COMMENT)
			}
		}
		return nil
	})
	return comment, err
}

// chainUse returns what the kernel counts for a chain: its rules, and the rules and elements that lead to it. The error
// wraps [unix.ENOENT] if there is no such chain.
func (c *Conn) chainUse(table *nftables.Table, chain string) (use int, err error) {
	err = c.ask(question{kind: unix.NFT_MSG_GETCHAIN, table: table, about: []netlink.Attribute{
		named(unix.NFTA_CHAIN_TABLE, table.Name), named(unix.NFTA_CHAIN_NAME, chain),
	}}, func(a *netlink.AttributeDecoder) error {
		for a.Next() {
			if a.Type() == unix.NFTA_CHAIN_USE {
				use = int(a.Uint32())
			}
		}
		return nil
	})
	return use, err
}

// read reads the elements of a set: those that have these keys, alone or in their range, or all.
func (c *Conn) read(s *nftables.Set, keys ...[]byte) (list []nftables.SetElement, err error) {
	q := question{kind: unix.NFT_MSG_GETSETELEM, table: s.Table, dump: keys == nil, about: []netlink.Attribute{
		named(unix.NFTA_SET_ELEM_LIST_TABLE, s.Table.Name), named(unix.NFTA_SET_ELEM_LIST_SET, s.Name),
	}}
	if keys != nil {
		var wanted []netlink.Attribute
		for _, key := range keys {
			wanted = append(wanted, nested(unix.NFTA_LIST_ELEM, nested(unix.NFTA_SET_ELEM_KEY, netlink.Attribute{Type: unix.NFTA_DATA_VALUE, Data: key})))
		}
		q.about = append(q.about, nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, wanted...))
	}
	err = c.ask(q, func(a *netlink.AttributeDecoder) error {
		for a.Next() {
			if a.Type() != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				continue
			}
			a.Nested(func(elements *netlink.AttributeDecoder) error {
				for elements.Next() {
					var x nftables.SetElement
					elements.Nested(func(e *netlink.AttributeDecoder) error { return decodeElement(&x, e) })
					list = append(list, x)
				}
				return nil
			})
		}
		return nil
	})
	return list, err
}

func nested(kind uint16, inside ...netlink.Attribute) netlink.Attribute {
	data, err := netlink.MarshalAttributes(inside)
	if err != nil {
		panic(err) // only lengths beyond 64 KiB, which no key has
	}
	return netlink.Attribute{Type: kind | unix.NLA_F_NESTED, Data: data}
}

// nftaSetElemKeyEnd is missing in package unix.
const nftaSetElemKeyEnd = 10

func decodeElement(x *nftables.SetElement, a *netlink.AttributeDecoder) error {
	for a.Next() {
		switch a.Type() {
		case unix.NFTA_SET_ELEM_KEY:
			a.Nested(func(d *netlink.AttributeDecoder) error { x.Key = dataValue(d); return nil })
		case nftaSetElemKeyEnd:
			a.Nested(func(d *netlink.AttributeDecoder) error { x.KeyEnd = dataValue(d); return nil })
		case unix.NFTA_SET_ELEM_DATA:
			a.Nested(func(d *netlink.AttributeDecoder) error { return decodeData(x, d) })
		case unix.NFTA_SET_ELEM_USERDATA:
			x.Comment, _ = userdata.GetString(a.Bytes(), userdata.NFTNL_UDATA_SET_ELEM_COMMENT)
		}
	}
	return nil
}

// decodeData reads what an element of a map has: a value or a verdict.
func decodeData(x *nftables.SetElement, a *netlink.AttributeDecoder) error {
	for a.Next() {
		switch a.Type() {
		case unix.NFTA_DATA_VALUE:
			x.Val = a.Bytes()
		case unix.NFTA_DATA_VERDICT:
			x.VerdictData = new(expr.Verdict)
			a.Nested(func(v *netlink.AttributeDecoder) error {
				for v.Next() {
					switch v.Type() {
					case unix.NFTA_VERDICT_CODE:
						x.VerdictData.Kind = expr.VerdictKind(int32(v.Uint32()))
					case unix.NFTA_VERDICT_CHAIN:
						x.VerdictData.Chain = v.String()
					}
				}
				return nil
			})
		}
	}
	return nil
}

func dataValue(a *netlink.AttributeDecoder) (value []byte) {
	for a.Next() {
		if a.Type() == unix.NFTA_DATA_VALUE {
			value = a.Bytes()
		}
	}
	return value
}
