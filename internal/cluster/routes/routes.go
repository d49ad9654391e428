package routes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/tenon-cni/tenon/internal/kernel"
)

// Router maintains the routes of a node, in the network namespace of the thread that calls its
// methods. Its methods may be called at the same time.
type Router struct {
	options Options

	// For tests.
	watch    func(op string) error // called before each change, see [kernel.Tx.Watch]
	together int                   // the number of changes made together

	applying sync.Mutex

	mu   sync.Mutex
	last *relevant // since the first Apply
}

// New returns a router. The error is about the options.
func New(o Options) (*Router, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	return &Router{options: o, together: kernel.MaxChanges}, nil
}

// Apply compares the state of the kernel with want and makes the necessary changes: new entries
// before the routes that need them, and removals in reverse order. If the kernel already is in the
// wanted state, Apply changes nothing.
//
// Apply continues past errors and returns them joined; the next call makes the missing changes. An
// error wraps [ErrForeignDevice] if another device has the name of the tunnel. The reasons why a
// block is not reachable are [Report.Problems], not errors.
func (r *Router) Apply(ctx context.Context, want Want) (Report, error) {
	r.applying.Lock()
	defer r.applying.Unlock()
	a, closeAll, err := r.begin(ctx)
	if err != nil {
		return Report{}, err
	}
	defer closeAll()
	return a.apply(ctx, want)
}

// Remove removes everything that this package has made in the namespace, also for other options and
// after a crash: routes, devices, and the pools that are not masqueraded. Settings of the whole
// host, such as forwarding, stay.
func (r *Router) Remove(ctx context.Context) error {
	r.applying.Lock()
	defer r.applying.Unlock()
	a, closeAll, err := r.begin(ctx)
	if err != nil {
		return err
	}
	defer closeAll()
	a.allClusters = true
	_, err = a.host.Rules.SetClusterPools(nil)
	return errors.Join(a.program(ctx, newEntries()), a.deleteDevices(nil), err)
}

// application is one call of Apply or Remove.
type application struct {
	options  *Options
	host     *kernel.Space
	together int
	router   *Router
	changes  int
	problems []error

	allClusters bool // change the devices of other clusters, too
}

func (r *Router) begin(ctx context.Context) (*application, func(), error) {
	tx := kernel.Begin(ctx)
	tx.Watch(r.watch)
	host, closeAll, err := tx.OpenHost()
	if err != nil {
		return nil, nil, err
	}
	return &application{
		options: &r.options, host: host, together: r.together, router: r,
	}, closeAll, nil
}

// count counts a change that succeeded.
func (a *application) count(err error) error {
	if err == nil {
		a.changes++
	}
	return err
}

func (a *application) apply(ctx context.Context, want Want) (Report, error) {
	addrs, err := a.host.Addrs.Everywhere()
	if err != nil {
		return Report{}, err
	}
	a.router.remember(want, addrs, nil)
	var errs []error
	p := &plan{options: a.options}
	if a.options.Mode != ModeOff {
		f, err := a.facts(want, addrs)
		if err != nil {
			return Report{}, err
		}
		if p, err = newPlan(a.options, want, f); err != nil {
			return Report{}, err
		}
		errs = append(errs, a.forward(want))
	}
	// A device of an earlier name occupies the VNI of its successor.
	errs = append(errs, a.deleteDevices(map[family]bool{ip4: true, ip6: true}))
	devices := map[family]kernel.Link{}
	for f := range p.tunnels {
		l, err := a.ensure(f, p.device(f))
		if err == nil {
			devices[f] = l
		}
		errs = append(errs, err)
	}
	a.router.remember(want, addrs, devices)
	e := p.entries(devices)
	errs = append(errs, a.pools(want.Pools), a.answer(e), a.program(ctx, e),
		a.deleteDevices(p.tunnels))
	report := p.report
	report.Changes = a.changes
	report.Problems = append(report.Problems, a.problems...)
	return report, errors.Join(errs...)
}

// pools keeps the pools from being masqueraded.
func (a *application) pools(pools []netip.Prefix) error {
	changed, err := a.host.Rules.SetClusterPools(pools)
	if changed {
		a.changes++
	}
	if errors.Is(err, kernel.ErrNoNFT) {
		a.problems = append(a.problems, errors.New("the kernel has no nftables; "+
			"packets between pools are masqueraded if the network has ipMasq"))
		return nil
	}
	return err
}

