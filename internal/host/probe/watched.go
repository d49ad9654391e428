package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// watched is a namespace during the probe.
type watched struct {
	space    *host.Namespace
	ns       *netns.NS
	conn     *nftmsg.Conn
	trace    *nftmsg.Trace
	tables   []nftmsg.Table
	counters map[string]uint64
	flow     Flow
	id       uint16               // see [socket]
	packets  map[uint32]Direction // of the flow, by the identifier of the trace
}

// tablePrefix begins the names of the tables.
const tablePrefix = "tenon_probe_"

// watch begins to trace the packets of a flow in a namespace.
func watch(n *host.Namespace, f Flow, id uint16) (w *watched, err error) {
	w = &watched{space: n, flow: f, id: id, packets: map[uint32]Direction{}}
	if w.ns, err = n.Open(); err != nil {
		return nil, err
	}
	if w.trace, err = nftmsg.OpenTrace(w.ns); err == nil {
		w.conn, err = nftmsg.Open(w.ns)
	}
	if err == nil {
		w.counters, err = w.count()
	}
	if err == nil {
		err = w.mark()
	}
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// close removes the tables and closes the sockets.
func (w *watched) close() (err error) {
	if len(w.tables) > 0 {
		var t nftmsg.Transaction
		for _, table := range w.tables {
			t.DeleteTable(table)
		}
		err = w.conn.Commit(&t)
	}
	if w.conn != nil {
		err = errors.Join(err, w.conn.Close())
	}
	if w.trace != nil {
		err = errors.Join(err, w.trace.Close())
	}
	return errors.Join(err, w.ns.Close())
}

// mark adds the tables that set nftrace in the packets of a flow: one for the network layer, and one
// for frames of bridges where rules see them.
func (w *watched) mark() error {
	var t nftmsg.Transaction
	tables := []nftmsg.Table{{Family: nftmsg.INet, Name: fmt.Sprintf("%s%08x", tablePrefix, rand.Uint32())}}
	for _, x := range w.space.Ruleset.Tables {
		if x.Family == nftmsg.Bridge && len(tables) == 1 {
			tables = append(tables, nftmsg.Table{Family: nftmsg.Bridge, Name: tables[0].Name})
		}
	}
	for _, table := range tables {
		t.AddOwnedTable(table)
		for _, hook := range []uint32{unix.NF_INET_PRE_ROUTING, unix.NF_INET_LOCAL_OUT} {
			for _, d := range []Direction{Request, Reply} {
				const first = -500 // before the priorities of all known programs
				chain := nftmsg.Chain{Table: table, Name: fmt.Sprintf("%s_%d", d, hook),
					Type: nftmsg.ChainFilter, Hook: hook, Priority: first}
				t.AddChain(chain)
				for _, rule := range w.flow.rules(w.space, d, w.id) {
					t.AddRule(chain, rule)
				}
			}
		}
	}
	err := w.conn.Commit(&t)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w: %w", ErrOld, err)
	}
	if err == nil {
		w.tables = tables
	}
	return err
}

// rules returns the rules that mark the packet or its answer in a namespace. The namespace of the
// host and the source also have traffic of other flows, where another one may use the same number, so
// that an address must match, too. It is the source or the destination, because a translation can
// have changed the other one.
func (f Flow) rules(n *host.Namespace, d Direction, id uint16) (list [][]nftmsg.Expr) {
	conditions := append(f.version(), f.number(d, id)...)
	set := []nftmsg.Expr{
		nftmsg.Immediate{Register: unix.NFT_REG_1, Value: []byte{1}},
		nftmsg.SetMeta{Key: unix.NFT_META_NFTRACE, Register: unix.NFT_REG_1},
	}
	if n != f.Source && n != f.Host.Own() {
		return [][]nftmsg.Expr{append(conditions, set...)}
	}
	source, destination := uint32(12), uint32(16) // in the header of IPv4
	if f.To.Is6() {
		source, destination = 8, 24
	}
	if d == Reply {
		source, destination = destination, source
	}
	for offset, a := range map[uint32]netip.Addr{source: f.From, destination: f.To} {
		if !a.IsValid() { // the kernel could not choose a source, so it sends nothing
			continue
		}
		rule := append(conditions[:len(conditions):len(conditions)],
			equal(unix.NFT_PAYLOAD_NETWORK_HEADER, offset, a.AsSlice())...)
		list = append(list, append(rule, set...))
	}
	return list
}

