package nftmsg

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/netns"
)

// Monitor receives the transactions of a namespace.
type Monitor struct {
	stream *netlink.Stream
	open   Transacted // the transaction that has not ended yet
	wanted func(Table) bool
}

// Transacted is what a committed transaction has deleted from the tables of a [Monitor], and the
// process that committed it.
type Transacted struct {
	Generation uint32
	PID        int    // of the thread
	Process    string // its name, at most 15 bytes
	Deleted    []Deletion
}

// Deletion is a deleted object, or the deleted elements of a set.
type Deletion struct {
	Table  Table
	Kind   string   // "table", "chain", "rule", "set", "element" or "object"
	Name   string   // of a chain or set; of rules and elements the chain or set that they were in
	Count  int      // number of elements, 1 for other objects
	Owners []string // comments of the elements
}

// OpenMonitor opens a monitor in a namespace, which need not stay open. It decodes only deletions
// from tables for which wanted returns true. buffer is the size of its receive buffer, see
// [netlink.OpenStream].
func OpenMonitor(ns *netns.NS, buffer int, wanted func(Table) bool) (*Monitor, error) {
	s, err := netlink.OpenStream(ns, netlink.StreamOptions{Protocol: unix.NETLINK_NETFILTER,
		Groups: []int{unix.NFNLGRP_NFTABLES}, Buffer: buffer})
	if err != nil {
		return nil, err
	}
	return &Monitor{stream: s, wanted: wanted}, nil
}

// Close closes the monitor, and makes Next return an error that wraps [os.ErrClosed].
func (m *Monitor) Close() error { return m.stream.Close() }

// Next returns the transactions that ended in the next datagram; see [netlink.Stream.Next] for
// wait. more is false if wait is false and there was none. The error wraps [netlink.ErrOverrun] if
// messages were lost.
func (m *Monitor) Next(wait bool) (list []Transacted, more bool, err error) {
	data, _, err := m.stream.Next(wait)
	if errors.Is(err, netlink.ErrOverrun) {
		m.open = Transacted{} // its end may be lost
	}
	if err != nil || data == nil {
		return nil, false, err
	}
	list, err = m.read(data)
	if err != nil {
		err = fmt.Errorf("%w: %w", netlink.ErrOverrun, err)
	}
	return list, true, err
}

func (m *Monitor) read(data []byte) (list []Transacted, err error) {
	failed := netlink.Messages(data, func(x netlink.Message) {
		if x.Kind>>8 != unix.NFNL_SUBSYS_NFTABLES {
			return
		}
		if x.Kind&0xff == unix.NFT_MSG_NEWGEN {
			if wrong := m.open.end(x.Payload); wrong != nil {
				err = wrong
			}
			list = append(list, m.open)
			m.open = Transacted{}
			return
		}
		if wrong := m.open.add(x, m.wanted); wrong != nil {
			err = wrong
		}
	})
	if failed != nil {
		err = failed
	}
	return list, err
}

// end decodes the message that ends a transaction. Before Linux 4.15 it names no process.
func (t *Transacted) end(payload []byte) error {
	attributes, err := netlink.ReadBody(payload, new(netlink.Netfilter))
	t.Generation = readNumber(netlink.Find(attributes, unix.NFTA_GEN_ID))
	t.PID = int(readNumber(netlink.Find(attributes, unix.NFTA_GEN_PROC_PID)))
	t.Process = netlink.Text(netlink.Find(attributes, unix.NFTA_GEN_PROC_NAME))
	return err
}

// deletions are the messages about deleted objects, with the attribute that contains the name. The
// first attribute of each is the table.
var deletions = map[uint16]struct {
	kind string
	name uint16
}{
	unix.NFT_MSG_DELTABLE:   {"table", unix.NFTA_TABLE_NAME},
	unix.NFT_MSG_DELCHAIN:   {"chain", unix.NFTA_CHAIN_NAME},
	unix.NFT_MSG_DELRULE:    {"rule", unix.NFTA_RULE_CHAIN},
	unix.NFT_MSG_DELSET:     {"set", unix.NFTA_SET_NAME},
	unix.NFT_MSG_DELSETELEM: {"element", unix.NFTA_SET_ELEM_LIST_SET},
	unix.NFT_MSG_DELOBJ:     {"object", unix.NFTA_OBJ_NAME},
}

func (t *Transacted) add(x netlink.Message, wanted func(Table) bool) error {
	deletion, ok := deletions[x.Kind&0xff]
	if !ok {
		return nil
	}
	var about netlink.Netfilter
	attributes, err := netlink.ReadBody(x.Payload, &about)
	if err != nil {
		return err
	}
	table := Table{Family(about.Family), netlink.Text(netlink.Find(attributes, unix.NFTA_TABLE_NAME))}
	if !wanted(table) {
		return nil
	}
	d := Deletion{Table: table, Kind: deletion.kind, Count: 1,
		Name: netlink.Text(netlink.Find(attributes, deletion.name))}
	if d.Kind == "element" {
		d.Count = 0
		list := netlink.Find(attributes, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		for _, element := range netlink.Attributes(list) {
			d.Count++
			if comment := decodeElement(element).Comment; comment != "" {
				d.Owners = append(d.Owners, comment)
			}
		}
	}
	if n := len(t.Deleted); n > 0 && t.Deleted[n-1].joins(d) {
		last := &t.Deleted[n-1]
		last.Count, last.Owners = last.Count+d.Count, append(last.Owners, d.Owners...)
		return nil
	}
	t.Deleted = append(t.Deleted, d)
	return nil
}

// joins reports whether two consecutive deletions can be described as one.
func (d Deletion) joins(other Deletion) bool {
	return d.Table == other.Table && d.Kind == other.Kind && d.Name == other.Name
}
