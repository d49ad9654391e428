package vswitch

import (
	"cmp"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugins/ovs"
)

const maxTag = 4094

// plan is a transaction: conditions, then changes.
type plan struct {
	guards, changes []ovsdb.Operation
	names           int // of rows that the transaction inserts
	exposure        ovs.Exposure
}

// is returns the condition that selects a row.
func is(id string) []ovsdb.Condition {
	return []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: id})}
}

// guard makes the transaction fail unless the rows that where selects in a table have these values.
func (p *plan) guard(table string, where []ovsdb.Condition, want ovsdb.Row) {
	now := 0
	p.guards = append(p.guards, ovsdb.Operation{
		Op: ovsdb.OperationWait, Table: table, Where: where, Timeout: &now,
		Columns: slices.Sorted(maps.Keys(want)), Until: string(ovsdb.WaitConditionEqual),
		Rows: []ovsdb.Row{want},
	})
}

// guardPorts makes the transaction fail if the ports of a bridge have changed.
func (p *plan) guardPorts(b *bridge) {
	p.guard("Bridge", is(b.id), ovsdb.Row{"ports": references(b.ports)})
}

// guardTag makes the transaction fail unless a tag represents a segment.
func (p *plan) guardTag(b *bridge, vni, tag int) {
	entry := toMap(map[string]string{tagKey(vni): strconv.Itoa(tag)})
	where := append(is(b.id), ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, entry))
	p.guard("Bridge", where, ovsdb.Row{"name": b.name})
}

func tagKey(vni int) string { return tagPrefix + strconv.Itoa(vni) }

// insert adds a row and returns its identifier in this transaction.
func (p *plan) insert(table string, row ovsdb.Row) ovsdb.UUID {
	p.names++
	name := "row" + strconv.Itoa(p.names)
	p.changes = append(p.changes, ovsdb.Operation{
		Op: ovsdb.OperationInsert, Table: table, Row: row, UUIDName: name,
	})
	return ovsdb.UUID{GoUUID: name}
}

func (p *plan) mutate(table, id, column string, how ovsdb.Mutator, value any) {
	p.changes = append(p.changes, ovsdb.Operation{
		Op: ovsdb.OperationMutate, Table: table, Where: is(id),
		Mutations: []ovsdb.Mutation{{Column: column, Mutator: how, Value: value}},
	})
}

// remove removes ports from a bridge. The server deletes their rows, and the rows of their
// interfaces, because nothing refers to them any more (RFC 7047, section 3.2, "isRoot").
func (p *plan) remove(b *bridge, ports ...string) {
	if len(ports) > 0 {
		p.mutate("Bridge", b.id, "ports", ovsdb.MutateOperationDelete, references(ports))
	}
}

func references(ids []string) ovsdb.OvsSet {
	set := ovsdb.OvsSet{GoSet: []any{}}
	for _, id := range ids {
		set.GoSet = append(set.GoSet, ovsdb.UUID{GoUUID: id})
	}
	return set
}

func toSet(numbers []int) ovsdb.OvsSet {
	set := ovsdb.OvsSet{GoSet: []any{}}
	for _, n := range numbers {
		set.GoSet = append(set.GoSet, n)
	}
	return set
}

func toMap(m map[string]string) ovsdb.OvsMap {
	out := ovsdb.OvsMap{GoMap: map[any]any{}}
	for key, value := range m {
		out.GoMap[key] = value
	}
	return out
}

// createBridge plans a bridge with its local port. A port of another bridge must not have the name.
func (s *state) createBridge(name string, datapath ovs.Datapath) (*plan, error) {
	for _, have := range s.ports {
		if have.name == name || slices.ContainsFunc(have.links, func(id string) bool {
			return s.links[id] != nil && s.links[id].name == name
		}) {
			return nil, invalid("bridge: %q is a port of bridge %s", name, have.bridge)
		}
	}
	p := &plan{}
	local := p.insert("Interface", ovsdb.Row{"name": name, "type": "internal"})
	port := p.insert("Port", ovsdb.Row{"name": name, "interfaces": local})
	bridge := p.insert("Bridge", ovsdb.Row{
		"name": name, "datapath_type": string(datapath), "ports": port,
	})
	p.mutate("Open_vSwitch", s.root, "bridges", ovsdb.MutateOperationInsert, bridge)
	return p, nil
}