// answer makes links answer for the addresses of their proxy entries, and without the usual delay,
// because containers wait for it. For IPv4, forwarding is the only other requirement.
func (a *application) answer(e entries) error {
	list := map[int][]kernel.Setting{}
	for p := range e.proxies {
		if list[p.Link] != nil {
			continue
		}
		l, err := a.host.Links.ByIndex(p.Link)
		if err := kernel.UnlessNoLink(err); err != nil {
			return err
		}
		for key, value := range map[string]string{
			"net/ipv4/neigh/%/proxy_delay": "0", "net/ipv6/neigh/%/proxy_delay": "0",
			"net/ipv6/conf/%/proxy_ndp": "1",
		} {
			list[p.Link] = append(list[p.Link], kernel.Setting{
				Key: strings.Replace(key, "%", l.Name, 1), Value: value, Optional: true})
		}
	}
	return a.host.Sysctl.Ensure(slices.Concat(slices.Collect(maps.Values(list))...))
}

// forward turns forwarding on for the families of the pools and own blocks.
func (a *application) forward(want Want) error {
	keys := map[family]string{
		ip4: "net/ipv4/ip_forward", ip6: "net/ipv6/conf/all/forwarding",
	}
	var list []kernel.Setting
	for f, key := range keys {
		if slices.ContainsFunc(slices.Concat(want.Pools, want.Own.Blocks),
			func(n netip.Prefix) bool { return familyOf(n.Addr()) == f }) {
			list = append(list, kernel.Setting{Key: key, Value: "1"})
		}
	}
	return a.host.Sysctl.Ensure(list)
}

// facts reads the facts of the host.
func (a *application) facts(want Want, addrs []kernel.LinkAddr) (facts, error) {
	links, err := a.host.Links.All()
	if err != nil {
		return facts{}, err
	}
	byIndex := map[int]kernel.Link{}
	for _, l := range links {
		byIndex[l.Index] = l
	}
	f := facts{own: map[family]int{}, src: map[family]netip.Addr{}, mtu: func(link int) int {
		if byIndex[link].Name == loopback { // says nothing about the underlay
			return 0
		}
		return byIndex[link].MTU
	}}
	for _, x := range addrs {
		ip := x.Addr.Addr()
		if !x.Addr.IsSingleIP() && !ip.IsLinkLocalUnicast() && !ours(byIndex[x.Link]) {
			f.nets = append(f.nets, x)
		}
		switch {
		case ip == a.options.own(familyOf(ip)):
			f.own[familyOf(ip)] = x.Link
		case !ours(byIndex[x.Link]) && within(ip, want.Own.Blocks):
			if first := f.src[familyOf(ip)]; !first.IsValid() || ip.Less(first) {
				f.src[familyOf(ip)] = ip
			}
		}
	}
	for _, own := range a.options.Nodes {
		if f.own[familyOf(own)] == 0 {
			a.problem("the own address %s is on no link", own)
		}
	}
	f.hop = a.hops(byIndex)
	return f, nil
}

// hops returns the function that finds the next hop to an address. It asks the kernel once about
// each address.
func (a *application) hops(
	links map[int]kernel.Link,
) func(netip.Addr) (link int, direct, ok bool, err error) {
	known := map[netip.Addr]hop{}
	return func(addr netip.Addr) (link int, direct, ok bool, err error) {
		h, asked := known[addr]
		if !asked {
			if h.Hop, h.ok, err = a.host.Routes.Hop(addr); err != nil {
				return 0, false, false, err
			}
			known[addr] = h
		}
		if !h.ok || h.Local || ours(links[h.Link]) {
			return 0, false, false, nil
		}
		return h.Link, !h.Gateway, true, nil
	}
}

const loopback = "lo"

type hop struct {
	kernel.Hop
	ok bool
}

func (a *application) problem(format string, args ...any) {
	a.problems = append(a.problems, fmt.Errorf(format, args...))
}

func within(ip netip.Addr, blocks []netip.Prefix) bool {
	return slices.ContainsFunc(blocks, func(n netip.Prefix) bool { return n.Contains(ip) })
}
