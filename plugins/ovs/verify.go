package ovs

import (
	"context"
	"fmt"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/kernel"
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
	found, err := sw.Find(ctx, func(p Attached) bool { return p.Name == host.Name })
	if err != nil {
		return unreachable(cni.CodeTryAgainLater, err)
	}
	want, err := c.port(s, host.Name)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("port %s: expected it on bridge %s, found it on none", host.Name, want.Bridge)
	}
	if err := checkPort(found[0], want); err != nil {
		return err
	}
	if want.Segment == nil {
		return checkVLANs(found[0], want)
	}
	have, err := sw.SegmentOf(ctx, want.Bridge, want.Segment.VNI)
	if err != nil {
		return unreachable(cni.CodeTryAgainLater, err)
	}
	if err := checkSegment(have, *want.Segment, want.Bridge); err != nil {
		return err
	}
	want.Tag = have.Tag
	return checkVLANs(found[0], want)
}

func checkPort(have Attached, want Port) error {
	switch {
	case have.Error != "":
		return fmt.Errorf("port %s: ovs-vswitchd reports: %s", have.Name, have.Error)
	case have.Bridge != want.Bridge:
		return fmt.Errorf("port %s: expected it on bridge %s, found it on %s", have.Name, want.Bridge,
			have.Bridge)
	case !have.Foreign && have.Owner.Attachment != want.Owner.Attachment:
		return fmt.Errorf("port %s: expected owner %v, found %v", have.Name, want.Owner.Attachment,
			have.Owner.Attachment)
	case have.Protected != want.Protected:
		return fmt.Errorf("port %s: expected protected %t, found %t", have.Name, want.Protected,
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
		return fmt.Errorf("port %s: expected mode %s, tag %d, trunks %v; found mode %s, tag %d, trunks %v",
			have.Name, mode, want.Tag, want.Trunks, have.Mode, have.Tag, have.Trunks)
	}
	return nil
}

func checkSegment(have, want Segment, bridge string) error {
	if have.Tag == 0 {
		return fmt.Errorf("bridge %s: expected a tag for VXLAN segment %d, found none", bridge, want.VNI)
	}
	if want.Tag != 0 && want.Tag != have.Tag {
		return fmt.Errorf("bridge %s: expected tag %d for VXLAN segment %d, found %d", bridge, want.Tag,
			want.VNI, have.Tag)
	}
	for _, t := range want.Tunnels {
		if !slices.Contains(have.Tunnels, t) {
			return fmt.Errorf("bridge %s: expected a tunnel of VXLAN segment %d to %s, found %v", bridge,
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
