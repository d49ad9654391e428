package attach

import (
	"context"
	"errors"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// Del implements [plugin.Plugin]. It removes rules and link, then the address, so that an address
// never has two live owners. Rules precede the link because the kernel then waits only once for
// both: 17 ms instead of 33. Del needs only the key of the attachment, and continues past errors.
//
// An IPAM plugin that needs the link releases the address while the link exists. The same applies
// to an IPAM plugin without a definition, which may need the link; Del removes the addresses from
// the link before it calls that plugin.
func (p *Plugin) Del(ctx context.Context, c *plugin.Call) error {
	s, err := p.open(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	errs := []error{s.EnterIfThere()}
	made, err := s.find(p.Kind)
	errs = append(errs, err)
	gone := []Gone{session.GoneOne(c.Attachment())}
	if made.network != c.Name {
		gone = append(gone, session.GoneOne(cni.Attachment{Network: made.network, Container: c.ContainerID, IfName: c.IfName}))
	}
	released := c.IPAM.Type == ""
	release := func() {
		if !released {
			released = true
			errs = append(errs, c.Delegate.Del(ctx, c.IPAM.Type))
		}
	}
	needsLink, known := c.Delegate.NeedsLink(c.IPAM.Type)
	if needsLink {
		release()
	}
	for _, g := range gone {
		errs = append(errs, s.unmasquerade(g))
	}
	if !known && !released && p.Kind != "" && s.vacate(made) {
		release()
	}
	deleteLink := made.delete
	for _, g := range gone {
		errs = append(errs, p.Remove(ctx, s, g, deleteLink))
		deleteLink = func() error { return nil }
	}
	release()
	return errors.Join(errs...)
}

// vacate removes the addresses from the container's interface, and reports whether the interface
// exists without them. IPv6 link-local addresses stay: the kernel assigned them, and DHCPv6 sends
// from them.
func (s *Session) vacate(m made) bool {
	if m.in == nil || s.Sandbox == nil {
		return false
	}
	link := m.link
	err := error(nil)
	if m.in == s.Host {
		link, err = s.Sandbox.Links.Peer(m.link)
	}
	if err == nil {
		err = s.removeAddresses(link)
	}
	if err != nil && !errors.Is(err, kernel.ErrNoLink) {
		s.Log.Warn("addresses stay on the interface until it is deleted", "error", err)
	}
	return err == nil
}

func (s *Session) removeAddresses(link kernel.Link) error {
	have, err := s.Sandbox.Addrs.Of(link)
	if err != nil {
		return err
	}
	for _, a := range have {
		if a.Addr().Is6() && a.Addr().IsLinkLocalUnicast() {
			continue
		}
		if err := s.Sandbox.Addrs.Delete(link, a); err != nil {
			return err
		}
	}
	return nil
}

// made is the link of an attachment.
type made struct {
	link    kernel.Link
	in      *kernel.Space // nil: there is no link
	network string        // at creation; the administrator may have renamed the network since
}

// find returns the link of the attachment: the host-side veth if there is one, otherwise the
// interface in the container, which the container may have renamed. It ignores an interface of
// another kind, or one that belongs to another container.
func (s *Session) find(kind string) (made, error) {
	host, err := s.Host.Links.ByName(s.HostName())
	if err == nil && owned(host, s.Attachment()) {
		return made{host, s.Host, s.Name}, nil
	}
	none := made{network: s.Name}
	if err := kernel.UnlessNoLink(err); err != nil || s.Sandbox == nil {
		return none, err
	}
	links, err := s.Sandbox.Links.All()
	if err != nil {
		return none, err
	}
	links = slices.DeleteFunc(links, func(l kernel.Link) bool { return kind != "" && l.Kind != kind })
	for _, l := range links {
		if network, _, mine := s.tagOf(l); mine {
			return made{l, s.Sandbox, network}, nil
		}
	}
	for _, name := range []string{s.IfName, kernel.TemporaryName(s.Tag)} {
		i := slices.IndexFunc(links, func(l kernel.Link) bool { return l.Name == name })
		if i < 0 {
			continue
		}
		if _, tagged, _ := s.tagOf(links[i]); tagged {
			return none, nil
		}
		return made{links[i], s.Sandbox, s.Name}, nil
	}
	return none, nil
}

// tagOf returns whether a link in the container, or its peer in the host, has a tag, whether it is
// the tag of this attachment, and the network in it, which the administrator may have renamed.
func (s *Session) tagOf(l kernel.Link) (network string, tagged, mine bool) {
	aliases := []string{l.Alias}
	if peer, err := s.Host.Links.Peer(l); err == nil {
		aliases = append(aliases, peer.Alias)
	}
	for _, alias := range aliases {
		owner, ok := cni.ParseTag(alias)
		if !ok {
			continue
		}
		if owner == s.Attachment().Owner() {
			return s.Name, true, true
		}
		of, ok := s.Namesake(alias)
		return of.Network, true, ok && of.IfName == s.IfName
	}
	return "", false, false
}

func (m made) delete() error {
	if m.in == nil {
		return nil
	}
	return m.in.Links.Delete(m.link)
}

// GC implements [plugin.Collector]. It removes the links and rules of attachments of this network
// that are no longer valid, and calls GC of the IPAM plugin, in the order of Del.
func (p *Plugin) GC(ctx context.Context, c *plugin.Call) error {
	s, err := p.open(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	gone := session.GoneBut(c.Name, c.Valid)
	var errs []error
	needsLink, _ := c.Delegate.NeedsLink(c.IPAM.Type)
	if needsLink {
		errs = append(errs, c.Delegate.GC(ctx, c.IPAM.Type))
	}
	errs = append(errs, s.unmasquerade(gone))
	errs = append(errs, p.Remove(ctx, s, gone, func() error { return s.collect(gone) }))
	if c.IPAM.Type != "" && !needsLink {
		errs = append(errs, c.Delegate.GC(ctx, c.IPAM.Type))
	}
	return errors.Join(errs...)
}

// collect deletes the links of attachments that are no longer valid.
func (s *Session) collect(gone Gone) error {
	names := map[string]bool{}
	for _, a := range gone.Valid {
		names[HostName(a)] = true
	}
	links, err := s.Host.Links.All()
	errs := []error{err}
	for _, l := range links {
		o, marked := cni.ParseTag(l.Alias)
		if marked && gone.Owner(o) || !marked && unmarked(l, gone.Network) && !names[l.Name] {
			errs = append(errs, s.Host.Links.Delete(l))
		}
	}
	return errors.Join(errs...)
}
