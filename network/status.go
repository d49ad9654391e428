package network

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network/config"
)

// Status asks the plugins in their order whether ADD would work and returns the first no, which
// usually has [cni.CodeNotAvailable] or [cni.CodeLimitedConnectivity]. A network that [Client.Policy] refuses is
// [cni.CodeNotAvailable] before any is asked. A network below 1.1.0, or one that its plugins only support below it, has
// no STATUS: that is success, and no plugin is called. Status waits for nothing but the plugins.
func (c *Client) Status(ctx context.Context, n *config.Network) (err error) {
	if err := n.Validate(); err != nil {
		return err
	}
	ctx, end := c.observe(ctx, Operation, cni.Status, cni.Attachment{Network: n.Name})
	defer func() { end(nil, err) }()
	if err := c.Policy.Check(n); err != nil {
		refusal := cni.AsError(err)
		return cni.Errorf(cni.CodeNotAvailable, "%s", refusal.Msg).WithDetails(refusal.Details)
	}
	return ofNetwork(n, c.status(ctx, n))
}

func (c *Client) status(ctx context.Context, n *config.Network) error {
	n, err := c.negotiate(ctx, n)
	if err != nil || !n.Version.Has(cni.Status) {
		return err
	}
	env := c.env(cni.Status, cni.Attachment{}, records.Parameters{})
	for i := range n.Plugins {
		if _, err := c.run(ctx, n.List, i, env, cni.RequestData{}); err != nil {
			return err
		}
	}
	return nil
}

// Versions asks a plugin for the versions that it supports. One that does not know VERSION supports 0.1.0
// alone.
func (c *Client) Versions(ctx context.Context, typ string) (cni.VersionReply, error) {
	// Plugins of the time of 0.1.0 demand these variables before they look at the verb.
	env := c.env(cni.VersionCommand, cni.Attachment{IfName: "dummy"}, records.Parameters{Netns: "dummy"})
	stdin, err := json.Marshal(map[string]cni.Version{"cniVersion": cni.Newest})
	if err != nil {
		return cni.VersionReply{}, err
	}
	var r cni.VersionReply
	err = c.call(ctx, Event{Plugin: typ}, env, stdin, func(stdout []byte) (err error) {
		r, err = cni.DecodeVersionReply(stdout)
		return err
	})
	if lacksVersion(err) {
		return cni.VersionReply{CNIVersion: cni.V010.String(), Supported: []string{cni.V010.String()}}, nil
	}
	return r, err
}

// lacksVersion reports whether a plugin that ran said that it does not know VERSION: with the code that
// exists for it since 1.0.0 or, before that, in the words of the reference library.
func lacksVersion(err error) bool {
	e := (*invoke.Error)(nil)
	return errors.As(err, &e) &&
		(e.Err.Code == cni.CodeInvalidEnvironment || strings.HasPrefix(e.Err.Msg, "unknown CNI_COMMAND"))
}

// Validate checks that the executables of all plugins are there and support the version of the network,
// and returns the capabilities that at least one of them declares, sorted. Errors are joined.
func (c *Client) Validate(ctx context.Context, n *config.Network) (capabilities []string, err error) {
	if err := n.Validate(); err != nil {
		return nil, err
	}
	n, err = c.negotiate(ctx, n)
	if err != nil {
		return nil, ofNetwork(n, err)
	}
	var errs []error
	declared := map[string]bool{}
	for _, p := range n.Plugins {
		for name, wanted := range p.Capabilities {
			if wanted {
				declared[name] = true
			}
		}
		v, err := c.Versions(ctx, p.Type)
		if err == nil && !v.Supports(n.Version) {
			err = cni.Errorf(cni.CodeIncompatibleVersion, "plugin %s does not support CNI version %v", p.Type, n.Version).
				WithDetails("supported: " + strings.Join(v.Supported, ", "))
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if errs != nil {
		return nil, ofNetwork(n, errors.Join(errs...))
	}
	return slices.Sorted(maps.Keys(declared)), nil
}
