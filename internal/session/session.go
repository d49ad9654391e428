// Package session represents one call of a plugin in progress: the request, its two namespaces, and
// the transaction in which both are changed. All kinds of plugins work in a session.
package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/plugin"
)

// Session is one call in progress. It is for one goroutine.
type Session struct {
	*plugin.Call

	Tx      *kernel.Tx
	Host    *kernel.Space // the plugin's own namespace
	Sandbox *kernel.Space // the container's; nil until [Session.Enter]
	Tag     string        // marks all objects of this attachment

	handles []*kernel.Namespace
	closers []func()
}

// Begin starts a transaction that [plugin.Call.Watch] observes.
func Begin(ctx context.Context, c *plugin.Call) *kernel.Tx {
	tx := kernel.Begin(ctx)
	tx.Watch(c.Watch)
	a := c.Attachment()
	before, _, _ := strings.Cut(a.Tag(), string(a.Owner()))
	tx.SetPeers(before + a.Owner().Network())
	return tx
}

// Open starts a session in the plugin's own namespace. The caller must close it.
func Open(ctx context.Context, c *plugin.Call) (*Session, error) {
	s := &Session{Call: c, Tx: Begin(ctx, c), Tag: c.Attachment().Tag()}
	own, err := kernel.CurrentNamespace()
	if err != nil {
		return nil, fmt.Errorf("own network namespace: %w", err)
	}
	s.handles = append(s.handles, own)
	if s.Host, err = s.Tx.Open(own); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Enter opens the container's namespace too. It returns the errors of [OpenSandbox].
func (s *Session) Enter() error {
	ns, err := OpenSandbox(s.Env)
	if err != nil {
		return err
	}
	s.handles = append(s.handles, ns)
	s.Sandbox, err = s.Tx.Open(ns)
	return err
}

// EnterIfThere is Enter for DEL, with [OpenSandboxOfDel]; without a namespace, Sandbox stays nil.
func (s *Session) EnterIfThere() error {
	ns, err := OpenSandboxOfDel(s.Call)
	if ns == nil || err != nil {
		return err
	}
	s.handles = append(s.handles, ns)
	s.Sandbox, err = s.Tx.Open(ns)
	return err
}

// OpenSandboxOfDel opens the container's namespace for DEL. It returns nil if there is none. If
// CNI_NETNS cannot be opened, it logs a warning and returns nil, because later attempts would fail
// too and DEL would never succeed. An error means that this process or the host has reached a
// limit.
func OpenSandboxOfDel(c *plugin.Call) (*kernel.Namespace, error) {
	if c.Netns == "" {
		return nil, nil
	}
	ns, err := OpenSandbox(c.Env)
	switch {
	case err == nil:
		return ns, nil
	case kernel.Exhausted(err):
		return nil, err
	case cni.CodeOf(err) != cni.CodeUnknownContainer && cni.CodeOf(err) != cni.CodeInvalidEnvironment:
		c.Log.Warn("cannot open the network namespace: DEL continues as if it no longer existed", "err", err)
	}
	return nil, nil
}

// OpenSandbox opens the container's namespace. The error has the code [cni.CodeUnknownContainer] if
// the namespace does not exist, [cni.CodeInvalidEnvironment] if CNI_NETNS is something else. Other
// errors come from the kernel.
func OpenSandbox(env cni.Env) (*kernel.Namespace, error) {
	ns, err := kernel.OpenNamespace(env.Netns)
	switch {
	case errors.Is(err, kernel.ErrNoNamespace):
		return nil, cni.Errorf(cni.CodeUnknownContainer, "CNI_NETNS: %w", err)
	case errors.Is(err, kernel.ErrNotNamespace):
		return nil, cni.Errorf(cni.CodeInvalidEnvironment, "CNI_NETNS: %w", err)
	case err != nil:
		return nil, fmt.Errorf("CNI_NETNS: %w", err)
	}
	return ns, nil
}

// Change calls change and keeps its changes. If change fails or panics, Change rolls them back.
func (s *Session) Change(change func() error) error {
	defer s.Tx.Rollback() // for a panic: after a return there is nothing left to roll back
	if err := change(); err != nil {
		return errors.Join(err, s.Tx.Rollback())
	}
	s.Tx.Keep()
	return nil
}

// OnClose makes Close call f first, after a rollback.
func (s *Session) OnClose(f func()) { s.closers = append(s.closers, f) }

// Close calls the functions of OnClose and closes the namespaces.
func (s *Session) Close() {
	for _, f := range s.closers {
		f()
	}
	for _, space := range []*kernel.Space{s.Host, s.Sandbox} {
		if space != nil {
			space.Close()
		}
	}
	for _, ns := range s.handles {
		ns.Close()
	}
}

// Refused reports whether the kernel refuses a change, and not for lack of resources. DEL skips
// such a change, because each later DEL would fail in the same way, and the runtime would repeat it
// forever.
func Refused(err error) bool { return errors.As(err, new(syscall.Errno)) && !kernel.Exhausted(err) }

// CheckUp returns an error if a link is down.
func CheckUp(l kernel.Link) error {
	if !l.Up {
		return fmt.Errorf("interface %s: expected it up, found it down", l.Name)
	}
	return nil
}

// LacksIPTables returns nil if the iptables binaries for these families are installed, or for both
// if none is given. Otherwise it returns an error with the code, which names the option that needs
// them and the hint as an alternative.
func LacksIPTables(code cni.Code, option, hint string, families ...kernel.Family) error {
	if err := kernel.IPTablesAvailable(families...); err != nil {
		return cni.Errorf(code, "%s: %w", option, err).
			WithDetails("install package iptables, or add its directory to PATH, or " + hint)
	}
	return nil
}

// Drift returns the error of CHECK for a missing or unexpected rule, which a repair corrects.
func Drift(format string, args ...any) error {
	return cni.Errorf(cni.CodeInternal, format, args...).WithDetails("to restore the rules, run: tenon repair")
}

// Lacking returns an error for STATUS with [cni.CodeNotAvailable] if the kernel lacks a feature.
func Lacking(features ...kernel.Feature) error {
	missing, err := kernel.Missing(features...)
	if err != nil {
		return cni.Errorf(cni.CodeNotAvailable, "%w", err)
	}
	if len(missing) > 0 {
		return cni.Errorf(cni.CodeNotAvailable, "%s", missing[0].Help())
	}
	return nil
}
