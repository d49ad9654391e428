package vrf

import (
	"context"
	"errors"
	"slices"

	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

// Remove removes the interface from the VRF, and deletes the VRF if it has no other member.
func (c *Config) Remove(ctx context.Context, s *chained.Session, _ chained.Gone) error {
	links, err := s.Sandbox.Links.All()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(links, func(l kernel.Link) bool { return l.Name == s.IfName })
	var link kernel.Link // the zero Link if it no longer exists
	if i >= 0 {
		link = links[i]
	}
	vrf, ok := c.left(link, links)
	if !ok {
		return nil
	}
	if link.Master == vrf.Index {
		if err := leave(ctx, s, link, vrf); err != nil {
			return errors.Join(err, s.Tx.Rollback())
		}
	}
	if slices.ContainsFunc(links, func(l kernel.Link) bool {
		return l.Master == vrf.Index && l.Index != link.Index
	}) {
		return nil
	}
	return s.Sandbox.Links.Delete(vrf)
}

// left returns the VRF of the configuration or, if the configuration has no name, the VRF of the
// interface.
func (c *Config) left(link kernel.Link, links []kernel.Link) (kernel.Link, bool) {
	i := slices.IndexFunc(links, func(l kernel.Link) bool {
		return l.Kind == kind && (l.Name == c.VRFName || c.VRFName == "" && l.Index == link.Master)
	})
	if i < 0 {
		return kernel.Link{}, false
	}
	return links[i], true
}

// leave removes the interface from the VRF. If the kernel refuses to restore routes or addresses,
// leave logs that and drops them, because the kernel would refuse them again and DEL would never
// succeed.
func leave(ctx context.Context, s *chained.Session, link, vrf kernel.Link) error {
	err := s.Sandbox.Routes.LeaveVRF(ctx, link, vrf)
	if session.Refused(err) {
		s.Log.Warn("cannot restore the routes and addresses of the interface", "err", err)
		return s.Sandbox.Links.SetMaster(link, kernel.Link{})
	}
	return err
}
