package attach

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
)

// Add implements [plugin.Plugin]. It creates the link, asks IPAM for addresses and applies them. If
// a step fails, it rolls back all of them.
func (p *Plugin) Add(ctx context.Context, c *plugin.Call) (r *cni.Result, err error) {
	if c.IPAM.Type != "" {
		if _, err := c.Delegate.Find(c.IPAM.Type); err != nil {
			return nil, fmt.Errorf("ipam: %w", err)
		}
	}
	if err := p.masq().available(cni.CodeUnsupportedField); err != nil {
		return nil, err
	}
	err = p.change(ctx, c, func(s *Session) (err error) {
		r, err = p.attach(ctx, s)
		return err
	})
	return r, err
}

// change calls change in a session with both namespaces. If it fails, its changes are rolled back.
func (p *Plugin) change(
	ctx context.Context, c *plugin.Call, change func(*Session) error,
) error {
	s, err := p.open(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Enter(); err != nil {
		return err
	}
	return s.Change(func() error { return change(s) })
}

func (p *Plugin) attach(ctx context.Context, s *Session) (*cni.Result, error) {
	interfaces, err := p.Make(ctx, s)
	if err != nil {
		return nil, err
	}
	r := &cni.Result{Interfaces: interfaces}
	index, ok := r.Sandboxed(s.IfName, s.Netns)
	if !ok {
		return nil, fmt.Errorf("the plugin created no interface %s in %s", s.IfName, s.Netns)
	}
	inherits := p.Inherits && s.IPAM.Type == "" && s.Prev != nil
	o := p.Options()
	if !o.NoLink && (s.IPAM.Type != "" || inherits && len(s.Prev.IPs) > 0) {
		if err := s.refuseRouters(); err != nil {
			return nil, err
		}
	}
	switch {
	case inherits:
		inherit(s, r, index)
	case s.IPAM.Type != "":
		if err := allocate(ctx, s, r, index, o.NoAddresses); err != nil {
			return nil, err
		}
	}
	if !inherits {
		if err := p.Amend(s, r); err != nil {
			return nil, err
		}
	}
	if !o.NoLink {
		if err := p.bringUp(ctx, s, o, index, r); err != nil {
			return nil, err
		}
	}
	if err := p.Finish(ctx, s, r); err != nil {
		return nil, err
	}
	return p.complete(s, r, inherits), nil
}

// complete returns the result of ADD: the previous result followed by r, with the DNS settings that
// p.DNS selects.
func (p *Plugin) complete(s *Session, r *cni.Result, inherits bool) *cni.Result {
	if p.DNS == DNSOfConfiguration {
		r.DNS = cni.DNS{}
	}
	// Older versions have room for one interface.
	if s.Prev != nil && !inherits && s.Version >= cni.V030 {
		r = behind(s.Prev, r)
	}
	if d := s.DNS; p.DNS != DNSOfIPAM && (d.Domain != "" || d.Nameservers != nil || d.Search != nil || d.Options != nil) {
		r.DNS = d
	}
	return r
}

// refuseRouters makes the interface ignore router advertisements. It is called before IPAM, which
// may bring the interface up to look for a server. An IPAM plugin that wants advertisements enables
// them itself.
func (s *Session) refuseRouters() error {
	return s.Sandbox.Sysctl.SetAll([]kernel.Setting{{Key: "net/ipv6/conf/" + s.IfName + "/accept_ra", Value: "0", Optional: true}})
}

// bringUp configures the container's interface according to the result and sets it up.
func (p *Plugin) bringUp(ctx context.Context, s *Session, o Options, index int, r *cni.Result) error {
	link, err := s.Sandbox.Links.ByName(s.IfName)
	if err != nil {
		return err
	}
	if len(r.IPs) > 0 {
		if err := s.applySecondDefault(link, r); err != nil {
			return err
		}
		return p.apply(ctx, s, o, link, index, r)
	}
	if o.KeepDown {
		return nil
	}
	return s.up(link)
}

// up sets the container's interface up. If the interface has a MAC address of its own, up may have
// to wait until the kernel has deleted the interface of a namespace that vanished without DEL.
func (s *Session) up(link kernel.Link) error {
	return s.Sandbox.Links.Retry(link, s.Host, func() error { return s.Sandbox.Links.Up(link) })
}

// inherit gives the container's interface the addresses and routes of the previous result.
func inherit(s *Session, r *cni.Result, index int) {
	prev := s.Prev.Clone()
	r.IPs, r.Routes = prev.IPs, prev.Routes
	for i := range r.IPs {
		r.IPs[i].Interface = cni.Some(index)
	}
}

// behind returns prev followed by r, with the interface indexes of r adjusted.
func behind(prev, r *cni.Result) *cni.Result {
	all := prev.Clone()
	for _, ip := range r.IPs {
		if i, ok := ip.Interface.Get(); ok {
			ip.Interface = cni.Some(len(prev.Interfaces) + i)
		}
		all.IPs = append(all.IPs, ip)
	}
	all.Interfaces = append(all.Interfaces, r.Interfaces...)
	all.Routes = append(all.Routes, r.Routes...)
	if !r.DNS.IsZero() {
		all.DNS = r.DNS
	}
	return all
}

// errNoAddresses is the error for an IPAM result without addresses, with upstream's text.
var errNoAddresses = cni.Errorf(cni.CodeInvalidConfig, "IPAM plugin returned missing IP config")

// allocate calls the IPAM plugin's ADD; its undo is the plugin's DEL. DEL also follows an ADD that
// fails, because ADD may have failed halfway. none allows a result without addresses.
func allocate(ctx context.Context, s *Session, r *cni.Result, index int, none bool) error {
	release := func() error {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoBudget)
		defer cancel()
		return s.Delegate.Del(undo, s.IPAM.Type)
	}
	return s.Tx.Do("ipam "+s.IPAM.Type, func() error {
		got, err := s.Delegate.Add(ctx, s.IPAM.Type)
		if errors.As(err, new(*invoke.Error)) {
			return errors.Join(err, release())
		}
		if err != nil { // the plugin was not called
			return err
		}
		if len(got.IPs) == 0 && !none {
			return errors.Join(errNoAddresses.Verbatim(), release())
		}
		for _, ip := range got.IPs {
			ip.Interface = cni.Some(index)
			r.IPs = append(r.IPs, ip)
		}
		r.Routes, r.DNS = got.Routes, got.DNS
		return nil
	}, release)
}

