package netlink

import (
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// TBF holds the parameters of a token bucket filter (tc-tbf(8)).
type TBF struct {
	Rate   uint64        // bytes per second, above 0
	Buffer time.Duration // the time that Rate takes for the bytes of the bucket; up to 274 s
	Limit  uint32        // the bytes that may wait; above 0
}

// String describes the parameters.
func (t TBF) String() string {
	return fmt.Sprintf("rate %d B/s buffer %s limit %d B", t.Rate, t.Buffer, t.Limit)
}

// Same reports whether two filters have the same effect: other implementations truncate the buffer
// to microseconds, and the kernel to its ticks.
func (t TBF) Same(u TBF) bool {
	const slack = int64(time.Microsecond/tick) + 1
	a, b := int64(ticks(t.Buffer)), int64(ticks(u.Buffer))
	return t.Rate == u.Rate && t.Limit == u.Limit && max(a-b, b-a) <= slack
}

// tick is the unit of buffers (PSCHED_SHIFT in include/net/pkt_sched.h).
const tick = 64 * time.Nanosecond

// ticks returns the number of ticks of a buffer, at least 1 and at most the maximum of the field.
func ticks(d time.Duration) uint32 { return uint32(min(max(d/tick, 1), math.MaxUint32)) }

// Qdisc is a queueing discipline of a link.
type Qdisc struct {
	Link    int    // index
	Kind    string // of rtnetlink: "tbf", "ingress", …
	Default bool   // the kernel's own choice, which any other qdisc replaces
	Root    bool   // at the root of the transmit side
	Ours    bool   // under the handle that SetTBF uses
	TBF     TBF    // of a tbf
}

const kindTBF = "tbf"

// tbfHandle is the handle of the root qdisc that [Qdiscs.SetTBF] creates.
var tbfHandle = handle(1, 0)

// All lists the qdiscs of all links, because the kernel cannot select by link.
func (c Qdiscs) All() ([]Qdisc, error) {
	all, err := c.conn.tcList(unix.RTM_GETQDISC, tcMsg{})
	if err != nil {
		return nil, fmt.Errorf("list qdiscs: %w", err)
	}
	list := make([]Qdisc, len(all))
	for i, q := range all {
		list[i] = Qdisc{
			Link: int(q.Ifindex), Kind: q.kind(), Default: q.Handle == 0,
			Root: q.Parent == parentRoot, Ours: q.Handle == tbfHandle,
		}
		if q.kind() != kindTBF {
			continue
		}
		if list[i].TBF, err = decodeTBF(q.attributes[unix.TCA_OPTIONS]); err != nil {
			return nil, fmt.Errorf("list qdiscs: %w", err)
		}
	}
	return list, nil
}

// SetTBF creates a tbf with handle 1 as the root qdisc of a link, or changes the parameters of the
// existing one, which loses no packet.
func (c Qdiscs) SetTBF(l Link, t TBF) error {
	return c.conn.change(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, root(l),
		kindOf(kindTBF), t.options())
}

// DeleteTBF deletes the qdisc of SetTBF, if it exists.
func (c Qdiscs) DeleteTBF(l Link) error { return c.conn.deleteQdisc(root(l)) }

func root(l Link) tcMsg {
	return tcMsg{Ifindex: int32(l.Index), Handle: tbfHandle, Parent: parentRoot}
}

// options encodes a rate of more than 32 bits twice, as the kernel requires.
func (t TBF) options() Attribute {
	parameters := tbfParameters{Rate: rateSpec{Rate: uint32(t.Rate)}, Limit: t.Limit,
		Buffer: ticks(t.Buffer)}
	options := []Attribute{Struct(tbfParms, parameters)}
	if t.Rate > math.MaxUint32 {
		options = append(options, Uint64(tbfRate64, t.Rate))
	}
	return Nest(unix.TCA_OPTIONS, options...)
}

// decodeTBF is the inverse of options.
func decodeTBF(options []byte) (t TBF, err error) {
	o := attributes(options)
	var parameters tbfParameters
	if _, err := ReadBody(o[tbfParms], &parameters); err != nil {
		return t, err
	}
	t = TBF{Rate: uint64(parameters.Rate.Rate), Buffer: time.Duration(parameters.Buffer) * tick,
		Limit: parameters.Limit}
	if b, more := o[tbfRate64]; more {
		_, err = ReadBody(b, &t.Rate)
	}
	return t, err
}

// tbfParameters is struct tc_tbf_qopt (linux/pkt_sched.h).
type tbfParameters struct {
	Rate, PeakRate     rateSpec
	Limit, Buffer, MTU uint32
}

// rateSpec is struct tc_ratespec (linux/pkt_sched.h).
type rateSpec struct {
	CellLog, LinkLayer       uint8
	Overhead, CellAlign, MPU uint16
	Rate                     uint32
}

// Attributes of a tbf (TCA_TBF_… of linux/pkt_sched.h).
const (
	tbfParms  = 1
	tbfRate64 = 4
)

// KindIngress and KindClsact are the two kinds of qdisc that hold filters for packets that a link
// receives. Only the second has the hook [Egress] too.
const (
	KindIngress = "ingress"
	KindClsact  = "clsact"
)

// hooksHandle is the only handle that they can have.
var hooksHandle = handle(0xffff, 0)

// Hooks returns the kind of the qdisc for filters of each link that has one, by the link's index.
func (c Qdiscs) Hooks() (map[int]string, error) {
	all, err := c.conn.tcList(unix.RTM_GETQDISC, tcMsg{})
	if err != nil {
		return nil, fmt.Errorf("list qdiscs: %w", err)
	}
	kinds := map[int]string{}
	for _, q := range all {
		if kind := q.kind(); kind == KindIngress || kind == KindClsact {
			kinds[int(q.Ifindex)] = kind
		}
	}
	return kinds, nil
}

// AddHooks creates a qdisc for filters, of KindIngress or KindClsact. A link has at most one of
// them: the error is EEXIST if it has one.
func (c Qdiscs) AddHooks(l Link, kind string) error {
	return c.conn.change(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL, hooks(l),
		kindOf(kind))
}

// DeleteHooks deletes the qdisc of the hooks with all its filters, if it exists.
func (c Qdiscs) DeleteHooks(l Link) error { return c.conn.deleteQdisc(hooks(l)) }

func hooks(l Link) tcMsg {
	return tcMsg{Ifindex: int32(l.Index), Handle: hooksHandle, Parent: parentIngress}
}

func (c *Conn) deleteQdisc(q tcMsg) error {
	_, err := deleted(c.change(unix.RTM_DELQDISC, 0, q))
	// The errno depends on the qdisc that exists instead.
	return unless(err, unix.ENOENT, unix.EINVAL)
}