// attach plans the port of a container, with everything that its segment lacks.
func (s *state) attach(want ovs.Port) (*plan, error) {
	b := s.bridges[want.Bridge]
	if b == nil {
		return nil, fmt.Errorf("bridge %s: %w", want.Bridge, ovs.ErrNoBridge)
	}
	p := &plan{}
	for _, have := range s.ports {
		a := s.attached(have)
		switch own := have.container() && !a.Foreign && a.Owner.Attachment == want.Owner.Attachment; {
		case own && s.bridges[have.bridge] != nil:
			p.remove(s.bridges[have.bridge], have.id)
		case have.name == want.Name && !own:
			return nil, fmt.Errorf("port %s exists on bridge %s and does not belong to this attachment; "+
				"remove it with: ovs-vsctl del-port %s", have.name, have.bridge, have.name)
		}
	}
	tag, err := s.admit(p, b, want)
	if err != nil {
		return nil, err
	}
	link := p.insert("Interface", interfaceRow(want))
	port := p.insert("Port", portRow(want, tag, link))
	p.mutate("Bridge", b.id, "ports", ovsdb.MutateOperationInsert, port)
	return p, nil
}

// admit plans the segment of a port, and returns the tag of the port. The guards keep concurrent
// calls apart: a port outside all segments excludes a new segment, and a new segment excludes any
// new port.
func (s *state) admit(p *plan, b *bridge, want ovs.Port) (tag int, err error) {
	if want.Segment == nil {
		p.guard("Bridge", is(b.id), ovsdb.Row{"external_ids": toMap(b.ids)})
		return want.Tag, s.apart(b, want)
	}
	if tag, err = s.segment(p, b, *want.Segment); err != nil {
		return 0, err
	}
	p.exposure, err = s.alone(b, want, tag)
	return tag, err
}

func invalid(format string, args ...any) *cni.Error {
	return cni.Errorf(cni.CodeInvalidConfig, format, args...)
}

func interfaceRow(want ovs.Port) ovsdb.Row {
	row := ovsdb.Row{"name": want.Name, "type": want.InterfaceType}
	if want.OpenFlow != 0 {
		row["ofport_request"] = want.OpenFlow
	}
	if want.InterfaceID != "" {
		row["external_ids"] = toMap(map[string]string{idInterface: want.InterfaceID})
	}
	return row
}

func portRow(want ovs.Port, tag int, link ovsdb.UUID) ovsdb.Row {
	ids := map[string]string{
		idOwner: ownerOurs, idContainer: want.Owner.Container, idIfName: want.Owner.IfName,
		idNetns: want.Owner.Netns, idNetwork: want.Owner.Network,
	}
	if want.Segment != nil {
		ids[idVNI] = strconv.Itoa(want.Segment.VNI)
	}
	row := ovsdb.Row{
		"name": want.Name, "interfaces": link, "vlan_mode": "trunk", "external_ids": toMap(ids),
	}
	if tag != 0 {
		row["vlan_mode"], row["tag"] = "access", tag
	} else if len(want.Trunks) > 0 {
		row["trunks"] = toSet(want.Trunks)
	}
	if want.Protected {
		row["protected"] = true
	}
	return row
}

