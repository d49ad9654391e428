package bandwidth

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// Remove deletes the ifbs of deleted attachments, and the limits of host-side veths that remain,
// because without the ifb their filters would drop everything.
func (c *Config) Remove(_ context.Context, s *chained.Session, g chained.Gone) error {
	if g.All() {
		return collect(s, g)
	}
	return remove(s, g.One)
}

func remove(s *chained.Session, a cni.Attachment) error {
	end := knownEnd(s)
	own, err := devices(s.Host, a, end, allNames(a)...)
	errs := []error{err}
	if end != nil {
		errs = append(errs, unlimit(s, *end, own))
	}
	return errors.Join(append(errs, deleteDevices(s, own))...)
}

// knownEnd returns the host-side veth of the container, or nil if it cannot be determined.
func knownEnd(s *chained.Session) *kernel.Link {
	if s.Sandbox == nil { // the namespace may still exist
		links, err := s.Host.Links.All()
		i := slices.IndexFunc(links, func(l kernel.Link) bool {
			return l.Kind == "veth" && l.Alias == s.Tag
		})
		if err != nil || i < 0 {
			return nil
		}
		return &links[i]
	}
	inside, err := s.Sandbox.Links.ByName(s.IfName)
	if err != nil {
		return nil
	}
	end, err := s.Host.Links.Peer(inside)
	if err != nil {
		return nil
	}
	return &end
}

// unlimit removes the limits of a host-side veth.
func unlimit(s *chained.Session, end kernel.Link, own []kernel.Link) error {
	return errors.Join(s.Host.Qdiscs.DeleteTBF(end),
		s.Host.Qdiscs.SetFilters(end, leadTo(own), nil))
}

// deleteDevices deletes ifbs. Links that still redirect packets to them lose their limits.
func deleteDevices(s *chained.Session, list []kernel.Link) error {
	if len(list) == 0 {
		return nil
	}
	from, err := s.Host.Qdiscs.Redirections()
	errs := []error{err}
	for _, l := range list {
		for _, end := range from[l.Index] {
			errs = append(errs, unlimit(s, end, list))
		}
		errs = append(errs, s.Host.Links.Delete(l))
	}
	return errors.Join(errs...)
}

// collect implements Remove for GC.
func collect(s *chained.Session, g chained.Gone) error {
	links, err := s.Host.Links.All()
	if err != nil {
		return err
	}
	from, err := s.Host.Qdiscs.Redirections()
	if err != nil {
		return err
	}
	var stale []kernel.Link
	for _, l := range links {
		if l.Kind == "ifb" && (goneOwn(l, g) || goneForeign(l, g) && len(from[l.Index]) == 0) {
			stale = append(stale, l)
		}
	}
	errs := []error{deleteDevices(s, stale)}
	// an ADD was killed after it limited the veth and before it created the ifb
	for _, l := range links {
		if l.Kind == "veth" && g.Tag(l.Alias) {
			errs = append(errs, unlimit(s, l, nil))
		}
	}
	return errors.Join(errs...)
}

// goneOwn reports whether Tenon created a link and its owner no longer exists.
func goneOwn(l kernel.Link, g chained.Gone) bool {
	if l.Alias != "" {
		return g.Tag(l.Alias)
	}
	ours := slices.Contains([]string{upstreamPrefix, egressPrefix, ingressPrefix},
		l.Name[:min(3, len(l.Name))])
	return ours && strings.HasPrefix(string(l.MAC), string(networkAddress(g.Network))) &&
		!slices.ContainsFunc(g.Valid, func(a cni.Attachment) bool { return owned(l, a) })
}

// goneForeign reports whether upstream may have created a link for an attachment that no longer
// exists. The name does not contain the network, so only unused links qualify.
func goneForeign(l kernel.Link, g chained.Gone) bool {
	return foreign(l) && !slices.ContainsFunc(g.Valid, func(a cni.Attachment) bool {
		return l.Name == upstreamName(a.Network, a.Container)
	})
}
