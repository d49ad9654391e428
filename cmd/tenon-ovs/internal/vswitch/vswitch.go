// Package vswitch implements the switch of the plugin ovs by the database of Open vSwitch, with the
// protocol OVSDB (RFC 7047). Each change is one transaction with conditions, so that calls of
// several processes never see or leave half of a change.
//
// The package knows nothing of links, namespaces or CNI calls.
package vswitch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugins/ovs"
)

// budget limits each method of a switch.
const budget = 30 * time.Second

// Switch implements [ovs.Switch]. It is for one goroutine.
type Switch struct{ conn }

// Dial implements [ovs.Dialer].
func Dial(ctx context.Context, endpoint string, patience time.Duration) (ovs.Switch, error) {
	return DialWithin(budget)(ctx, endpoint, patience)
}

// DialWithin is [Dial] for switches with another limit of each method.
func DialWithin(limit time.Duration) ovs.Dialer {
	return func(ctx context.Context, endpoint string, patience time.Duration) (ovs.Switch, error) {
		s := &Switch{conn{endpoint: endpoint, limit: limit}}
		if err := s.dial(ctx, patience); err != nil {
			return nil, err
		}
		return s, nil
	}
}

// read calls use with the content of the database.
func (s *Switch) read(ctx context.Context, use func(*state)) error {
	return s.retry(ctx, func(ctx context.Context) error {
		content, err := s.load(ctx)
		if err == nil {
			use(content)
		}
		return err
	})
}

// HasBridge implements [ovs.Switch].
func (s *Switch) HasBridge(ctx context.Context, name string) (ok bool, err error) {
	err = s.read(ctx, func(content *state) { ok = content.bridges[name] != nil })
	return ok, err
}

// Find implements [ovs.Switch].
func (s *Switch) Find(
	ctx context.Context, match func(ovs.Attached) bool,
) (list []ovs.Attached, err error) {
	err = s.read(ctx, func(content *state) {
		list = nil
		for _, b := range content.all() {
			for _, p := range content.on(b) {
				if a := content.attached(p); p.container() && match(a) {
					list = append(list, a)
				}
			}
		}
	})
	return list, err
}

// SegmentOf implements [ovs.Switch].
func (s *Switch) SegmentOf(
	ctx context.Context, bridge string, vni int,
) (segment ovs.Segment, err error) {
	err = s.read(ctx, func(content *state) { segment = content.segmentOf(bridge, vni) })
	return segment, err
}

// CreateBridge implements [ovs.Switch].
func (s *Switch) CreateBridge(ctx context.Context, name string, datapath ovs.Datapath) error {
	return s.retry(ctx, func(ctx context.Context) error {
		content, err := s.load(ctx)
		if err != nil || content.bridges[name] != nil {
			return err
		}
		p, err := content.createBridge(name, datapath)
		if err != nil {
			return err
		}
		cfg, err := s.commit(ctx, content, p)
		if refused := (*answerError)(nil); errors.As(err, &refused) && refused.kind == constraint {
			return errConflict // another program has used the name since
		}
		if err != nil {
			return err
		}
		return s.applied(ctx, content.root, cfg, s.limit)
	})
}

// constraint is the kind of error for a name that exists.
const constraint = "constraint violation"

// Attach implements [ovs.Switch].
func (s *Switch) Attach(ctx context.Context, want ovs.Port) (exposure ovs.Exposure, err error) {
	err = s.retry(ctx, func(ctx context.Context) error {
		exposure, err = s.add(ctx, want)
		return err
	})
	return exposure, err
}

// add is one attempt of Attach.
func (s *Switch) add(ctx context.Context, want ovs.Port) (exposure ovs.Exposure, err error) {
	if err := s.supports(want); err != nil {
		return exposure, err
	}
	content, err := s.load(ctx)
	if err != nil {
		return exposure, err
	}
	p, err := content.attach(want)
	if err != nil {
		return exposure, err
	}
	cfg, err := s.commit(ctx, content, p)
	if err != nil {
		return exposure, err
	}
	if err := s.applied(ctx, content.root, cfg, s.limit); err != nil {
		return exposure, err
	}
	if content, err = s.load(ctx); err != nil {
		return exposure, err
	}
	return p.exposure, content.working(want)
}

// supports returns an error if this version of Open vSwitch lacks a column.
func (s *Switch) supports(want ovs.Port) error {
	option := ""
	switch {
	case want.Segment != nil && len(want.Segment.Tunnels) > 0:
		option = "vxlanRemotes"
	case want.Protected:
		option = "isolated"
	default:
		return nil
	}
	if s.protected {
		return nil
	}
	return cni.Errorf(cni.CodeUnsupportedField, "%s: this Open vSwitch has no protected ports",
		option).WithDetails("update Open vSwitch")
}

