package attach

import (
	"context"
	"errors"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// del takes away rules and link, then the address, so that an address never has two live owners. Rules come before the
// link because the kernel then waits once for both: 17 ms instead of 33. It needs nothing but the key of the
// attachment, and goes on past errors.
//
// An address from DHCP is given back while there is a link through which its server can be told.
func del(ctx context.Context, p untyped, c *plugin.AnyCall) error {
	s, err := open(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	gone := session.GoneOne(c.Attachment())
	errs := []error{s.EnterIfThere()}
	if releasesFirst(c) {
		errs = append(errs, c.Delegate.Del(ctx, c.IPAM.Type))
	}
	errs = append(errs, s.unmasquerade(gone), s.detach(p), p.remove(s, gone))
	if c.IPAM.Type != "" && !releasesFirst(c) {
		errs = append(errs, c.Delegate.Del(ctx, c.IPAM.Type))
	}
	return errors.Join(errs...)
}

// releasesFirst reports whether the addresses are those of a server that is told over the link.
func releasesFirst(c *plugin.AnyCall) bool { return c.IPAM.Type == "dhcp" }

// detach deletes the link of the attachment, or gives it back: by the host's end if it has one, else by its name in the
// container. A link of that name that another attachment owns stays, as does one of another kind.
func (s *Core) detach(p untyped) error {
	if returner, err := p.giveBack(s); returner {
		return err
	}
	host, err := s.Host.Link(s.HostName())
	if err == nil && owned(host, s.Attachment()) {
		return s.Host.Delete(host)
	}
	if err != nil && !errors.Is(err, kernel.ErrNoLink) {
		return err
	}
	if s.Sandbox == nil {
		return nil
	}
	link, err := s.Sandbox.Link(s.IfName)
	if errors.Is(err, kernel.ErrNoLink) {
		return s.Sandbox.DeleteByName(kernel.TemporaryName(s.Tag))
	}
	if err != nil {
		return err
	}
	if kind := p.kind(); kind != "" && link.Kind != kind {
		return nil
	}
	aliases := []string{link.Alias}
	if peer, err := s.Host.Peer(link); err == nil {
		aliases = append(aliases, peer.Alias)
	}
	for _, alias := range aliases {
		if o, ok := cni.ParseTag(alias); ok && o != s.Attachment().Owner() {
			return nil
		}
	}
	return s.Sandbox.Delete(link)
}

// gc takes away the links and rules of attachments of this network that are not valid any more, and passes the call
// on to IPAM, in the order of del.
func gc(ctx context.Context, p untyped, c *plugin.AnyCall) error {
	s, err := open(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	gone := session.GoneBut(c.Name, c.Valid)
	names := map[string]bool{}
	for _, a := range gone.Valid {
		names[hostName(a)] = true
	}
	var errs []error
	if releasesFirst(c) {
		errs = append(errs, c.Delegate.GC(ctx, c.IPAM.Type))
	}
	errs = append(errs, s.unmasquerade(gone))
	links, err := s.Host.Links()
	errs = append(errs, err)
	for _, l := range links {
		o, marked := cni.ParseTag(l.Alias)
		if marked && gone.Owner(o) || !marked && unmarked(l, c.Name) && !names[l.Name] {
			errs = append(errs, s.Host.Delete(l))
		}
	}
	errs = append(errs, p.remove(s, gone))
	if c.IPAM.Type != "" && !releasesFirst(c) {
		errs = append(errs, c.Delegate.GC(ctx, c.IPAM.Type))
	}
	return errors.Join(errs...)
}
