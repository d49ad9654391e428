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

// Status runs STATUS of the plugins in their order and returns the first error, which usually has
// [cni.CodeNotAvailable] or [cni.CodeLimitedConnectivity]. If [Client.Policy] does not allow the
// network, Status calls no plugin and returns [cni.CodeNotAvailable]. A network below 1.1.0, or
// with plugins that support only older versions, has no STATUS: Status calls no plugin and
// succeeds. Status takes no locks.
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

// Versions returns the versions that a plugin supports. A plugin without VERSION supports only
// 0.1.0.
func (c *Client) Versions(ctx context.Context, typ string) (cni.VersionReply, error) {
	// Plugins of the time of 0.1.0 require these variables before they read the verb.
	env := c.env(cni.VersionCommand, cni.Attachment{IfName: "dummy"},
		records.Parameters{Netns: "dummy"})
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
		return cni.VersionReply{CNIVersion: cni.V010.String(),
			Supported: []string{cni.V010.String()}}, nil
	}
	return r, err
}

// lacksVersion reports whether a plugin ran and does not know VERSION: it returned the code that
// version 1.0.0 introduced for this, or the older message of the upstream plugins.
func lacksVersion(err error) bool {
	e := (*invoke.Error)(nil)
	return errors.As(err, &e) &&
		(e.Err.Code == cni.CodeInvalidEnvironment ||
			strings.HasPrefix(e.Err.Msg, "unknown CNI_COMMAND"))
}

// Validate checks that the binaries of all plugins exist and support the version of the network. It
// returns the capabilities that at least one plugin declares, sorted. It joins errors.
func (c *Client) Validate(
	ctx context.Context, n *config.Network,
) (capabilities []string, err error) {
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
			err = cni.Errorf(cni.CodeIncompatibleVersion,
				"plugin %s does not support CNI version %v", p.Type, n.Version).
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
