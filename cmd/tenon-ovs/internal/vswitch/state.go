package vswitch

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugins/ovs"
)

// The keys and values of external_ids.
const (
	idOwner     = "owner"
	idContainer = "contID"
	idIfName    = "contIface"
	idNetns     = "contNetns"
	idNetwork   = "network"
	idVNI       = "vxlanID"
	idRole      = "role"
	idInterface = "iface-id" // of OVN

	ownerOurs    = "cni-ovs"
	ownerForeign = "ovs-cni.network.kubevirt.io"
	roleTunnel   = "tunnel"

	tagPrefix = "cni-vni-" // of the keys of a bridge; followed by the VNI
)

// state is the content of the database at one time, as far as this package needs it.
type state struct {
	root    string // identifier of the row of Open_vSwitch
	bridges map[string]*bridge
	ports   map[string]*port // by identifier
	links   map[string]*link // by identifier
}

type bridge struct {
	id, name string
	ports    []string // identifiers
	ids      map[string]string
}

type port struct {
	id, name, bridge string
	links            []string // identifiers
	mode             string
	tag              int
	tagged           bool // the column tag has a value, which may be 0
	trunks           []int
	protected        bool
	ids              map[string]string
}

type link struct {
	id, name, kind string
	options        map[string]string
	failure        string // column error
	absent         bool   // ovs-vswitchd finds no link
}

// load reads the database in one transaction.
func (c *conn) load(ctx context.Context) (*state, error) {
	columns := []string{"_uuid", "name", "interfaces", "vlan_mode", "tag", "trunks", "external_ids"}
	if c.protected {
		columns = append(columns, "protected")
	}
	results, err := c.transact(ctx, 0,
		selectAll("Open_vSwitch", "_uuid"),
		selectAll("Bridge", "_uuid", "name", "ports", "external_ids"),
		selectAll("Port", columns...),
		selectAll("Interface", "_uuid", "name", "type", "options", "error", "ifindex"))
	if err != nil {
		return nil, err
	}
	s := &state{bridges: map[string]*bridge{}, ports: map[string]*port{}, links: map[string]*link{}}
	for _, r := range results[0].Rows {
		s.root = first(ids(r["_uuid"]))
	}
	if s.root == "" {
		return nil, errors.New("the database of Open vSwitch is empty: run ovs-vsctl init")
	}
	for _, r := range results[2].Rows {
		p := &port{
			id: first(ids(r["_uuid"])), name: first(texts(r["name"])), links: ids(r["interfaces"]),
			mode: first(texts(r["vlan_mode"])), tag: first(numbers(r["tag"])),
			trunks: slices.Sorted(slices.Values(numbers(r["trunks"]))), ids: dictionary(r["external_ids"]),
		}
		p.tagged = len(members(r["tag"])) > 0
		p.protected, _ = r["protected"].(bool)
		s.ports[p.id] = p
	}
	for _, r := range results[3].Rows {
		l := &link{
			id: first(ids(r["_uuid"])), name: first(texts(r["name"])), kind: first(texts(r["type"])),
			options: dictionary(r["options"]), failure: first(texts(r["error"])),
		}
		// ovs-vswitchd sets ifindex to 0 when it notices that the link is gone. A missing value means
		// that it has not looked yet.
		index := numbers(r["ifindex"])
		l.absent = l.failure != "" || len(index) == 1 && index[0] == 0
		s.links[l.id] = l
	}
	for _, r := range results[1].Rows {
		b := &bridge{id: first(ids(r["_uuid"])), name: first(texts(r["name"])), ports: ids(r["ports"]),
			ids: dictionary(r["external_ids"])}
		s.bridges[b.name] = b
		for _, id := range b.ports {
			if p := s.ports[id]; p != nil {
				p.bridge = b.name
			}
		}
	}
	return s, nil
}

