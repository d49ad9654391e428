package routes

import (
	"context"
	"errors"
	"slices"

	"github.com/tenon-cni/tenon/internal/kernel"
)

// program makes the entries in the kernel equal to want.
func (a *application) program(ctx context.Context, want entries) error {
	have, err := a.read()
	if err != nil {
		return err
	}
	var set, remove []kernel.Change
	for _, changes := range []func(have, want entries) (set, remove []kernel.Change){
		forwardingChanges, neighbourChanges, proxyChanges, routeChanges,
	} {
		more, less := changes(have, want)
		set, remove = append(set, more...), append(less, remove...)
	}
	return a.make(ctx, append(set, remove...))
}

func forwardingChanges(have, want entries) (set, remove []kernel.Change) {
	for key, n := range want.forwarding {
		old := have.forwarding[key]
		if old.Other { // it may have other destinations, which replacing would keep
			set = append(set, kernel.DeleteForwarding(n))
		}
		if old != n {
			set = append(set, kernel.SetForwarding(n))
		}
	}
	for key, n := range have.forwarding {
		if _, wanted := want.forwarding[key]; !wanted {
			remove = append(remove, kernel.DeleteForwarding(n))
		}
	}
	return set, remove
}

func neighbourChanges(have, want entries) (set, remove []kernel.Change) {
	for key, n := range want.neighbours {
		if have.neighbours[key] != n {
			set = append(set, kernel.SetNeighbour(n))
		}
	}
	for key, n := range have.neighbours {
		// Other entries exist because the kernel has tried to resolve an address.
		if _, wanted := want.neighbours[key]; !wanted && !n.Other {
			remove = append(remove, kernel.DeleteNeighbour(n))
		}
	}
	return set, remove
}

func proxyChanges(have, want entries) (set, remove []kernel.Change) {
	for p := range want.proxies {
		if !have.proxies[p] {
			set = append(set, kernel.SetProxy(p))
		}
	}
	for p := range have.proxies {
		if !want.proxies[p] {
			remove = append(remove, kernel.DeleteProxy(p))
		}
	}
	return set, remove
}

func routeChanges(have, want entries) (set, remove []kernel.Change) {
	for key, route := range want.routes {
		old, exists := have.routes[key]
		switch {
		case !exists:
			set = append(set, kernel.AddNodeRoute(route))
		case old != route:
			set = append(set, kernel.ReplaceNodeRoute(route))
		}
	}
	for key, route := range have.routes {
		if _, wanted := want.routes[key]; !wanted {
			remove = append(remove, kernel.DeleteNodeRoute(route))
		}
	}
	return set, remove
}

// read returns the existing entries.
func (a *application) read() (entries, error) {
	have := newEntries()
	routes, err := a.host.Routes.OfNodes()
	if err != nil {
		return have, err
	}
	for _, r := range routes {
		if _, twice := have.routes[keyOf(r)]; twice {
			r.Other = true
		}
		have.route(r)
	}
	proxies, err := a.host.Addrs.Proxies()
	if err != nil {
		return have, err
	}
	for _, p := range proxies {
		have.proxies[p] = true
	}
	links, err := a.devices()
	for _, l := range links {
		neighbours, failed := a.host.Addrs.Neighbours(l)
		forwarding, failedToo := a.host.Addrs.Forwarding(l)
		err = errors.Join(err, kernel.UnlessNoLink(failed), kernel.UnlessNoLink(failedToo))
		for _, n := range neighbours {
			have.neighbour(n)
		}
		for _, n := range forwarding {
			_, twice := have.forwarding[forwardingKey{n.Link, n.MAC}]
			n.Other = n.Other || twice
			have.forward(n)
		}
	}
	return have, err
}

// make makes changes, some of them together.
func (a *application) make(ctx context.Context, changes []kernel.Change) error {
	var errs []error
	for some := range slices.Chunk(changes, a.together) {
		if ctx.Err() != nil {
			errs = append(errs, context.Cause(ctx))
			break
		}
		failed := a.host.Make(some...)
		a.changes += max(len(some)-len(failed), 0)
		for _, err := range failed {
			if kernel.Taken(err) {
				a.problem("another program has a route with this metric: %w", err)
				continue
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// devices lists the tunnels of the cluster, or of all clusters, including unfinished ones.
func (a *application) devices() ([]kernel.Link, error) {
	links, err := a.host.Links.All()
	return slices.DeleteFunc(links, func(l kernel.Link) bool {
		mine := ours(l) && (a.allClusters || l.Alias == alias(a.options.Cluster))
		return !mine && !a.options.unfinished(l)
	}), err
}

// deleteDevices deletes the tunnels that are not wanted.
func (a *application) deleteDevices(wanted map[family]bool) error {
	links, err := a.devices()
	errs := []error{err}
	for _, l := range links {
		keep := false
		for f := range wanted {
			keep = keep || l.Name == a.options.deviceName(f)
		}
		if !keep {
			errs = append(errs, a.count(a.host.Links.Delete(l)))
		}
	}
	return errors.Join(errs...)
}