// apply configures the container's interface with addresses and routes, in the order that loses no
// announcement: settings, addresses, up, routes.
func (p *Plugin) apply(ctx context.Context, s *Session, o Options, link kernel.Link, index int, r *cni.Result) error {
	mine := addressesOf(r, index)
	if err := give(s, o, link, mine); err != nil {
		return err
	}
	if err := s.up(link); err != nil {
		return err
	}
	if has6(mine) {
		if err := s.Sandbox.Addrs.WaitDAD(ctx, link); err != nil {
			return err
		}
	}
	if err := announce(s, link, mine, o); err != nil {
		return err
	}
	if err := p.Route(s, link, r); err != nil {
		return err
	}
	for _, rt := range r.Routes {
		k := route(rt, mine)
		if !k.Possible() {
			s.Log.Warn("skipping route: the kernel does not support IPv6 routes through an IPv4 gateway", "dst", rt.Dst, "gw", k.GW)
			continue
		}
		if err := s.Sandbox.Routes.Add(link, k); err != nil {
			if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) { // IPv4, IPv6
				return cni.Errorf(cni.CodeInvalidConfig, "%w", err).WithDetails("the gateway is in no network of the interface")
			}
			return err
		}
	}
	return nil
}

// give adds the addresses to the interface, after the settings that they need.
func give(s *Session, o Options, link kernel.Link, ips []cni.IP) error {
	if err := CheckMTU6(link, ips); err != nil {
		return err
	}
	auto, err := autoconfigured(s, link, ips)
	if err != nil {
		return err
	}
	err = s.Sandbox.Sysctl.SetAll(settings(s.IfName, ips, o))
	if errors.Is(err, fs.ErrNotExist) {
		return cni.Errorf(cni.CodeInvalidConfig, "cannot add IPv6 addresses: this kernel has no IPv6").
			WithDetails("it was built without IPv6 or started with ipv6.disable=1")
	}
	if err != nil {
		return err
	}
	add := s.Sandbox.Addrs.Add
	if o.DAD == DADOptimistic {
		add = s.Sandbox.Addrs.AddOptimistic
	}
	for _, ip := range ips {
		if slices.Contains(auto, ip.Address) {
			continue
		}
		// Two ipvlans of a parent cannot have the same address.
		err := s.Sandbox.Links.Retry(link, s.Host, func() error { return add(link, ip.Address) })
		if err != nil {
			return err
		}
	}
	return nil
}

