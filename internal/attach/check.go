package attach

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/kernel/probe"
	"github.com/tenon-cni/tenon/plugin"
)

// Check asks IPAM, then compares the container's interface, its addresses and its routes with the previous result,
// then what the Maker knows. Whatever else is there, from later plugins or by hand, is not its business.
func (p Plugin[C]) Check(ctx context.Context, c *plugin.Call[C]) error {
	if c.IPAM.Type != "" {
		if err := c.Delegate.Check(ctx, c.IPAM.Type); err != nil {
			return err
		}
	}
	if c.Prev == nil {
		return cni.Errorf(cni.CodeInvalidConfig, "CHECK needs prevResult")
	}
	s, err := open(ctx, c)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.enter(); err != nil {
		return err
	}
	index, ok := c.Prev.Sandboxed(c.IfName, c.Netns)
	if !ok {
		return cni.Errorf(cni.CodeInvalidConfig, "prevResult has no interface %s in %s", c.IfName, c.Netns)
	}
	link, err := s.Sandbox.Link(c.IfName)
	if err != nil {
		return err
	}
	if err := CheckMAC(link, c.Prev.Interfaces[index]); err != nil {
		return err
	}
	if !link.Up && !p.options(c.Conf).KeepDown {
		return fmt.Errorf("interface %s: expected it up, found it down", link.Name)
	}
	if err := s.checkAddresses(link, index); err != nil {
		return err
	}
	if err := s.checkRoutes(index); err != nil {
		return err
	}
	return p.Maker.Verify(ctx, s, link)
}

// CheckMAC compares the hardware address of a link with that of a result, if that has one.
func CheckMAC(l kernel.Link, want cni.Interface) error {
	if have := l.MAC.String(); want.MAC != "" && !strings.EqualFold(want.MAC, have) {
		return fmt.Errorf("interface %s: expected MAC %s, found %s", l.Name, want.MAC, have)
	}
	return nil
}

// expected are the addresses of the result that are this interface's, or nobody's.
func (s *Session[C]) expected(index int) []netip.Prefix {
	var list []netip.Prefix
	for _, ip := range s.Prev.IPs {
		if i, ok := ip.Interface.Get(); !ok || i == index {
			list = append(list, ip.Address)
		}
	}
	return list
}

func (s *Session[C]) checkAddresses(link kernel.Link, index int) error {
	have, err := s.Sandbox.Addrs(link)
	if err != nil {
		return err
	}
	for _, want := range s.expected(index) {
		if !slices.Contains(have, want) {
			return fmt.Errorf("interface %s: expected address %s, found %v", link.Name, want, have)
		}
	}
	return nil
}

// checkRoutes looks for the networks of the addresses and the routes of the result, in all tables: later plugins may
// move them.
func (s *Session[C]) checkRoutes(index int) error {
	have, err := s.Sandbox.Routes(kernel.AllTables)
	if err != nil {
		return err
	}
	find := func(dst netip.Prefix, match func(kernel.Route) bool) error {
		for _, rt := range have {
			if rt.Dst == dst && match(rt) {
				return nil
			}
		}
		return fmt.Errorf("namespace %s: expected a route to %s, found none", s.Netns, dst)
	}
	any := func(kernel.Route) bool { return true }
	for _, address := range s.expected(index) {
		if address.IsSingleIP() {
			continue
		}
		if err := find(address.Masked(), any); err != nil {
			return err
		}
	}
	for _, want := range s.Prev.Routes {
		if err := find(want.Dst.Masked(), func(rt kernel.Route) bool {
			if table, ok := want.Table.Get(); ok && table != 0 && rt.Table != table {
				return false
			}
			return want.Dst.Bits() == 0 || !want.GW.IsValid() || want.GW.IsUnspecified() || rt.GW == want.GW
		}); err != nil {
			if want.GW.IsValid() {
				return fmt.Errorf("%w via %s", err, want.GW)
			}
			return err
		}
	}
	return nil
}

// Status says what the kernel lacks, then asks IPAM.
func (p Plugin[C]) Status(ctx context.Context, c *plugin.Call[C]) error {
	if p.Needs != nil {
		missing, err := probe.Missing(p.Needs(c.Conf)...)
		if err != nil {
			return cni.Errorf(cni.CodeNotAvailable, "%w", err)
		}
		if len(missing) > 0 {
			return cni.Errorf(cni.CodeNotAvailable, "%s", missing[0].Help())
		}
	}
	if c.IPAM.Type == "" {
		return nil
	}
	return c.Delegate.Status(ctx, c.IPAM.Type)
}
