// Package nftmsg encodes and decodes the messages of nftables
// (include/uapi/linux/netfilter/nf_tables.h) as plain values: tables, chains, rules, sets,
// elements, expressions, and the transaction that carries them. No other package does so. It knows
// nothing about the purpose of a rule, takes no locks and does not retry; package nft does.
package nftmsg

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/netns"
)

// Family is a family of tables.
type Family byte

const (
	INet   Family = unix.NFPROTO_INET
	IPv4   Family = unix.NFPROTO_IPV4
	IPv6   Family = unix.NFPROTO_IPV6
	Bridge Family = unix.NFPROTO_BRIDGE
	ARP    Family = unix.NFPROTO_ARP
	NetDev Family = unix.NFPROTO_NETDEV
)

// String returns the family as nft(8) writes it.
func (f Family) String() string {
	names := map[Family]string{INet: "inet", IPv4: "ip", IPv6: "ip6", Bridge: "bridge",
		ARP: "arp", NetDev: "netdev"}
	if name, known := names[f]; known {
		return name
	}
	return fmt.Sprintf("family %d", byte(f))
}

// Table is a table of a ruleset.
type Table struct {
	Family Family `json:"family"`
	Name   string `json:"name"`
}

// Conn is an nfnetlink socket, bound to a namespace. It must be used by one goroutine at a time.
type Conn struct {
	fd       int
	exchange netlink.Exchange
}

// Open opens a socket in ns, which need not stay open.
func Open(ns *netns.NS) (*Conn, error) {
	fd, err := ns.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	netlink.Prepare(fd)
	return &Conn{fd: fd}, nil
}

// Close closes the socket.
func (c *Conn) Close() error { return unix.Close(c.fd) }

// kindOf returns the type of a message; message is NFT_MSG_….
func kindOf(message uint16) uint16 { return unix.NFNL_SUBSYS_NFTABLES<<8 | message }

// body returns a message about an object of a table, without its header.
func (t Table) body(attributes ...netlink.Attribute) []byte {
	return netlink.Body(netlink.Netfilter{Family: byte(t.Family)}, attributes...)
}

// nest returns an attribute that contains other attributes.
func nest(kind uint16, inside ...netlink.Attribute) netlink.Attribute {
	return netlink.Nest(kind|unix.NLA_F_NESTED, inside...)
}

// number returns an attribute with a number in network byte order, as nftables encodes numbers.
func number(kind uint16, n uint32) netlink.Attribute {
	return netlink.Bytes(kind, binary.BigEndian.AppendUint32(nil, n))
}

// readNumber decodes a number, 0 if value has another length.
func readNumber(value []byte) uint32 {
	if len(value) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(value)
}

// value returns an attribute with a value, such as a key.
func value(kind uint16, v []byte) netlink.Attribute {
	return nest(kind, netlink.Bytes(unix.NFTA_DATA_VALUE, v))
}

// readValue decodes a value; nil for a verdict.
func readValue(data []byte) []byte { return netlink.Find(data, unix.NFTA_DATA_VALUE) }
