// Package session is one call of a plugin in progress: the request, the two namespaces it is about, and the transaction in
// which both are changed. Every archetype of plugins works in a session.
package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/kernel/netns"
	"github.com/tenon-cni/tenon/internal/kernel/probe"
	"github.com/tenon-cni/tenon/plugin"
)

// Session is one call in progress, with the configuration of its plugin. It is for one goroutine.
type Session[C any] struct {
	*Core
	Conf *C
}

// Of gives the session of a call of C the type of its configuration.
func Of[C any](s *Core) *Session[C] { return &Session[C]{s, s.Config().(*C)} }

// Core is a session of any plugin: what does not depend on the type of its configuration.
type Core struct {
	*plugin.AnyCall

	Tx      *kernel.Tx
	Host    *kernel.Space // the plugin's own namespace
	Sandbox *kernel.Space // the container's; nil until [Core.Enter]
	Tag     string        // what everything made for this attachment is marked with

	handles []*netns.NS
}

// Open starts a session in the plugin's own namespace. It must be closed.
func Open(ctx context.Context, c *plugin.AnyCall) (*Core, error) {
	s := &Core{AnyCall: c, Tx: kernel.Begin(ctx), Tag: c.Attachment().Tag()}
	own, err := netns.Current()
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

// Enter opens the container's namespace too. Its errors are those of [OpenSandbox].
func (s *Core) Enter() error {
	ns, err := OpenSandbox(s.Env)
	if err != nil {
		return err
	}
	s.handles = append(s.handles, ns)
	s.Sandbox, err = s.Tx.Open(ns)
	return err
}

// EnterIfThere is Enter for DEL: where the namespace is gone, Sandbox stays nil and that is no error.
func (s *Core) EnterIfThere() error {
	if s.Netns == "" {
		return nil
	}
	switch err := s.Enter(); cni.CodeOf(err) {
	case cni.CodeUnknownContainer, cni.CodeInvalidEnvironment:
		return nil
	default:
		return err
	}
}

// OpenSandbox opens the container's namespace. The code is [cni.CodeUnknownContainer] if it is gone,
// [cni.CodeInvalidEnvironment] if CNI_NETNS leads to something else, and [cni.CodeIOFailure] if that cannot be told.
func OpenSandbox(env cni.Env) (*netns.NS, error) {
	ns, err := netns.Open(env.Netns)
	switch {
	case errors.Is(err, netns.ErrNotExist):
		return nil, cni.Errorf(cni.CodeUnknownContainer, "CNI_NETNS: %w", err)
	case errors.Is(err, netns.ErrNotNamespace):
		return nil, cni.Errorf(cni.CodeInvalidEnvironment, "CNI_NETNS: %w", err)
	case err != nil:
		return nil, cni.Errorf(cni.CodeIOFailure, "CNI_NETNS: %w", err)
	}
	return ns, nil
}

// PrevIPs are the addresses of the previous result that are the container's interface's, or nobody's. Whether the path of
// its namespace is written as in this call does not matter.
func (s *Core) PrevIPs() []cni.IP {
	var list []cni.IP
	for _, ip := range s.Prev.IPs {
		i, ok := ip.Interface.Get()
		if !ok || s.Prev.Interfaces[i].Name == s.IfName && s.Prev.Interfaces[i].Sandbox != "" {
			list = append(list, ip)
		}
	}
	return list
}

// Close closes the namespaces.
func (s *Core) Close() {
	for _, space := range []*kernel.Space{s.Host, s.Sandbox} {
		if space != nil {
			space.Close()
		}
	}
	for _, ns := range s.handles {
		ns.Close()
	}
}

// Drift is the error of CHECK for what is not in the ruleset as it should be, which repair puts right.
func Drift(format string, args ...any) error {
	return cni.Errorf(cni.CodeInternal, format, args...).WithDetails("tenon repair puts back what somebody has flushed")
}

// Lacking says what the kernel lacks, for STATUS: an error with [cni.CodeNotAvailable].
func Lacking(features ...probe.Feature) error {
	missing, err := probe.Missing(features...)
	if err != nil {
		return cni.Errorf(cni.CodeNotAvailable, "%w", err)
	}
	if len(missing) > 0 {
		return cni.Errorf(cni.CodeNotAvailable, "%s", missing[0].Help())
	}
	return nil
}