// segment plans the tag and the tunnels that a segment lacks on a bridge, and returns the tag.
func (s *state) segment(p *plan, b *bridge, want ovs.Segment) (tag int, err error) {
	tags := b.tags()
	tag, exists := tags[want.VNI]
	switch {
	case exists && want.Tag != 0 && want.Tag != tag:
		return 0, invalid("vlan: %d cannot represent VXLAN segment %d on bridge %s, because %d does",
			want.Tag, want.VNI, b.name, tag).
			WithDetails("remove vlan, or detach all containers of the segment")
	case exists:
		p.guardTag(b, want.VNI, tag)
	default:
		if tag, err = s.freeTag(b, want); err != nil {
			return 0, err
		}
		p.guard("Bridge", is(b.id), ovsdb.Row{"external_ids": toMap(b.ids), "ports": references(b.ports)})
		p.mutate("Bridge", b.id, "external_ids", ovsdb.MutateOperationInsert,
			toMap(map[string]string{tagKey(want.VNI): strconv.Itoa(tag)}))
	}
	missing := 0
	for _, t := range want.Tunnels {
		switch have, err := s.tunnel(b, want.VNI, t); {
		case err != nil:
			return 0, err
		case have == nil:
			missing++
			p.addTunnel(b, want.VNI, tag, t)
		case !have.serves(tag): // another program has changed it
			p.changes = append(p.changes, ovsdb.Operation{
				Op: ovsdb.OperationUpdate, Table: "Port", Where: is(have.id), Row: tunnelRow(tag),
			})
		}
	}
	if missing > 0 && exists {
		p.guardPorts(b)
	}
	return tag, nil
}

// freeTag returns the requested tag of a segment without an entry, the tag of its ports, or the
// lowest one that nothing on the bridge uses.
func (s *state) freeTag(b *bridge, want ovs.Segment) (int, error) {
	var used [maxTag + 1]bool
	for vni, tag := range b.tags() {
		if tag == want.Tag {
			return 0, invalid("vlan: %d represents VXLAN segment %d on bridge %s", tag, vni, b.name).
				WithDetails("use another vlan, or remove it to let the plugin choose")
		}
		used[min(tag, maxTag)] = true
	}
	if want.Tag != 0 {
		return want.Tag, nil
	}
	for _, p := range s.on(b) { // another program may have removed the entry of the segment
		if p.vni() == want.VNI && p.tag != 0 && p.tag <= maxTag && !used[p.tag] {
			return p.tag, nil
		}
	}
	for _, p := range s.on(b) {
		for _, id := range append([]int{p.tag}, p.trunks...) {
			used[min(id, maxTag)] = true
		}
	}
	for tag := 1; tag <= maxTag; tag++ {
		if !used[tag] {
			return tag, nil
		}
	}
	return 0, cni.Errorf(cni.CodeTryAgainLater, "bridge %s has no free VLAN for VXLAN segment %d",
		b.name, want.VNI).WithDetails("use another bridge, or detach the containers of a segment")
}

// tunnelName returns the name of the port of a tunnel.
func tunnelName(bridge string, vni int, remote netip.Addr) string {
	sum := sha512.Sum512([]byte(bridge + "\x00" + strconv.Itoa(vni) + "\x00" + remote.String()))
	return "vx" + hex.EncodeToString(sum[:])[:12]
}

func tunnelOptions(vni int, t ovs.Tunnel) map[string]string {
	options := map[string]string{
		"remote_ip": t.Remote.String(), "key": strconv.Itoa(vni), "dst_port": strconv.Itoa(t.Port),
	}
	if t.Local.IsValid() {
		options["local_ip"] = t.Local.String()
	}
	return options
}

// tunnel returns the port of a tunnel, or nil. A tunnel to the same node with other options is an
// error.
func (s *state) tunnel(b *bridge, vni int, t ovs.Tunnel) (*port, error) {
	name := tunnelName(b.name, vni, t.Remote)
	for _, p := range s.on(b) {
		if p.name != name {
			continue
		}
		l := s.links[first(p.links)]
		if l == nil || !maps.Equal(l.options, tunnelOptions(vni, t)) {
			return nil, invalid("VXLAN segment %d has a tunnel to %s with other options on bridge %s", vni,
				t.Remote, b.name).
				WithDetails("use the same vxlanLocalIP and vxlanPort in all networks of the segment")
		}
		return p, nil
	}
	return nil, nil
}

// serves reports whether the port of a tunnel has the columns of [tunnelRow].
func (p *port) serves(tag int) bool { return p.mode == "access" && p.tag == tag && p.protected }