func selectAll(table string, columns ...string) ovsdb.Operation {
	return ovsdb.Operation{Op: ovsdb.OperationSelect, Table: table, Columns: columns}
}

// members returns the elements of a column: a set, or the only element of one.
func members(v any) []any {
	switch v := v.(type) {
	case nil:
		return nil
	case ovsdb.OvsSet:
		return v.GoSet
	}
	return []any{v}
}

func collect[T, U any](v any, convert func(T) U) (list []U) {
	for _, m := range members(v) {
		if t, ok := m.(T); ok {
			list = append(list, convert(t))
		}
	}
	return list
}

func ids(v any) []string {
	return collect(v, func(u ovsdb.UUID) string { return u.GoUUID })
}

func texts(v any) []string { return collect(v, func(s string) string { return s }) }

func numbers(v any) []int { return collect(v, func(f float64) int { return int(f) }) }

func first[T any](list []T) (zero T) {
	if len(list) == 0 {
		return zero
	}
	return list[0]
}

func dictionary(v any) map[string]string {
	d := map[string]string{}
	m, _ := v.(ovsdb.OvsMap)
	for key, value := range m.GoMap {
		k, _ := key.(string)
		d[k], _ = value.(string)
	}
	return d
}

// on returns the ports of a bridge, ordered by name.
func (s *state) on(b *bridge) (list []*port) {
	for _, id := range b.ports {
		if p := s.ports[id]; p != nil {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *port) int { return strings.Compare(a.name, b.name) })
	return list
}

// all returns the bridges, ordered by name.
func (s *state) all() []*bridge {
	return slices.SortedFunc(maps.Values(s.bridges), func(a, b *bridge) int {
		return strings.Compare(a.name, b.name)
	})
}

// failure returns the errors that ovs-vswitchd reports for the interfaces of a port.
func (s *state) failure(p *port) string {
	var list []string
	for _, id := range p.links {
		if l := s.links[id]; l != nil && l.failure != "" {
			list = append(list, l.failure)
		}
	}
	return strings.Join(list, "; ")
}

// tunnel reports whether a port is a tunnel of ours.
func (p *port) tunnel() bool { return p.ids[idOwner] == ownerOurs && p.ids[idRole] == roleTunnel }

// container reports whether a port is the port of a container, ours or of ovs-cni.
func (p *port) container() bool {
	return p.ids[idOwner] == ownerOurs && !p.tunnel() || p.ids[idOwner] == ownerForeign
}

// vni returns the segment of one of our ports, or 0.
func (p *port) vni() int {
	if p.ids[idOwner] != ownerOurs {
		return 0
	}
	return vniOf(p.ids[idVNI])
}

func vniOf(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}

// attached returns the port of a container in the form of the plugin.
func (s *state) attached(p *port) ovs.Attached {
	a := ovs.Attached{
		Name: p.name, Bridge: p.bridge, VNI: p.vni(), Foreign: p.ids[idOwner] == ownerForeign,
		Mode: p.mode, Tag: p.tag, Trunks: p.trunks, Protected: p.protected,
		Error: s.failure(p),
		Owner: ovs.Owner{Attachment: cni.Attachment{IfName: p.ids[idIfName]}, Netns: p.ids[idNetns]},
	}
	for _, id := range p.links {
		if l := s.links[id]; l != nil && l.absent && (l.kind == "" || l.kind == "system") {
			a.NoLink = true
		}
	}
	if !a.Foreign {
		a.Owner.Network, a.Owner.Container = p.ids[idNetwork], p.ids[idContainer]
	}
	return a
}

// tags returns the segments of a bridge and the tags that represent them, by VNI.
func (b *bridge) tags() map[int]int {
	tags := map[int]int{}
	for key, value := range b.ids {
		if text, ok := strings.CutPrefix(key, tagPrefix); ok {
			if vni, tag := vniOf(text), vniOf(value); vni > 0 && tag > 0 {
				tags[vni] = tag
			}
		}
	}
	return tags
}