// working returns an error if ovs-vswitchd reports one for the port, or for a tunnel of its
// segment.
func (s *state) working(want ovs.Port) error {
	names := map[string]bool{want.Name: true}
	if want.Segment != nil {
		for _, t := range want.Segment.Tunnels {
			names[tunnelName(want.Bridge, want.Segment.VNI, t.Remote)] = true
		}
	}
	for _, p := range s.ports {
		if failure := s.failure(p); names[p.name] && failure != "" {
			return fmt.Errorf("port %s: ovs-vswitchd reports: %s", p.name, failure)
		}
	}
	return nil
}

// Detach implements [ovs.Switch].
func (s *Switch) Detach(
	ctx context.Context, match func(ovs.Attached) bool,
) (removed []string, err error) {
	err = s.retry(ctx, func(ctx context.Context) error {
		content, err := s.load(ctx)
		if err != nil {
			return err
		}
		p, names := content.detach(match)
		if removed = names; len(p.changes) == 0 {
			return nil
		}
		cfg, err := s.commit(ctx, content, p)
		if err != nil {
			return err
		}
		// The links of the ports are deleted next. Without ovs-vswitchd nothing uses them.
		if err := s.applied(ctx, content.root, cfg, removalTime); !errors.Is(err, errNotApplied) {
			return err
		}
		return nil
	})
	return removed, err
}

// removalTime limits the time that Detach waits for ovs-vswitchd.
const removalTime = 2 * time.Second

// commit makes a transaction and returns the number of the configuration that ovs-vswitchd reports
// when it has applied it (ovs-vswitchd.conf.db(5), next_cfg and cur_cfg).
func (s *Switch) commit(ctx context.Context, content *state, p *plan) (cfg int, err error) {
	p.mutate("Open_vSwitch", content.root, "next_cfg", ovsdb.MutateOperationAdd, 1)
	ops := append(append(p.guards, p.changes...), ovsdb.Operation{
		Op: ovsdb.OperationSelect, Table: "Open_vSwitch", Where: is(content.root),
		Columns: []string{"next_cfg"},
	})
	results, err := s.transact(ctx, len(p.guards), ops...)
	if err != nil {
		return 0, err
	}
	rows := results[len(ops)-1].Rows
	if len(rows) == 0 {
		return 0, errConflict
	}
	return first(numbers(rows[0]["next_cfg"])), nil
}

// errNotApplied reports that ovs-vswitchd has not applied a change in time.
var errNotApplied = errors.New("ovs-vswitchd has not applied the change")

// applied waits until ovs-vswitchd has applied a configuration. The server answers when the
// condition becomes true, so nothing is polled. The error wraps errNotApplied after the limit.
func (s *Switch) applied(ctx context.Context, root string, cfg int, limit time.Duration) error {
	where := append(is(root), ovsdb.NewCondition("cur_cfg", ovsdb.ConditionGreaterThanOrEqual, cfg))
	err := s.await(ctx, limit, ovsdb.Operation{
		Table: "Open_vSwitch", Where: where, Columns: []string{"_uuid"},
		Rows: []ovsdb.Row{{"_uuid": ovsdb.UUID{GoUUID: root}}},
	})
	if late := (*answerError)(nil); errors.As(err, &late) && late.kind == timedOut ||
		errors.Is(err, context.DeadlineExceeded) {
		return cni.Errorf(cni.CodeTryAgainLater, "%w", errNotApplied).
			WithDetails("look whether ovs-vswitchd runs, for example with: " +
				"systemctl status openvswitch-switch")
	}
	return err
}

// WaitUp implements [ovs.Switch].
func (s *Switch) WaitUp(ctx context.Context, name string, limit time.Duration) error {
	return s.retry(ctx, func(ctx context.Context) error {
		err := s.await(ctx, limit, ovsdb.Operation{
			Table:   "Interface",
			Where:   []ovsdb.Condition{ovsdb.NewCondition("name", ovsdb.ConditionEqual, name)},
			Columns: []string{"link_state"}, Rows: []ovsdb.Row{{"link_state": "up"}},
		})
		if late := (*answerError)(nil); errors.As(err, &late) && late.kind == timedOut {
			return cni.Errorf(cni.CodeTryAgainLater, "port %s is not up after %s", name,
				min(limit, s.limit)).
				WithDetails("look for its state with: ovs-vsctl list interface " + name)
		}
		return err
	})
}

// await waits until the rows of an operation are as it says. It gives up shortly before the end of
// ctx, so that the answer names the reason.
func (s *Switch) await(ctx context.Context, limit time.Duration, op ovsdb.Operation) error {
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)-answerTime)
	}
	ms := max(0, int(limit.Milliseconds()))
	op.Op, op.Until, op.Timeout = ovsdb.OperationWait, string(ovsdb.WaitConditionEqual), &ms
	_, err := s.transact(ctx, 0, op)
	return err
}

// answerTime is the time for an answer of the server that a wait is over.
const answerTime = 100 * time.Millisecond
