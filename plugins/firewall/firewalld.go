package firewall

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/firewalld"
)

// patience is the timeout of a D-Bus call that only looks for firewalld.
const patience = 2 * time.Second

var errNotRunning = errors.New("firewalld is not running")

// running returns nil if firewalld runs, otherwise the reason why it cannot be used.
func running(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return withFirewalld(ctx, func(d *firewalld.Conn) error {
		running, err := d.Running(ctx)
		if err == nil && !running {
			err = errNotRunning
		}
		return err
	})
}

// lacksFirewalld returns an error with the given code if firewalld cannot be used.
func lacksFirewalld(ctx context.Context, code cni.Code) error {
	if err := running(ctx); err != nil {
		return cni.Errorf(code, "backend firewalld: %w", err).
			WithDetails("start firewalld, or omit backend")
	}
	return nil
}

func withFirewalld(ctx context.Context, do func(*firewalld.Conn) error) error {
	c, err := firewalld.Open(ctx)
	if err != nil {
		return err
	}
	return errors.Join(do(c), c.Close())
}

// addSources adds addresses to the zone. A rollback removes the addresses that it added.
func (c *Config) addSources(ctx context.Context, s *chained.Session, addrs []netip.Addr) error {
	return withFirewalld(ctx, func(d *firewalld.Conn) error {
		for _, a := range addrs {
			added := false
			err := s.Tx.Do(fmt.Sprintf("firewalld: add %s to zone %s", a, c.zone()),
				func() (err error) {
					added, err = d.AddSource(ctx, c.zone(), a)
					return err
				},
				func() error {
					if !added {
						return nil
					}
					ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
					defer cancel()
					return withFirewalld(ctx, func(d *firewalld.Conn) error {
						return d.RemoveSource(ctx, c.zone(), a)
					})
				})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *Config) checkSources(ctx context.Context, s *chained.Session, addrs []netip.Addr) error {
	return withFirewalld(ctx, func(d *firewalld.Conn) error {
		for _, a := range addrs {
			has, err := d.HasSource(ctx, c.zone(), a)
			if err != nil {
				return err
			}
			if !has {
				return fmt.Errorf("firewalld zone %q: source %s for %s is missing", c.zone(), a,
					s.Attachment())
			}
		}
		return nil
	})
}

// removeSources removes addresses from the zone, except addresses that other attachments hold. If
// firewalld is not running there is nothing to remove. A source that firewalld refuses to remove
// stays, with a warning, because a later DEL gets the same answer. A call to firewalld can take
// long, so removeSources does not hold the lock of the namespace during it: if another attachment
// takes an address meanwhile, removeSources adds its source again.
func (c *Config) removeSources(
	ctx context.Context, s *chained.Session, addrs []netip.Addr, taken func(netip.Addr) bool,
) error {
	if c.Backend.named() && c.Backend != backendFirewalld || running(ctx) != nil {
		return nil
	}
	return withFirewalld(ctx, func(d *firewalld.Conn) error {
		var errs []error
		for _, a := range addrs {
			if taken(a) {
				continue
			}
			err := s.Tx.Do(fmt.Sprintf("firewalld: remove %s from zone %s", a, c.zone()),
				func() error { return d.RemoveSource(ctx, c.zone(), a) }, nil)
			if errors.Is(err, firewalld.ErrRefused) {
				s.Log.Warn("an address stays in a zone of firewalld; reload or restart firewalld to remove it",
					"address", a, "zone", c.zone(), "error", err)
				continue
			}
			if err == nil && taken(a) {
				_, err = d.AddSource(ctx, c.zone(), a)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}
