package nftmsg

import (
	"encoding/binary"
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

// Transaction is a list of changes that the kernel makes in this order, either all or none.
type Transaction struct {
	requests []netlink.Request
	subjects []string // the name of the object of each
}

// Len returns the number of messages, without those that begin and end the transaction.
func (t *Transaction) Len() int { return len(t.requests) }

func (t *Transaction) add(message uint16, flags int, subject string, body []byte) {
	t.requests = append(t.requests,
		netlink.Request{Kind: kindOf(message), Flags: flags, Body: body})
	t.subjects = append(t.subjects, subject)
}

// AddTable creates a table, unless it exists.
func (t *Transaction) AddTable(table Table) {
	t.add(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, table.Name,
		table.body(netlink.String(unix.NFTA_TABLE_NAME, table.Name),
			number(unix.NFTA_TABLE_FLAGS, 0)))
}

// DeleteTable deletes a table with all its objects.
func (t *Transaction) DeleteTable(table Table) {
	t.add(unix.NFT_MSG_DELTABLE, 0, table.Name,
		table.body(netlink.String(unix.NFTA_TABLE_NAME, table.Name)))
}

// Chain is either a base chain, which the kernel calls at a hook, or a chain that rules and
// elements lead to.
type Chain struct {
	Table Table
	Name  string

	// The following fields are only for a base chain.
	Type     ChainType
	Hook     uint32 // NF_INET_…
	Priority int32
}

// ChainType is the type of a base chain.
type ChainType string

// The types of base chains.
const (
	ChainFilter ChainType = "filter"
	ChainNAT    ChainType = "nat"
)

// The priorities of base chains (enum nf_ip_hook_priorities in include/uapi/linux/netfilter_ipv4.h,
// and nf_br_hook_priorities in netfilter_bridge.h).
const (
	PriorityRaw          = -300
	PriorityDNAT         = -100
	PriorityFilter       = 0
	PrioritySNAT         = 100
	PriorityBridgeFilter = -200
)

// names returns the attributes that identify the chain in a message about itself.
func (ch Chain) names() []netlink.Attribute {
	return []netlink.Attribute{netlink.String(unix.NFTA_CHAIN_TABLE, ch.Table.Name),
		netlink.String(unix.NFTA_CHAIN_NAME, ch.Name)}
}

// rules returns the attributes that identify the chain in a message about its rules.
func (ch Chain) rules() []netlink.Attribute {
	return []netlink.Attribute{netlink.String(unix.NFTA_RULE_TABLE, ch.Table.Name),
		netlink.String(unix.NFTA_RULE_CHAIN, ch.Name)}
}

// AddChain creates a chain, unless it exists.
func (t *Transaction) AddChain(ch Chain) {
	about := ch.names()
	if ch.Type != "" {
		about = append(about,
			nest(unix.NFTA_CHAIN_HOOK, number(unix.NFTA_HOOK_HOOKNUM, ch.Hook),
				number(unix.NFTA_HOOK_PRIORITY, uint32(ch.Priority))),
			netlink.String(unix.NFTA_CHAIN_TYPE, string(ch.Type)))
	}
	t.add(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, ch.Name, ch.Table.body(about...))
}

// DeleteChain deletes a chain, which must have no rules.
func (t *Transaction) DeleteChain(ch Chain) {
	t.add(unix.NFT_MSG_DELCHAIN, 0, ch.Name, ch.Table.body(ch.names()...))
}

// FlushChain removes all rules of a chain.
func (t *Transaction) FlushChain(ch Chain) {
	t.add(unix.NFT_MSG_DELRULE, 0, ch.Name, ch.Table.body(ch.rules()...))
}

// AddRule appends a rule to a chain.
func (t *Transaction) AddRule(ch Chain, rule []Expr) {
	var steps []netlink.Attribute
	for _, e := range rule {
		steps = append(steps, e.Encode())
	}
	t.add(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, ch.Name,
		ch.Table.body(append(ch.rules(), nest(unix.NFTA_RULE_EXPRESSIONS, steps...))...))
}

// DeleteRule removes a rule, by its handle.
func (t *Transaction) DeleteRule(ch Chain, handle uint64) {
	t.add(unix.NFT_MSG_DELRULE, 0, ch.Name,
		ch.Table.body(append(ch.rules(),
			netlink.Bytes(unix.NFTA_RULE_HANDLE, binary.BigEndian.AppendUint64(nil, handle)))...))
}

// AddSet creates a set.
func (t *Transaction) AddSet(s Set) {
	t.add(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, s.Name,
		s.Table.body(s.encode(uint32(len(t.requests)+1))...))
}

// DeleteSet deletes a set with its elements.
func (t *Transaction) DeleteSet(s Set) {
	t.add(unix.NFT_MSG_DELSET, 0, s.Name,
		s.Table.body(s.names(unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME)...))
}

// AddElements adds elements to a set.
func (t *Transaction) AddElements(s Set, list []Element) {
	t.elements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, s, list)
}

