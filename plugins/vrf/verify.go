package vrf

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/tenon-cni/tenon/internal/kernel"
)

// Verify looks for the VRF, and for the interface and its routes in it.
func (decorator) Verify(_ context.Context, s *session) error {
	link, err := s.Sandbox.Link(s.IfName)
	if err != nil {
		return err
	}
	links, err := s.Sandbox.Links()
	if err != nil {
		return err
	}
	vrf, err := find(s.Conf, links)
	if err != nil {
		return fmt.Errorf("VRF %s: %w", s.Conf.VRFName, err)
	}
	return verify(s, link, vrf)
}

func verify(s *session, link, vrf kernel.Link) error {
	switch {
	case link.Master != vrf.Index:
		return fmt.Errorf("interface %s: expected it in VRF %s, found it is not", link.Name, vrf.Name)
	case !vrf.Up:
		return fmt.Errorf("VRF %s: expected it up, found it down", vrf.Name)
	case !link.Up: // then it has no routes
		return nil
	}
	return s.Sandbox.CheckRoutes(link, expected(s, vrf.VRFTable))
}

// expected are the networks of the addresses, and the routes of the result: those of the main table are in that of the VRF.
func expected(s *session, table int) []kernel.Route {
	var list []kernel.Route
	for _, ip := range s.PrevIPs() {
		if !ip.Address.IsSingleIP() {
			list = append(list, kernel.Route{Dst: ip.Address.Masked(), Table: table})
		}
	}
	for _, rt := range s.Prev.Routes {
		want := kernel.Route{Dst: rt.Dst, GW: rt.GW, Table: table}
		if t, ok := rt.Table.Get(); ok && t != kernel.TableMain {
			want.Table = t
		}
		if rt.Dst.Bits() == 0 {
			want.GW = netip.Addr{} // a plugin may have chosen another
		}
		list = append(list, want)
	}
	return list
}
