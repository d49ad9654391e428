package firewall

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/firewalld"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

// Restore restores rules of iptables and sources of firewalld. It has no rules that deny packets,
// because nftables elements isolate with every backend.
func (c *Config) Restore(
	ctx context.Context, s *chained.Session, step session.Step,
) (restored []string, err error) {
	if step != session.Allow {
		return nil, nil
	}
	addrs := reachable(s)
	b, err := c.choose(ctx, s, addrs)
	if err != nil {
		return nil, err
	}
	switch b {
	case backendFirewalld:
		err = withFirewalld(ctx, func(ctx context.Context, d *firewalld.Conn) error {
			var errs []error
			for _, a := range addrs {
				added, err := d.AddSource(ctx, c.zone(), a)
				if errs = append(errs, err); added {
					restored = append(restored,
						fmt.Sprintf("%s in zone %s of firewalld", a, c.zone()))
				}
			}
			return errors.Join(errs...)
		})
	case backendIPTables:
		err = c.eachEdit(s, addrs, func(t kernel.IPTablesTable, e kernel.IPTablesEdit) error {
			if missing := check(s, t, e); missing != nil {
				restored = append(restored, missing.Error())
			}
			return s.Host.Rules.EditIPTables(t, e)
		})
	}
	return restored, err
}

// Move does nothing, because a repair keeps the backend.
func (c *Config) Move(context.Context, *chained.Session, bool) ([]session.Move, error) {
	return nil, nil
}
