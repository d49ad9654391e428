package firewall

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenon-cni/tenon/internal/firewalld"
	"github.com/tenon-cni/tenon/internal/iptables"
)

// Deny has nothing to put back: with every backend it is entries that isolate, and they come before it.
func (decorator) Deny(context.Context, *session) ([]string, error) { return nil, nil }

// Allow puts back rules of iptables and sources of firewalld.
func (decorator) Allow(ctx context.Context, s *session) (restored []string, err error) {
	addrs := addresses(s)
	b, err := choose(ctx, s, addrs)
	if err != nil {
		return nil, err
	}
	switch b {
	case backendFirewalld:
		err = withFirewalld(ctx, func(c *firewalld.Conn) error {
			var errs []error
			for _, a := range addrs {
				added, err := c.AddSource(ctx, s.Conf.zone(), a)
				if errs = append(errs, err); added {
					restored = append(restored, fmt.Sprintf("%s in zone %s of firewalld", a, s.Conf.zone()))
				}
			}
			return errors.Join(errs...)
		})
	case backendIPTables:
		err = eachEdit(s, addrs, func(t iptables.Table, e iptables.Edit) error {
			if missing := check(s, t, e); missing != nil {
				restored = append(restored, missing.Error())
			}
			return s.Host.EditIPTables(t, e)
		})
	}
	return restored, err
}
