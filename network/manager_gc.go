package network

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
	"github.com/tenon-cni/tenon/network/config"
)

// KeepSandboxes defines the containers that are in use. GC removes all others. A zero KeepSandboxes
// is an error.
type KeepSandboxes struct {
	// IDs is the complete list of the containers of this runtime. GC returns
	// [cni.CodeInvalidConfig] for nil, because nil could be a mistake; an empty list means that
	// there are none.
	IDs []string

	// Recorded, instead of IDs, keeps every attachment that is recorded as attached: see
	// [Keep.Recorded].
	Recorded bool

	// Since is the time at which the caller began to collect IDs: see [Keep.Since]. Zero is the
	// start of GC.
	Since time.Time

	// AllRuntimes makes GC also judge the attachments of other runtimes: see [Keep.AllRuntimes].
	AllRuntimes bool
}

// GC detaches containers that are not in use from all networks: from the networks of the directory,
// and from networks that exist only in the records of this runtime. It continues past errors and
// joins them: see [Client.GC]. If the records cannot be listed, GC does nothing.
//
// For each container in IDs, GC passes two kinds of attachments to the plugins as valid: the
// recorded ones, and one with the interface name from [ManagerOptions.IfName]. An attachment with
// another interface name is not in use if its record is lost.
func (m *Manager) GC(ctx context.Context, k KeepSandboxes) error {
	if k.IDs == nil && !k.Recorded {
		return cni.Errorf(cni.CodeInvalidConfig, "GC needs the list of containers in use").
			WithDetails("pass an empty list if there are none")
	}
	if k.Since.IsZero() {
		k.Since = time.Now()
	}
	s := m.Config()
	c := m.client(s)
	found, err := c.scan("")
	if err != nil {
		return err // IDs do not contain the interface names
	}
	recorded, _ := readable(found) // Client.GC reports unreadable records
	var errs []error
	for _, n := range m.known(s, recorded, k.AllRuntimes) {
		errs = append(errs, c.GC(ctx, n, m.keep(s, n, recorded, k)))
	}
	return errors.Join(errs...)
}

// known returns the networks that GC handles.
func (m *Manager) known(
	s *config.Snapshot, recorded []*records.Record, allRuntimes bool,
) []*config.Network {
	networks := slices.Clone(s.Networks)
	mine := slices.DeleteFunc(slices.Clone(recorded),
		func(r *records.Record) bool { return r.Runtime != m.o.Client.Runtime && !allRuntimes })
	for _, n := range Recorded(publicRecords(mine)) {
		if !slices.ContainsFunc(networks,
			func(other *config.Network) bool { return other.Name == n.Name }) {
			networks = append(networks, n)
		}
	}
	slices.SortFunc(networks, func(a, b *config.Network) int { return cmp.Compare(a.Name, b.Name) })
	return networks
}

// keep returns the part of k for one network.
func (m *Manager) keep(
	s *config.Snapshot, n *config.Network, recorded []*records.Record, k KeepSandboxes,
) Keep {
	keep := Keep{Recorded: k.Recorded, Since: k.Since, AllRuntimes: k.AllRuntimes}
	if k.Recorded {
		return keep
	}
	keep.Attachments = []cni.ValidAttachment{}
	for _, r := range recorded {
		if r.Attachment.Network == n.Name && !r.LeftOver() &&
			slices.Contains(k.IDs, r.Attachment.Container) {
			keep.Attachments = append(keep.Attachments, cni.ValidAttachment{
				ContainerID: r.Attachment.Container, IfName: r.Attachment.IfName,
			})
		}
	}
	if i := slices.Index(m.defaults(s), n); i >= 0 && m.o.IfName != nil {
		for _, id := range k.IDs {
			keep.Attachments = append(keep.Attachments,
				cni.ValidAttachment{ContainerID: id, IfName: m.o.IfName(i, n)})
		}
	}
	return keep
}
