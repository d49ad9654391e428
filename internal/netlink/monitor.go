package netlink

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Monitor receives the changes of links, addresses, routes and neighbours of a namespace. Close may
// be called while another goroutine waits in Next.
type Monitor struct{ stream *Stream }

// Event is a change in a namespace. Exactly one of Lost, Link, Addr, Route and Neighbour is set.
type Event struct {
	Deleted  bool
	Replaced bool // the new route takes the place of another one

	Lost      bool // changes that happened faster than they were read, of any kind
	Link      *Link
	Addr      *LinkAddr
	Route     *NodeRoute // of the table main, with any protocol
	Protocol  int        // of Route
	Neighbour *Neighbour // permanent or deleted
}

// Monitor opens a monitor of the namespace of the connection, which the caller may then close.
func (c *Conn) Monitor() (*Monitor, error) {
	stream, err := OpenStream(c.ns, StreamOptions{Protocol: unix.NETLINK_ROUTE, Groups: []int{
		unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
	}})
	if err != nil {
		return nil, err
	}
	return &Monitor{stream}, nil
}

// Close closes the monitor, and makes Next return an error that wraps [os.ErrClosed].
func (m *Monitor) Close() error { return m.stream.Close() }

// Next waits for changes and returns them in their order.
func (m *Monitor) Next() ([]Event, error) {
	for {
		data, _, err := m.stream.Next(true)
		if errors.Is(err, ErrOverrun) {
			return []Event{{Lost: true}}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("monitor: %w", err)
		}
		if events := readEvents(data); len(events) > 0 {
			return events, nil
		}
	}
}

// readEvents decodes a datagram, and reports a message that it cannot decode as lost.
func readEvents(data []byte) (events []Event) {
	for len(data) >= unix.SizeofNlMsghdr {
		m, rest, err := next(data)
		if err != nil {
			return append(events, Event{Lost: true})
		}
		data = rest
		switch e, ok, err := readEvent(m); {
		case err != nil:
			events = append(events, Event{Lost: true})
		case ok:
			events = append(events, e)
		}
	}
	return events
}

// readEvent decodes a message; ok is false if it is not about an object of [Event].
func readEvent(m reply) (e Event, ok bool, err error) {
	switch m.kind {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		l, err := readLink(m.payload)
		return Event{Deleted: m.kind == unix.RTM_DELLINK, Link: &l}, true, err
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		a, index, err := readAddr(m.payload)
		return Event{Deleted: m.kind == unix.RTM_DELADDR, Addr: &LinkAddr{index, a.Addr}}, true, err
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		r, err := readRoute(m.payload)
		if err != nil || r.table() != TableMain || r.Flags&unix.RTM_F_CLONED != 0 {
			return Event{}, false, err
		}
		route, deleted := r.nodeRoute(), m.kind == unix.RTM_DELROUTE
		return Event{Deleted: deleted, Replaced: !deleted && m.flags&unix.NLM_F_REPLACE != 0,
			Route: &route, Protocol: int(r.Protocol)}, true, nil
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		var entry unix.NdMsg
		attributes, err := ReadBody(m.payload, &entry)
		n := readNeighbour(entry, attributes)
		deleted := m.kind == unix.RTM_DELNEIGH
		return Event{Deleted: deleted, Neighbour: &n}, deleted || !n.Other, err
	}
	return Event{}, false, nil
}