// CheckMTU6 refuses IPv6 addresses on a link with an MTU that is too small for them.
func CheckMTU6(l kernel.Link, ips []cni.IP) error {
	i := slices.IndexFunc(ips, func(ip cni.IP) bool { return ip.Address.Addr().Is6() })
	if i < 0 || l.MTU >= kernel.MinMTU6 {
		return nil
	}
	return cni.Errorf(cni.CodeInvalidConfig, "interface %s has MTU %d, but IPv6 address %s needs %d",
		l.Name, l.MTU, ips[i].Address, kernel.MinMTU6).
		WithDetails("use a larger mtu, or no IPv6 range")
}

// autoconfigured returns the addresses in ips that the kernel got from router advertisements. IPAM
// only reports them; the kernel keeps maintaining them and their default route. An interface that
// is not up yet has none.
func autoconfigured(s *Session, link kernel.Link, ips []cni.IP) ([]netip.Prefix, error) {
	if !link.Up || !has6(ips) {
		return nil, nil
	}
	a, err := s.Sandbox.Addrs.Autoconf(link)
	return slices.DeleteFunc(a.Addrs, func(p netip.Prefix) bool {
		return !slices.ContainsFunc(ips, func(ip cni.IP) bool { return ip.Address == p })
	}), err
}

// announce makes neighbours forget an older MAC address of each IPv6 address. The kernel does not
// override their caches for an optimistic address, that is, during duplicate address detection (RFC
// 4429, section 3.3), because it cannot know that IPAM gave the address to this container alone. A
// node that has the same address defends it.
func announce(s *Session, link kernel.Link, ips []cni.IP, o Options) error {
	if !o.Announce || o.DAD != DADOptimistic {
		return nil
	}
	for _, ip := range ips {
		if ip.Address.Addr().Is4() {
			continue
		}
		if err := s.Sandbox.Addrs.Advertise(link, ip.Address.Addr()); err != nil {
			return err
		}
	}
	return nil
}

// settings returns the sysctls of the container's interface. Only settings for IPv6 addresses are
// mandatory.
func settings(ifName string, ips []cni.IP, o Options) []kernel.Setting {
	v4, v6 := "net/ipv4/conf/"+ifName+"/", "net/ipv6/conf/"+ifName+"/"
	list := o.DAD.settings(v6)
	if o.Announce {
		list = append(list,
			kernel.Setting{Key: v4 + "arp_notify", Value: "1", Optional: true},
			kernel.Setting{Key: v6 + "ndisc_notify", Value: "1", Optional: true})
	}
	if has6(ips) {
		list = append(list,
			kernel.Setting{Key: "net/ipv6/conf/lo/disable_ipv6", Value: "0"},
			kernel.Setting{Key: v6 + "disable_ipv6", Value: "0"},
			kernel.Setting{Key: v6 + "keep_addr_on_down", Value: "1"})
	}
	return list
}

func has6(ips []cni.IP) bool {
	return slices.ContainsFunc(ips, func(ip cni.IP) bool { return !ip.Address.Addr().Is4() })
}

func addressesOf(r *cni.Result, index int) []cni.IP {
	var list []cni.IP
	for _, ip := range r.IPs {
		if i, ok := ip.Interface.Get(); ok && i == index {
			list = append(list, ip)
		}
	}
	return list
}

// route returns a route of the result in the kernel's form. A route without a gateway gets the
// gateway of the first address of its family that has one.
func route(rt cni.Route, ips []cni.IP) kernel.Route {
	k := session.Route(rt)
	if !k.GW.IsValid() && k.Scope < kernel.ScopeLink {
		k.GW = gateway(ips, rt.Dst.Addr().Is4())
	}
	return k
}

// gateway returns the gateway of the first address of a family, preferring a gateway of that
// family.
func gateway(ips []cni.IP, is4 bool) (gw netip.Addr) {
	for _, ip := range ips {
		if !ip.Gateway.IsValid() || ip.Address.Addr().Is4() != is4 {
			continue
		}
		if ip.Gateway.Is4() == is4 {
			return ip.Gateway
		}
		if !gw.IsValid() {
			gw = ip.Gateway
		}
	}
	return gw
}
