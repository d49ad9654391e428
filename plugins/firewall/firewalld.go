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

const (
	patience = 2 * time.Second  // timeout of calls that only look for firewalld
	limit    = 10 * time.Second // timeout of a change by a firewalld that answers
)

var (
	errNotRunning = errors.New("firewalld is not running")
	errNoAnswer   = errors.New("firewalld runs and cannot be reached")
)

// running returns nil if firewalld runs and answers, otherwise the reason why it cannot be used. The
// error wraps errNoAnswer if it runs: its rules are in force.
func running(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return withFirewalld(ctx, func(ctx context.Context, d *firewalld.Conn) error {
		running, err := d.Running(ctx)
		if err == nil && !running {
			return errNotRunning
		}
		if err == nil {
			if err = d.Ping(ctx); err != nil {
				err = fmt.Errorf("%w: %w", errNoAnswer, err)
			}
		}
		return err
	})
}

// lacksFirewalld returns an error with the given code if firewalld cannot be used.
func lacksFirewalld(ctx context.Context, code cni.Code) error {
	err := running(ctx)
	if errors.Is(err, errNoAnswer) {
		return unanswered(code, err)
	}
	if err != nil {
		return cni.Errorf(code, "backend firewalld: %w", err).
			WithDetails("start firewalld, or omit backend")
	}
	return nil
}

// unanswered returns an error with the given code for a firewalld that runs and does not answer.
func unanswered(code cni.Code, err error) error {
	return cni.Errorf(code, "backend firewalld: %w", err).
		WithDetails("restart firewalld, or set backend to nftables or iptables if it is not in use")
}

// denied reports whether firewalld denies this process even to read the zone.
func (c *Config) denied(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := withFirewalld(ctx, func(ctx context.Context, d *firewalld.Conn) error {
		_, err := d.HasSource(ctx, c.zone(), netip.AddrFrom4([4]byte{192, 0, 2, 1}))
		return err
	})
	return errors.Is(err, firewalld.ErrDenied)
}

// refused returns an error with the given code for a firewalld that denies this process a change.
func refused(code cni.Code, err error) error {
	return cni.Errorf(code, "backend firewalld: %w", err).
		WithDetails("allow this user to change firewalld (polkit), or set backend to nftables or iptables")
}

// withFirewalld calls do with a connection. The calls of do end after the limit.
func withFirewalld(ctx context.Context, do func(context.Context, *firewalld.Conn) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errNoAnswer)
	defer cancel()
	c, err := firewalld.Open(ctx)
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, c), c.Close())
}

// addSources adds addresses to the zone. A rollback removes the addresses that it added.
func (c *Config) addSources(ctx context.Context, s *chained.Session, addrs []netip.Addr) error {
	return withFirewalld(ctx, func(ctx context.Context, d *firewalld.Conn) error {
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
					return withFirewalld(ctx, func(ctx context.Context, d *firewalld.Conn) error {
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
	return withFirewalld(ctx, func(ctx context.Context, d *firewalld.Conn) error {
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
	if c.Backend.named() && c.Backend != backendFirewalld {
		return nil
	}
	if err := running(ctx); errors.Is(err, errNoAnswer) {
		return unanswered(cni.CodeIOFailure, err)
	} else if err != nil {
		return nil
	}
	return withFirewalld(ctx, func(ctx context.Context, d *firewalld.Conn) error {
		var errs []error
		for _, a := range addrs {
			if taken(a) {
				continue
			}
			err := s.Tx.Do(fmt.Sprintf("firewalld: remove %s from zone %s", a, c.zone()),
				func() error { return d.RemoveSource(ctx, c.zone(), a) }, nil)
			if errors.Is(err, firewalld.ErrDenied) {
				return nil // it has denied ADD, too
			}
			if errors.Is(err, firewalld.ErrRefused) {
				s.Log.Warn("an address stays in a zone of firewalld; restart firewalld to remove it",
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
