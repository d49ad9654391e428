package ovs

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

// Verify compares the port and its segment in the database with the configuration.
func (c *Config) Verify(ctx context.Context, s *attach.Session, link kernel.Link) error {
	host, err := s.CheckPair(link)
	if err != nil {
		return err
	}
	sw, err := c.open(ctx, s)
	if err != nil {
		return err
	}
	want, err := c.port(s, host.Name)
	if err != nil {
		return err
	}
	different, err := compare(ctx, sw, want)
	if err != nil {
		return unreachable(cni.CodeTryAgainLater, err)
	}
	return different
}

// Restore implements [attach.Restorer]: it adds the port, the tag and the tunnels again if another
// program has removed or changed them.
func (c *Config) Restore(ctx context.Context, s *attach.Session) ([]string, error) {
	if c.alone {
		return restoreByProgram(ctx, s)
	}
	host, err := s.HostEnd()
	if err != nil {
		return nil, kernel.UnlessNoLink(err)
	}
	sw, err := c.open(ctx, s)
	if err != nil {
		return nil, err
	}
	want, err := c.port(s, host.Name)
	if err != nil {
		return nil, err
	}
	different, err := compare(ctx, sw, want)
	if err != nil || different == nil {
		return nil, unreachable(cni.CodeTryAgainLater, err)
	}
	if err := c.attach(ctx, s, sw, host); err != nil {
		return nil, err
	}
	return []string{fmt.Sprintf("port %s of bridge %s", host.Name, want.Bridge)}, nil
}

// compare returns the first difference between a port, with its segment, in the database and the
// wanted one. err is the failure to read the database.
func compare(ctx context.Context, sw Switch, want Port) (different, err error) {
	found, err := sw.Find(ctx, func(p Attached) bool { return p.Name == want.Name })
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return drift("port %s: expected it on bridge %s, found it on none", want.Name, want.Bridge), nil
	}
	if different := checkPort(found[0], want); different != nil || want.Segment == nil {
		return cmp.Or(different, checkVLANs(found[0], want)), nil
	}
	have, err := sw.SegmentOf(ctx, want.Bridge, want.Segment.VNI)
	if err != nil {
		return nil, err
	}
	want.Tag = have.Tag
	return cmp.Or(checkSegment(have, *want.Segment, want.Bridge), checkVLANs(found[0], want)), nil
}

// drift returns an error of CHECK that a repair corrects.
func drift(format string, args ...any) error { return session.Drift(format, args...) }

func checkPort(have Attached, want Port) error {
	switch {
	case have.Error != "":
		return fmt.Errorf("port %s: ovs-vswitchd reports: %s", have.Name, have.Error)
	case have.Bridge != want.Bridge:
		return drift("port %s: expected it on bridge %s, found it on %s", have.Name, want.Bridge,
			have.Bridge)
	case !have.Foreign && have.Owner.Attachment != want.Owner.Attachment:
		return fmt.Errorf("port %s: expected owner %v, found %v", have.Name, want.Owner.Attachment,
			have.Owner.Attachment)
	case have.Protected != want.Protected:
		return drift("port %s: expected protected %t, found %t", have.Name, want.Protected,
			have.Protected)
	}
	return nil
}

func checkVLANs(have Attached, want Port) error {
	mode := "access"
	if want.Tag == 0 {
		mode = "trunk"
	}
	if have.Mode != mode || have.Tag != want.Tag || !slices.Equal(have.Trunks, want.Trunks) {
		return drift("port %s: expected mode %s, tag %d, trunks %v; found mode %s, tag %d, trunks %v",
			have.Name, mode, want.Tag, want.Trunks, have.Mode, have.Tag, have.Trunks)
	}
	return nil
}

func checkSegment(have, want Segment, bridge string) error {
	if have.Tag == 0 {
		return drift("bridge %s: expected a tag for VXLAN segment %d, found none", bridge, want.VNI)
	}
	if want.Tag != 0 && want.Tag != have.Tag {
		return drift("bridge %s: expected tag %d for VXLAN segment %d, found %d", bridge, want.Tag,
			want.VNI, have.Tag)
	}
	for _, t := range want.Tunnels {
		if !slices.Contains(have.Tunnels, t) {
			return drift("bridge %s: expected a tunnel of VXLAN segment %d to %s, found %v", bridge,
				want.VNI, t, have.Tunnels)
		}
	}
	return nil
}

// String describes the tunnel for people.
func (t Tunnel) String() string {
	from := ""
	if t.Local.IsValid() {
		from = " from " + t.Local.String()
	}
	return fmt.Sprintf("%s port %d%s", t.Remote, t.Port, from)
}