// tunnelRow returns the columns that connect a tunnel to its segment. Tunnels are protected: the
// switch passes no frame from one tunnel to another, so a full mesh has no loops.
func tunnelRow(tag int) ovsdb.Row {
	return ovsdb.Row{"vlan_mode": "access", "tag": tag, "protected": true}
}

// addTunnel plans a tunnel.
func (p *plan) addTunnel(b *bridge, vni, tag int, t ovs.Tunnel) {
	name := tunnelName(b.name, vni, t.Remote)
	link := p.insert("Interface", ovsdb.Row{
		"name": name, "type": "vxlan", "options": toMap(tunnelOptions(vni, t)),
	})
	row := tunnelRow(tag)
	row["name"], row["interfaces"] = name, link
	row["external_ids"] = toMap(map[string]string{
		idOwner: ownerOurs, idRole: roleTunnel, idVNI: strconv.Itoa(vni),
	})
	p.mutate("Bridge", b.id, "ports", ovsdb.MutateOperationInsert, p.insert("Port", row))
}

// detach plans the removal of ports, and of the segments that no container port uses then. It
// returns the names of the ports.
func (s *state) detach(match func(ovs.Attached) bool) (*plan, []string) {
	p, names := &plan{}, []string(nil)
	for _, b := range s.all() {
		var remove []string
		left := map[int]*port{}  // a container port that stays, by segment
		unused := map[int]bool{} // segments that lose a port, or have none
		for vni := range b.tags() {
			unused[vni] = true
		}
		for _, q := range s.on(b) {
			switch {
			case q.tunnel():
				unused[q.vni()] = true
			case !q.container():
			case match(s.attached(q)):
				remove, names = append(remove, q.id), append(names, q.name)
				if q.vni() != 0 {
					unused[q.vni()] = true
				}
			case q.vni() != 0:
				left[q.vni()] = q
			}
		}
		s.release(p, b, remove, left, unused)
	}
	return p, names
}

// release plans the removal of ports from a bridge, and of the touched segments that have no
// port left.
func (s *state) release(
	p *plan, b *bridge, remove []string, left map[int]*port, touched map[int]bool,
) {
	lost := map[int]bool{}
	for _, id := range remove {
		lost[s.ports[id].vni()] = true
	}
	ends := false // a segment ends
	for _, vni := range slices.Sorted(maps.Keys(touched)) {
		if q := left[vni]; q != nil {
			if lost[vni] { // the segment stays as long as q does
				p.guard("Port", is(q.id), ovsdb.Row{"name": q.name})
			}
			continue
		}
		if tag, ok := b.tags()[vni]; ok {
			ends = true
			p.mutate("Bridge", b.id, "external_ids", ovsdb.MutateOperationDelete,
				toMap(map[string]string{tagKey(vni): strconv.Itoa(tag)}))
		}
		for _, q := range s.on(b) {
			if q.tunnel() && q.vni() == vni {
				ends, remove = true, append(remove, q.id)
			}
		}
	}
	if ends { // no container may have joined meanwhile
		p.guardPorts(b)
	}
	p.remove(b, remove...)
}

// segmentOf returns a segment of a bridge, with Tag 0 if there is none.
func (s *state) segmentOf(name string, vni int) ovs.Segment {
	segment := ovs.Segment{VNI: vni}
	b := s.bridges[name]
	if b == nil {
		return segment
	}
	segment.Tag = b.tags()[vni]
	for _, p := range s.on(b) {
		l := s.links[first(p.links)]
		if !p.tunnel() || p.vni() != vni || !p.serves(segment.Tag) || l == nil || l.failure != "" ||
			l.options["key"] != strconv.Itoa(vni) {
			continue
		}
		remote, _ := netip.ParseAddr(l.options["remote_ip"])
		local, _ := netip.ParseAddr(l.options["local_ip"])
		dst, _ := strconv.Atoi(cmp.Or(l.options["dst_port"], "4789"))
		segment.Tunnels = append(segment.Tunnels, ovs.Tunnel{Remote: remote, Local: local, Port: dst})
	}
	return segment
}
