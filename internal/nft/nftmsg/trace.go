package nftmsg

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/netns"
)

// AddOwnedTable creates a table that only this connection can change. The kernel deletes the table
// when the connection is closed, also because the process was killed. Before Linux 5.12, it refuses
// to create such a table, with EINVAL or EOPNOTSUPP.
func (t *Transaction) AddOwnedTable(table Table) {
	t.add(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, table.Name,
		table.body(netlink.String(unix.NFTA_TABLE_NAME, table.Name),
			number(unix.NFTA_TABLE_FLAGS, tableOwner)))
}

// Trace receives what the rules of a namespace decide about packets for which a rule has set
// nftrace.
type Trace struct{ stream *netlink.Stream }

// TraceEvent is a rule that a packet met, or the end of a chain.
type TraceEvent struct {
	Table   Table
	Chain   string
	Kind    uint32 // NFT_TRACETYPE_…
	Handle  uint64 // of a rule
	Verdict Verdict
	Packet  uint32 // identifies the packet, at least until it leaves the base chain
	// The first event in each base chain has the beginning of the headers of the packet.
	Network, Transport []byte
}

// OpenTrace opens a trace in a namespace, which need not stay open.
func OpenTrace(ns *netns.NS) (*Trace, error) {
	s, err := netlink.OpenStream(ns, netlink.StreamOptions{Protocol: unix.NETLINK_NETFILTER,
		Groups: []int{unix.NFNLGRP_NFTRACE}})
	if err != nil {
		return nil, err
	}
	return &Trace{s}, nil
}

// Close closes the trace, and makes Next return an error that wraps [os.ErrClosed].
func (t *Trace) Close() error { return t.stream.Close() }

// Next waits for the next datagram and returns its events. The error wraps [netlink.ErrOverrun] if
// events were lost; the trace then continues.
func (t *Trace) Next() ([]TraceEvent, error) {
	data, _, err := t.stream.Next(true)
	if err != nil {
		return nil, err
	}
	return readTrace(data)
}

// readTrace decodes a datagram.
func readTrace(data []byte) (events []TraceEvent, err error) {
	failed := netlink.Messages(data, func(x netlink.Message) {
		if x.Kind != kindOf(unix.NFT_MSG_TRACE) {
			return
		}
		var about netlink.Netfilter
		attributes, wrong := netlink.ReadBody(x.Payload, &about)
		if wrong != nil {
			err = wrong
			return
		}
		events = append(events, traceEvent(Family(about.Family), attributes))
	})
	if failed != nil {
		err = failed
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", netlink.ErrOverrun, err)
	}
	return events, err
}

func traceEvent(f Family, attributes []byte) TraceEvent {
	e := TraceEvent{
		Table:  Table{f, textIn(attributes, unix.NFTA_TRACE_TABLE)},
		Chain:  textIn(attributes, unix.NFTA_TRACE_CHAIN),
		Kind:   numberIn(attributes, unix.NFTA_TRACE_TYPE),
		Handle: longIn(attributes, unix.NFTA_TRACE_RULE_HANDLE),
		Packet: numberIn(attributes, unix.NFTA_TRACE_ID),

		Network:   slices.Clone(netlink.Find(attributes, unix.NFTA_TRACE_NETWORK_HEADER)),
		Transport: slices.Clone(netlink.Find(attributes, unix.NFTA_TRACE_TRANSPORT_HEADER)),
	}
	verdict := netlink.Find(attributes, unix.NFTA_TRACE_VERDICT)
	e.Verdict = Verdict{Code: int32(numberIn(verdict, unix.NFTA_VERDICT_CODE)),
		Chain: textIn(verdict, unix.NFTA_VERDICT_CHAIN)}
	if e.Kind == unix.NFT_TRACETYPE_POLICY {
		e.Verdict.Code = int32(numberIn(attributes, unix.NFTA_TRACE_POLICY))
	}
	return e
}
