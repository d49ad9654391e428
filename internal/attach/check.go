package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// Check implements [plugin.Plugin]. It asks IPAM, compares the container's interface, its addresses
// and its routes with the previous result, and calls the Maker. It ignores everything else, such as
// changes by later plugins or administrators.
func (p *Plugin) Check(ctx context.Context, c *plugin.Call) error {
	texts := p.Texts.orDefault()
	if c.IPAM.Type != "" {
		if err := c.Delegate.Check(ctx, c.IPAM.Type); err != nil {
			return err
		}
	}
	if c.Prev == nil {
		return cni.Errorf(cni.CodeInvalidConfig, "%s", texts.NoPrev)
	}
	s, err := p.open(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Enter(); err != nil {
		return err
	}
	if err := p.Precheck(s); err != nil {
		return err
	}
	own := s.Inside(c.Prev)
	if own == nil {
		details := fmt.Sprintf("prevResult has no interface %s in %s", c.IfName, c.Netns)
		if other := sandboxOf(c.Prev, c.IfName); other != "" {
			details += fmt.Sprintf(", only one in %s", other)
		}
		return cni.Errorf(cni.CodeInvalidConfig, texts.Other, c.Netns).WithDetails(details).Verbatim()
	}
	o := p.Options()
	if o.NoLink {
		return p.Verify(ctx, s, kernel.Link{})
	}
	link, err := s.Sandbox.Links.ByName(c.IfName)
	if errors.Is(err, kernel.ErrNoLink) {
		return cni.Rephrase(err, texts.NoLink, c.IfName)
	}
	if err != nil {
		return err
	}
	if kind := p.Kind; kind != "" && link.Kind != kind {
		err := fmt.Errorf("interface %s: expected a %s, found a %s", link.Name, kind, link.Kind)
		return cni.Rephrase(err, texts.Kind, link.Name, kind)
	}
	want := c.Prev.Interfaces[own[len(own)-1]]
	if err := CheckMAC(link, want); err != nil {
		return cni.Rephrase(err, texts.MAC, link.Name, want.MAC, link.MAC)
	}
	if err := session.CheckUp(link); err != nil && !o.KeepDown {
		return err
	}
	if err := s.checkAddresses(link); err != nil {
		return err
	}
	if err := s.Sandbox.Routes.Check(link, s.PrevRoutes()); err != nil {
		return err
	}
	return p.Verify(ctx, s, link)
}

// sandboxOf returns the sandbox of the result's interface of that name, or "".
func sandboxOf(r *cni.Result, name string) string {
	for _, i := range r.Interfaces {
		if i.Name == name && i.Sandbox != "" {
			return i.Sandbox
		}
	}
	return ""
}

// CheckMAC compares the MAC address of a link with the one in a result, if any.
func CheckMAC(l kernel.Link, want cni.Interface) error {
	if have := l.MAC.String(); want.MAC != "" && !strings.EqualFold(want.MAC, have) {
		return fmt.Errorf("interface %s: expected MAC %s, found %s", l.Name, want.MAC, have)
	}
	return nil
}

func (s *Session) checkAddresses(link kernel.Link) error {
	have, err := s.Sandbox.Addrs.Of(link)
	if err != nil {
		return err
	}
	duplicates, err := s.Sandbox.Addrs.Duplicates(link)
	if err != nil {
		return err
	}
	for _, ip := range s.PrevIPs() {
		if !slices.Contains(have, ip.Address) {
			err := fmt.Errorf("interface %s: expected address %s, found %v", link.Name, ip.Address, have)
			return cni.Rephrase(err, "Failed to match addr %s on interface %s", ip.Address, link.Name)
		}
		if slices.Contains(duplicates, ip.Address) {
			return &kernel.DuplicateError{Link: link.Name, Addr: ip.Address}
		}
	}
	return nil
}

// CheckPair checks and returns the host-side veth of the container's interface: it must be up and
// have the MAC address of the previous result.
func (s *Session) CheckPair(link kernel.Link) (host kernel.Link, err error) {
	host, err = s.Host.Links.Peer(link)
	if err != nil {
		return host, fmt.Errorf("host-side veth of interface %s: %w", link.Name, err)
	}
	if err := session.CheckUp(host); err != nil {
		return host, err
	}
	return host, s.CheckHostMAC(host)
}

// CheckHostMAC compares the MAC address of a link of the host with the previous result.
func (s *Session) CheckHostMAC(l kernel.Link) error {
	for _, want := range s.Prev.Interfaces {
		if want.Sandbox == "" && want.Name == l.Name {
			if err := CheckMAC(l, want); err != nil {
				return err
			}
		}
	}
	return nil
}

// Status implements [plugin.Statuser]. It reports missing features of the kernel, then missing
// prerequisites of the Maker and of masquerading, then asks IPAM.
func (p *Plugin) Status(ctx context.Context, c *plugin.Call) error {
	if p.Kind != "" {
		if err := session.Lacking(kernel.Feature(p.Kind)); err != nil {
			return err
		}
	}
	if m, ok := p.Maker.(plugin.Statuser); ok {
		if err := m.Status(ctx, c); cni.CodeOf(err) == cni.CodeInvalidConfig {
			e := cni.AsError(err)
			return cni.Errorf(cni.CodeNotAvailable, "%s", e.Msg).WithDetails(e.Details)
		} else if err != nil {
			return err
		}
	}
	if err := p.masq().status(ctx); err != nil {
		return err
	}
	if c.IPAM.Type == "" {
		return nil
	}
	return c.Delegate.Status(ctx, c.IPAM.Type)
}
