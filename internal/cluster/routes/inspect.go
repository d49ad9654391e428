package routes

import (
	"context"
	"net/netip"

	"github.com/tenon-cni/tenon/internal/kernel"
)

// State is what exists in the kernel, for users.
type State struct {
	Devices []Device
	Routes  []Entry
	Pools   []netip.Prefix // between which nothing is masqueraded
}

// Device is a VXLAN device of the cluster.
type Device struct {
	Name    string
	Cluster string
	MAC     string
	MTU     int // bytes
	Up      bool
	VNI     int
	Port    uint16
	Local   netip.Addr
	Nodes   int // the number of nodes that it can send to
}

// Entry is a route of this package.
type Entry struct {
	Dst  netip.Prefix
	Type string     // "unicast", "blackhole" or "unreachable"
	Via  netip.Addr // invalid unless the type is unicast
	Link string     // "" unless the type is unicast
	MTU  int        // bytes; 0: the MTU of the link
}

// Inspect lists the objects of this package in the current namespace, from the kernel alone.
func Inspect(ctx context.Context) (s State, err error) {
	host, closeAll, err := kernel.OpenHost(ctx)
	if err != nil {
		return s, err
	}
	defer closeAll()
	links, err := host.Links.All()
	if err != nil {
		return s, err
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Index] = l.Name
		if !ours(l) {
			continue
		}
		forwarding, err := host.Addrs.Forwarding(l)
		if err != nil {
			return s, err
		}
		s.Devices = append(s.Devices, Device{
			Name: l.Name, Cluster: l.Alias[len(aliasPrefix):], MAC: l.MAC.String(), MTU: l.MTU,
			Up: l.Up, VNI: l.VXLAN.VNI, Port: l.VXLAN.Port, Local: l.VXLAN.Local,
			Nodes: len(forwarding),
		})
	}
	routes, err := host.Routes.OfNodes()
	if err != nil {
		return s, err
	}
	for _, r := range routes {
		s.Routes = append(s.Routes, Entry{
			Dst: r.Dst, Type: r.Type.String(), Via: r.Via, Link: names[r.Link], MTU: r.MTU,
		})
	}
	s.Pools, err = host.Rules.ClusterPools()
	return s, err
}
