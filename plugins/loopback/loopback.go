package loopback

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// Config is the configuration of the plugin. It has no options of its own.
type Config struct{ plugin.Common }

// Plugin is the definition of loopback.
var Plugin = plugin.Define(plugin.Info{
	Name:  "loopback",
	About: "sets up the loopback interface of a container",
	Role:  plugin.RoleEither,
	Doc:   doc,
}, func() plugin.Plugin { return new(Config) })

const ifName = "lo"

// Add sets lo up. In a chain, it returns the previous result.
func (c *Config) Add(ctx context.Context, call *plugin.Call) (*cni.Result, error) {
	var r *cni.Result
	err := enter(ctx, call, func(s *kernel.Space, l kernel.Link) (err error) {
		if err = s.Links.Up(l); err == nil {
			r, err = result(s, l, call.Netns)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if call.Prev != nil {
		return call.Prev, nil
	}
	return r, nil
}

// result lists the first address of each family; the kernel gives lo its addresses when it comes
// up.
func result(s *kernel.Space, l kernel.Link, sandbox string) (*cni.Result, error) {
	r := &cni.Result{Interfaces: []cni.Interface{{Name: ifName, MAC: "00:00:00:00:00:00",
		Sandbox: sandbox}}}
	addrs, err := s.Addrs.Of(l)
	if err != nil {
		return nil, err
	}
	for _, is4 := range []bool{true, false} {
		var first netip.Prefix
		for _, a := range addrs {
			if a.Addr().Is4() != is4 {
				continue
			}
			if !a.Addr().IsLoopback() {
				return nil, fmt.Errorf("interface lo has %s, which is not a loopback address", a)
			}
			if !first.IsValid() {
				first = a
			}
		}
		if first.IsValid() {
			r.IPs = append(r.IPs, cni.IP{Address: first, Interface: cni.Some(0)})
		}
	}
	return r, nil
}

// Del sets lo down.
func (c *Config) Del(ctx context.Context, call *plugin.Call) error {
	ns, err := session.OpenSandboxOfDel(call)
	if ns == nil || err != nil {
		return err
	}
	return inside(ctx, call, ns, func(s *kernel.Space, l kernel.Link) error {
		return s.Links.Down(l)
	})
}

// Check requires that lo is up.
func (c *Config) Check(ctx context.Context, call *plugin.Call) error {
	return enter(ctx, call, func(_ *kernel.Space, l kernel.Link) error {
		if !l.Up {
			return errors.New("loopback interface is down")
		}
		return nil
	})
}

// enter calls inside for the network namespace of the call, which must exist.
func enter(
	ctx context.Context, call *plugin.Call, fn func(*kernel.Space, kernel.Link) error,
) error {
	ns, err := session.OpenSandbox(call.Env)
	if err != nil {
		return err
	}
	return inside(ctx, call, ns, fn)
}

// inside calls fn with interface lo of a namespace, which it closes. If fn fails, it undoes its
// changes.
func inside(
	ctx context.Context, call *plugin.Call, ns *kernel.Namespace, fn func(*kernel.Space,
		kernel.Link) error,
) error {
	defer ns.Close()
	tx := session.Begin(ctx, call)
	s, err := tx.Open(ns)
	if err != nil {
		return err
	}
	defer s.Close()
	l, err := s.Links.ByName(ifName)
	if err == nil {
		err = fn(s, l)
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	tx.Keep()
	return nil
}