// version returns the conditions that a packet has the version of IP and the protocol of the flow.
func (f Flow) version() []nftmsg.Expr {
	etherType := []byte{unix.ETH_P_IP >> 8, unix.ETH_P_IP & 0xff}
	if f.To.Is6() {
		etherType = []byte{unix.ETH_P_IPV6 >> 8, unix.ETH_P_IPV6 & 0xff}
	}
	return []nftmsg.Expr{
		nftmsg.Meta{Key: unix.NFT_META_PROTOCOL, Register: unix.NFT_REG_1},
		nftmsg.Cmp{Register: unix.NFT_REG_1, Data: etherType},
		nftmsg.Meta{Key: unix.NFT_META_L4PROTO, Register: unix.NFT_REG_1},
		nftmsg.Cmp{Register: unix.NFT_REG_1, Data: []byte{f.Protocol}},
	}
}

// number returns the conditions that a packet has the port of the source, or the identifier of the
// ping, and the direction.
func (f Flow) number(d Direction, id uint16) []nftmsg.Expr {
	const layer = unix.NFT_PAYLOAD_TRANSPORT_HEADER
	value := []byte{byte(id >> 8), byte(id)}
	types := map[Direction]byte{Request: echoRequest6, Reply: echoReply6}
	switch f.Protocol {
	case unix.IPPROTO_ICMP:
		types = map[Direction]byte{Request: echoRequest4, Reply: echoReply4}
		fallthrough
	case unix.IPPROTO_ICMPV6:
		return append(equal(layer, 0, []byte{types[d]}), equal(layer, 4, value)...)
	}
	return equal(layer, map[Direction]uint32{Request: 0, Reply: 2}[d], value)
}

// equal returns the condition that a header has a value at an offset.
func equal(header, offset uint32, value []byte) []nftmsg.Expr {
	return []nftmsg.Expr{
		nftmsg.Payload{Base: header, Offset: offset, Len: uint32(len(value)),
			Register: unix.NFT_REG_1},
		nftmsg.Cmp{Register: unix.NFT_REG_1, Data: value},
	}
}

// describe adds what an event says about the packet: that it was seen, by a rule of the probe, or a
// final decision. It ignores packets that other programs trace.
func (w *watched) describe(e nftmsg.TraceEvent, to *news) {
	if e.Network != nil { // the first event of a packet in each base chain
		delete(w.packets, e.Packet)
		if d, mine := w.flow.direction(e, w.id); mine {
			w.packets[e.Packet] = d
		}
	}
	direction, mine := w.packets[e.Packet]
	if !mine {
		return
	}
	at := Sighting{w.space.ID, direction}
	if strings.HasPrefix(e.Table.Name, tablePrefix) {
		if e.Kind == unix.NFT_TRACETYPE_RULE && e.Handle != 0 {
			to.seen = append(to.seen, at)
		}
		return
	}
	const stolen, queue = 2, 3 // NF_STOLEN, NF_QUEUE
	verdicts := map[int32]string{nftmsg.Accept: "accept", nftmsg.Drop: "drop", stolen: "stolen",
		queue: "queue"}
	verdict := verdicts[e.Verdict.Code&0xff] // above it, the errno of a drop or the number of a queue
	if e.Verdict.Code < 0 || verdict == "" || e.Kind == unix.NFT_TRACETYPE_RETURN {
		return
	}
	to.decisions = append(to.decisions, Decision{Sighting: at, Table: e.Table, Chain: e.Chain,
		Handle: e.Handle, Number: w.number(e), Verdict: verdict})
}

// direction returns the direction of the packet of an event; ok is false for packets of other flows.
func (f Flow) direction(e nftmsg.TraceEvent, id uint16) (d Direction, ok bool) {
	const least, protocol4, protocol6 = 8, 9, 6 // in bytes
	protocol := protocol4
	if f.To.Is6() {
		protocol = protocol6
	}
	t := e.Transport
	if len(e.Network) <= protocol4 || e.Network[protocol] != f.Protocol || len(t) < least {
		return "", false
	}
	number := func(offset int) uint16 { return binary.BigEndian.Uint16(t[offset:]) }
	switch f.Protocol {
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		d = map[byte]Direction{echoRequest4: Request, echoRequest6: Request, echoReply4: Reply,
			echoReply6: Reply}[t[0]]
		return d, d != "" && number(4) == id
	}
	if number(0) == id {
		return Request, true
	}
	return Reply, number(2) == id
}

// number returns the number of the rule of an event in its chain, 0 if it is not known.
func (w *watched) number(e nftmsg.TraceEvent) int {
	number := 0
	for _, rule := range w.space.Ruleset.Rules {
		if rule.Table != e.Table || rule.Chain != e.Chain {
			continue
		}
		if number++; rule.Handle == e.Handle {
			return number
		}
	}
	return 0
}
