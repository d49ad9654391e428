package nft

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Questions of our own. Those of the library wait for each answer with select(2) on a goroutine that is parked for it, which
// takes 0.1 ms; the kernel has the answer ready when the question has been sent, and 5 µs are enough.

// maxAnswer is as much as the kernel puts into one datagram (NLMSG_GOODSIZE grows up to it, netlink_dump in
// net/netlink/af_netlink.c).
const maxAnswer = 32 << 10

// genmsgLen is the length of struct nfgenmsg, which comes before the attributes.
const genmsgLen = 4

// question is about something in a table.
type question struct {
	kind  uint16 // NFT_MSG_GET…
	table *nftables.Table
	about []netlink.Attribute // the first is the name of the table
	dump  bool                // of all there are
}

// ask returns the attributes of each thing that the kernel tells, in a buffer that the next question overwrites. That
// somebody changes a ruleset during a dump is no matter: the order in a set of ours does not depend on it, and ours change
// under the lock only.
func (c *Conn) ask(q question, each func(*netlink.AttributeDecoder) error) error {
	if c.buffer == nil {
		c.buffer = make([]byte, maxAnswer)
	}
	attributes, err := netlink.MarshalAttributes(q.about)
	if err != nil {
		return err
	}
	c.asked++
	flags := unix.NLM_F_REQUEST
	if q.dump {
		flags |= unix.NLM_F_DUMP
	}
	request := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+genmsgLen+len(attributes)))
	request = binary.NativeEndian.AppendUint16(request, unix.NFNL_SUBSYS_NFTABLES<<8|q.kind)
	request = binary.NativeEndian.AppendUint16(request, uint16(flags))
	request = binary.NativeEndian.AppendUint32(request, c.asked)
	request = binary.NativeEndian.AppendUint32(request, 0)
	request = append(request, byte(q.table.Family), unix.NFNETLINK_V0, 0, 0)
	request = append(request, attributes...)

	var failed error
	err = c.socket.Control(func(fd uintptr) {
		if failed = unix.Sendto(int(fd), request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); failed == nil {
			failed = c.answers(int(fd), q.dump, each)
		}
	})
	return errors.Join(err, failed)
}

// answers reads the answers to the last question: one, or those of a dump up to its end.
func (c *Conn) answers(fd int, dump bool, each func(*netlink.AttributeDecoder) error) error {
	for {
		n, _, err := unix.Recvfrom(fd, c.buffer, unix.MSG_TRUNC)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n > len(c.buffer) {
			return fmt.Errorf("netlink answer of %d bytes: %w", n, unix.EMSGSIZE)
		}
		done, err := c.messages(c.buffer[:n], each)
		if err != nil || done || !dump {
			return err
		}
	}
}

// messages reads the messages of a datagram. done says that nothing follows.
func (c *Conn) messages(data []byte, each func(*netlink.AttributeDecoder) error) (done bool, err error) {
	for len(data) >= unix.SizeofNlMsghdr {
		size, kind := int(binary.NativeEndian.Uint32(data)), binary.NativeEndian.Uint16(data[4:])
		if size < unix.SizeofNlMsghdr+genmsgLen || size > len(data) {
			return true, fmt.Errorf("netlink answer: message of %d bytes in %d", size, len(data))
		}
		payload := data[unix.SizeofNlMsghdr:size]
		data = data[min(nlmsgAlign(size), len(data)):]
		switch kind {
		case unix.NLMSG_ERROR, unix.NLMSG_DONE: // both begin with the negative errno
			if errno := unix.Errno(-int32(binary.NativeEndian.Uint32(payload))); errno != 0 {
				return true, errno
			}
			return true, nil
		}
		attributes, err := netlink.NewAttributeDecoder(payload[genmsgLen:])
		if err != nil {
			return true, err
		}
		attributes.ByteOrder = binary.BigEndian
		if err := errors.Join(each(attributes), attributes.Err()); err != nil {
			return true, err
		}
	}
	return false, nil
}

func nlmsgAlign(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }

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