// DeleteElements removes elements of a set.
func (t *Transaction) DeleteElements(s Set, list []Element) {
	t.elements(unix.NFT_MSG_DELSETELEM, 0, s, list)
}

// elements splits the list into several messages if needed, because the size of the attribute that
// holds it is limited.
func (t *Transaction) elements(message uint16, flags int, s Set, list []Element) {
	const room = math.MaxUint16 - unix.SizeofRtAttr
	var inside []netlink.Attribute
	size := 0
	flush := func() {
		if size > 0 {
			about := append(s.names(unix.NFTA_SET_ELEM_LIST_TABLE, unix.NFTA_SET_ELEM_LIST_SET),
				nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, inside...))
			t.add(message, flags, s.Name, s.Table.body(about...))
		}
		inside, size = inside[:0], 0
	}
	for _, e := range list {
		a := e.encode()
		if size+len(a) > room {
			flush()
		}
		inside, size = append(inside, a), size+len(a)
	}
	flush()
}

// Commit sends a transaction, unless it is empty. The error names the first change that the kernel
// refuses, and wraps its errno.
func (c *Conn) Commit(t *Transaction) error {
	if len(t.requests) == 0 {
		return nil
	}
	if refused, err := c.commit(t); err != nil {
		return fmt.Errorf("%s: %w", t.describe(refused), err)
	}
	return nil
}

// commit sends a transaction and returns the index of the first change that the kernel refuses.
func (c *Conn) commit(t *Transaction) (refused int, err error) {
	frame := netlink.Body(netlink.Netfilter{Resource: [2]byte{0, unix.NFNL_SUBSYS_NFTABLES}})
	batch := append([]netlink.Request{{Kind: unix.NFNL_MSG_BATCH_BEGIN, Body: frame}},
		t.requests...)
	// Without an ACK, a malformed batch, which the kernel does not answer, would look like success.
	batch[len(batch)-1].Flags |= unix.NLM_F_ACK
	refused, err = c.exchange.Send(c.fd,
		append(batch, netlink.Request{Kind: unix.NFNL_MSG_BATCH_END, Body: frame})...)
	return refused - 1, err
}

// describe names a change, or all changes if the index is out of range.
func (t *Transaction) describe(i int) string {
	if i < 0 || i >= len(t.requests) {
		return fmt.Sprintf("nftables transaction of %d changes", len(t.requests))
	}
	what := map[uint16]string{
		unix.NFT_MSG_NEWTABLE: "add table", unix.NFT_MSG_NEWCHAIN: "add chain",
		unix.NFT_MSG_DELCHAIN: "delete chain",
		unix.NFT_MSG_NEWRULE:  "add rule to chain", unix.NFT_MSG_DELRULE: "delete rules of chain",
		unix.NFT_MSG_NEWSET: "add set", unix.NFT_MSG_DELSET: "delete set",
		unix.NFT_MSG_NEWSETELEM: "add elements to set",
		unix.NFT_MSG_DELSETELEM: "delete elements of set",
	}
	return "nft: " + what[t.requests[i].Kind&0xff] + " " + t.subjects[i]
}
