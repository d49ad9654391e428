package vrf

import (
	"context"
	"fmt"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// Verify requires the VRF, the interface's membership in it, and the routes in its table.
func (c *Config) Verify(_ context.Context, s *chained.Session) error {
	link, err := s.Sandbox.Links.ByName(s.IfName)
	if err != nil {
		return err
	}
	links, err := s.Sandbox.Links.All()
	if err != nil {
		return err
	}
	vrf, err := c.find(links)
	if err != nil {
		return cni.Rephrase(fmt.Errorf("VRF %s: %w", c.VRFName, err), "Link not found")
	}
	return verify(s, link, vrf)
}

func verify(s *chained.Session, link, vrf kernel.Link) error {
	switch {
	case link.Master != vrf.Index:
		err := fmt.Errorf("interface %s: expected it in VRF %s, but it is not a member", link.Name,
			vrf.Name)
		return cni.Rephrase(err, "failed to find %s associated to vrf %s", link.Name, vrf.Name)
	case !vrf.Up:
		return fmt.Errorf("VRF %s: expected it up, found it down", vrf.Name)
	case !link.Up: // it has no routes
		return nil
	}
	return s.Sandbox.Routes.Check(link, expected(s, vrf.VRFTable))
}

// expected returns the routes of the previous result, with the VRF's table in place of the main
// table.
func expected(s *chained.Session, table int) []kernel.Route {
	list := s.PrevRoutes()
	for i := range list {
		if t := list[i].Table; t == 0 || t == kernel.TableMain {
			list[i].Table = table
		}
	}
	return list
}
