package ovs

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// Remove removes ports from the database, then the links. On DEL without a namespace it does not
// need the database: the next ADD on the bridge, or GC, removes a port without a link.
func (c *Config) Remove(
	ctx context.Context, s *attach.Session, gone attach.Gone, deleteLinks func() error,
) error {
	err := c.detach(ctx, s, gone)
	if errors.Is(err, ErrUnreachable) && s.Command == cni.Del {
		if s.Sandbox == nil {
			s.Log.Warn("the port stays in the database of Open vSwitch until the next ADD or GC",
				"error", err)
			err = nil
		} else {
			e := cni.AsError(err) // the cause of err would get another code
			err = cni.Errorf(cni.CodeInternal, "%s", e.Msg).WithDetails(e.Details)
		}
	}
	return errors.Join(err, deleteLinks())
}

func (c *Config) detach(ctx context.Context, s *attach.Session, gone attach.Gone) error {
	sw, err := c.open(ctx, s)
	if err != nil {
		return err
	}
	what := "ports of network " + gone.Network
	if !gone.All() {
		what = fmt.Sprintf("port of container %s (%s)", gone.One.Container, gone.One.IfName)
	}
	return s.Tx.Do("delete "+what, func() error {
		_, err := sw.Detach(ctx, func(p Attached) bool { return selects(gone, s, p) || dead(s, p) })
		return unreachable(cni.CodeTryAgainLater, err)
	}, nil)
}

// selects reports whether a port belongs to an attachment that no longer exists. DEL ignores the
// network, which may have been renamed since ADD.
func selects(gone attach.Gone, s *attach.Session, p Attached) bool {
	switch {
	case gone.All():
		return !p.Foreign && gone.Owner(p.Owner.Attachment.Owner())
	case p.Foreign:
		return s.Netns != "" && p.Owner.Netns == s.Netns && p.Owner.IfName == s.IfName
	}
	return p.Owner.Container == gone.One.Container && p.Owner.IfName == gone.One.IfName
}

// dead reports whether the link of a port no longer exists, because its namespace ended without
// DEL. The switch must agree, in case that this process is in another namespace.
func dead(s *attach.Session, p Attached) bool {
	if !p.NoLink {
		return false
	}
	_, err := s.Host.Links.ByName(p.Name)
	return errors.Is(err, kernel.ErrNoLink)
}
